import { inCamelCase } from "../../../kit/cases.ts";
import type { CelBudget } from "../../../kit/cel/cel.ts";
import { sql } from "../../../kit/sql.ts";
import type { SeenEvent } from "../../../kit/stored-event.ts";
import type { Session, Store } from "../../../store/store.ts";
import type { RowOf } from "../../../store/tables/index.ts";
import type { EventSchemas } from "../../log/schemas/service.ts";
import type { DeclaredAttribute } from "../attributes/rules.ts";
import type { FlowOptions } from "./start-options.ts";

/** A function as registered, in one form whatever spelling it came in. Durations are milliseconds. */
export interface FunctionDefinition extends FlowOptions {
  id: string;
  slug: string;
  name: string;
  description: string;
  triggers: readonly TriggerDefinition[];
  retry: RetryPolicy;
  /** Whole run, from creation of the run; absent = no limit. */
  timeoutMs?: number;
  debounce?: { periodMs: number; key?: string; maxWaitMs?: number };
  /** Whether workers pull its runs, or the server calls `endpointUrl` for each. */
  mode: "pull" | "push";
  endpointUrl?: string;
  actorKey?: string;
  recording: boolean;
  recordingProfile?: string;
  recordingRetention?: string;
  secrets: readonly string[];
  cancelOn: readonly { event: string; match: string }[];
  metadata?: Record<string, unknown>;
  /** Ends of runs that a worker is asked to undo first; its workers understand compensating jobs. */
  compensateOn?: readonly CompensateOn[];
  /** A worker is asked to handle each failure that ends a run. */
  onFailure?: true;
  /** A run whose handler did not come its way again fails, by its worker. */
  nondeterminism?: "fail";
  /** What its runs are found by, from the data of their events; absent for nothing. */
  attributes?: readonly DeclaredAttribute[];
}

export type CompensateOn = "failure" | "cancel";

export interface TriggerDefinition {
  /** An event's name, or a pattern: `*` matches one segment, a last `>` one or more. */
  event?: string;
  /** CEL over `event` and `data`; true starts a run. */
  expression?: string;
  cron?: string;
}

export interface RetryPolicy {
  /** Attempts in all, the first one included. */
  maxAttempts: number;
  initialDelayMs: number;
  backoffFactor: number;
  maxDelayMs: number;
}

export type FunctionStatus = "active" | "paused" | "archived";

export interface FunctionRecord {
  environmentId: string;
  definition: FunctionDefinition;
  status: FunctionStatus;
  /** Grows with every changed definition, from 1. */
  version: number;
  createdAt: number;
  updatedAt: number;
  /** What is stored of it cannot be read: the definition has its names alone, and nothing starts it. */
  isUnread?: true;
}

/** Published after the commit of a change: topic `system.function.{id}.{change}`. */
export interface FunctionFrame {
  change: "registered" | "updated" | "deleted";
  /** The function after the change; before it when deleted. */
  record: FunctionRecord;
  at: number;
}

export interface Trigger {
  readonly record: FunctionRecord;
  /** Undefined: every event of the name. */
  readonly expression: string | undefined;
  /** Of the options of its function that are computed for each event that starts it. */
  readonly flowExpressions: readonly string[];
  /** Of several names. */
  readonly isWide: boolean;
  /**
   * Whether the expression holds; a failing expression, or one that is more than the budget has left, does
   * not.
   */
  matches(event: SeenEvent, budget?: CelBudget): boolean;
}

/** All functions of an environment, and the schemas of its events, as of one `heads.definitions_version`. */
export interface Definitions {
  readonly version: number;
  readonly functions: ReadonlyMap<string, FunctionRecord>;
  /** Those that cannot be read: they hold up no other, and are not among `functions`. */
  readonly unread?: readonly FunctionRecord[];
  /**
   * Triggers of active functions for this event name: those for exactly this one, then those with a pattern
   * that it matches.
   */
  triggersOf(eventName: string): readonly Trigger[];
  /** Whether the environment has quotas. */
  readonly isMetered: boolean;
  /** Undefined when no event has to keep one. */
  readonly schemas: EventSchemas | undefined;
}

export interface DefinitionsCache {
  /**
   * From memory when known; the flush that uses them checks the version. `not_found` when the environment is
   * gone.
   */
  of(environmentId: string): Promise<Definitions>;
  /** The same without waiting, when they are in memory. */
  known(environmentId: string): Definitions | undefined;
  /**
   * The same, once the store has said that nothing newer is known: for an answer that must not rest on old
   * ones.
   */
  current(environmentId: string): Promise<Definitions>;
  /** From the store; concurrent calls share one read. */
  reload(environmentId: string): Promise<Definitions>;
  forget(environmentId: string): void;
}

export type ChangeType = "update" | "status_change" | "rollback" | "delete";

/**
 * A function as it stood after one change; the entries of one are the stream `svc:fn:{id}`, and never change.
 */
export type FunctionChange = ReturnType<typeof toChange>;

const names =
  "event_id, entity_version, function_id, snapshot, change_type, change_reason, actor_id, recorded_at";
const columns = sql.raw(names);

interface FunctionHistoryRow extends RowOf<"function_history", typeof names> {
  /** 1, 2, 3, … for each function, also when it was deleted and registered again. */
  entity_version: number;
  change_type: ChangeType;
}

const toChange = (row: FunctionHistoryRow) => ({
  ...inCamelCase(row),
  snapshot: JSON.parse(row.snapshot) as FunctionRecord,
  changeReason: row.change_reason ?? "",
});

/** The caller holds the function's row, or is the first to register it. */
export async function appendChange(
  session: Session,
  change: Omit<FunctionChange, "entityVersion" | "functionId">,
): Promise<void> {
  const { snapshot } = change;
  const { environmentId, definition } = snapshot;
  await session.run(sql`INSERT INTO function_history
      (environment_id, function_id, entity_version, event_id, change_type, snapshot, change_reason, actor_id, recorded_at)
    SELECT ${environmentId}, ${definition.id}, COALESCE(max(entity_version), 0) + 1, ${change.eventId},
      ${change.changeType}, ${JSON.stringify(snapshot)}, ${change.changeReason || null}, ${change.actorId},
      ${sql.bigint(change.recordedAt)}
    FROM function_history WHERE environment_id = ${environmentId} AND function_id = ${definition.id}`);
}

/** Newest first, from below `before` when it is given. */
export async function changesOf(
  store: Pick<Store, "all">,
  environmentId: string,
  functionId: string,
  page: { before: number | undefined; limit: number },
): Promise<FunctionChange[]> {
  const below = page.before === undefined ? sql.empty : sql`AND entity_version < ${page.before}`;
  const rows = await store.all<FunctionHistoryRow>(sql`SELECT ${columns} FROM function_history
    WHERE environment_id = ${environmentId} AND function_id = ${functionId} ${below}
    ORDER BY entity_version DESC LIMIT ${page.limit}`);
  return rows.map(toChange);
}

export async function changeAt(
  store: Pick<Store, "one">,
  environmentId: string,
  functionId: string,
  entityVersion: number,
): Promise<FunctionChange | undefined> {
  const row = await store.one<FunctionHistoryRow>(sql`SELECT ${columns} FROM function_history
    WHERE environment_id = ${environmentId} AND function_id = ${functionId} AND entity_version = ${entityVersion}`);
  return row && toChange(row);
}
