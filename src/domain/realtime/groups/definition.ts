import { Fault, invalid } from "../../../kit/fault.ts";
import { jsonText } from "../../../kit/payload-json.ts";
import { isOfFrames, logOf, parsePattern, readFilter } from "../pubsub/rules.ts";
import {
  groupDelayMsDefault,
  groupDelayMsMax,
  groupInflightDefault,
  groupInflightMax,
  groupMetadataBytesMax,
  groupNameBytesMax,
  groupRedeliveriesDefault,
  groupRedeliveriesMax,
} from "./limits.ts";
import type { AckMode, Backpressure, GroupKey, GroupRow, GroupSettings, GroupStatus } from "./rows.ts";

export const defaultNamespace = "default";

/** A group as callers name it. */
export interface GroupName {
  /** Absent and empty mean `default`. */
  namespace?: string | undefined;
  name: string;
}

/** A group as frames name it. */
export type ChangedGroup = Pick<GroupKey, "environment_id" | "namespace" | "name">;

/** Tells subscribers of frames, after the commit; none of it waits or throws. */
export interface GroupAnnouncer {
  changed(change: "created" | "updated" | "deleted", group: ChangedGroup): void;
  /** Its members, its position or its deliveries are others now. */
  moved(environmentId: string, groupId: string): void;
}

/** Settings as callers give them. A setting that is left out, or is 0, has its default. */
export interface GroupInput {
  pattern?: string | undefined;
  filterExpr?: string | undefined;
  ackMode?: AckMode | undefined;
  backpressure?: Backpressure | undefined;
  maxInflight?: number | undefined;
  maxRedeliveries?: number | undefined;
  redeliverDelayMs?: number | undefined;
  metadata?: Record<string, unknown> | undefined;
  status?: GroupStatus | undefined;
}

function requireWord(field: string, text: string): void {
  if (text === "") throw invalid(field, "must not be empty");
  if (Buffer.byteLength(text) > groupNameBytesMax)
    throw invalid(field, `must be at most ${groupNameBytesMax} bytes`);
  if (!text.isWellFormed() || /[\s\p{Cc}]/u.test(text))
    throw invalid(field, "must not contain whitespace or control characters");
}

/** Throws an `invalid_argument` that names the field. */
export function keyOf(environmentId: string, given: GroupName, field = "name"): GroupKey {
  const namespace = given.namespace || defaultNamespace;
  requireWord("namespace", namespace);
  requireWord(field, given.name);
  return { environment_id: environmentId, namespace, name: given.name };
}

function numberOf(field: string, value: number | undefined, fallback: number, most: number): number {
  if (value === undefined || value === 0) return fallback;
  if (!Number.isInteger(value) || value < 1 || value > most)
    throw invalid(field, `must be from 1 to ${most}; 0 means the default, ${fallback}`);
  return value;
}

function metadataOf(metadata: Record<string, unknown> | undefined): string | null {
  if (metadata === undefined || Object.keys(metadata).length === 0) return null;
  const text = jsonText("metadata", metadata);
  if (Buffer.byteLength(text) > groupMetadataBytesMax)
    throw invalid("metadata", `must be at most ${groupMetadataBytesMax} bytes of JSON`);
  return text;
}

/** The settings, checked, with the log that their pattern reads. */
export function settingsOf(input: GroupInput): GroupSettings & Pick<GroupRow, "log"> {
  const pattern = parsePattern(input.pattern ?? "");
  if (isOfFrames(pattern))
    throw invalid("pattern", "must not be in system.*: a consumer group reads events or topics");
  readFilter(input.filterExpr, "filter_expr");
  return {
    log: logOf(pattern.namespace),
    pattern: pattern.text,
    filter_expr: input.filterExpr || null,
    ack_mode: input.ackMode ?? "auto",
    backpressure: input.backpressure ?? "buffer",
    max_inflight: numberOf("max_inflight", input.maxInflight, groupInflightDefault, groupInflightMax),
    max_redeliveries: numberOf(
      "max_redeliveries",
      input.maxRedeliveries,
      groupRedeliveriesDefault,
      groupRedeliveriesMax,
    ),
    redeliver_delay_ms: numberOf(
      "redeliver_delay_ms",
      input.redeliverDelayMs,
      groupDelayMsDefault,
      groupDelayMsMax,
    ),
    metadata: metadataOf(input.metadata),
    status: input.status ?? "active",
  };
}

/** The settings that an update changes. */
export type Changes = Partial<Record<keyof GroupInput, true>>;

const fieldOf: Record<string, keyof GroupInput> = {
  pattern: "pattern",
  filter_expr: "filterExpr",
  ack_mode: "ackMode",
  backpressure: "backpressure",
  max_inflight: "maxInflight",
  max_redeliveries: "maxRedeliveries",
  redeliver_delay_ms: "redeliverDelayMs",
  metadata: "metadata",
  status: "status",
};

/**
 * The settings that a field mask names; without paths, those that are not empty. Throws for a path that is no
 * setting.
 */
export function changesOf(paths: readonly string[] | undefined, input: GroupInput): Changes {
  const changes: Changes = {};
  if (paths && paths.length > 0) {
    for (const path of paths) {
      const field = Object.hasOwn(fieldOf, path) ? fieldOf[path] : undefined;
      if (!field)
        throw invalid(
          "update_mask",
          `"${path.slice(0, 80)}" cannot be changed (one of ${Object.keys(fieldOf).join(", ")})`,
        );
      changes[field] = true;
    }
    return changes;
  }
  for (const field of Object.values(fieldOf)) if (input[field]) changes[field] = true;
  return changes;
}

/** The group after the changes. A changed group is its owner's: `kept_until` no longer ends it. */
export function changed(group: GroupRow, input: GroupInput, changes: Changes, now: number): GroupRow {
  const before: GroupInput = {
    pattern: group.pattern,
    filterExpr: group.filter_expr ?? undefined,
    ackMode: group.ack_mode,
    backpressure: group.backpressure,
    maxInflight: group.max_inflight,
    maxRedeliveries: group.max_redeliveries,
    redeliverDelayMs: group.redeliver_delay_ms,
    metadata: group.metadata === null ? undefined : (JSON.parse(group.metadata) as Record<string, unknown>),
    status: group.status,
  };
  const wanted = Object.fromEntries(
    Object.values(fieldOf).map((field) => [field, (changes[field] ? input : before)[field]]),
  ) as GroupInput;
  const settings = settingsOf(wanted);
  // The group's position counts entries of its log: in the other log it would skip or repeat entries.
  if (settings.log !== group.log)
    throw new Fault(
      "failed_precondition",
      "pattern: a consumer group cannot change between events and topics",
      {
        field: "pattern",
      },
    );
  return { ...group, ...settings, version: group.version + 1, kept_until: null, updated_at: now };
}
