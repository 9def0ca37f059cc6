import type { Instant } from "../../kit/clock.ts";
import type { Ids } from "../../kit/ids.ts";
import type { Definitions, FunctionRecord } from "../functions/definition.ts";
import type { NewRun } from "../runs/run.ts";
import { actorOf } from "./actor.ts";
import type { EventDraft } from "./rules.ts";

/** Functions that an event starts: every active one with a trigger that matches; else the one whose id is the event's name. */
export function startedBy(
  definitions: Definitions,
  event: { id: string; source: string; draft: EventDraft },
  now: Instant,
): FunctionRecord[] {
  const { draft } = event;
  const started = new Map<string, FunctionRecord>();
  for (const trigger of definitions.triggersOf(draft.name)) {
    const { id } = trigger.record.definition;
    if (started.has(id)) continue;
    const matches = trigger.matches({
      id: event.id,
      name: draft.name,
      data: draft.value,
      metadata: draft.metadataValue,
      version: draft.version,
      source: event.source,
      timestamp: now,
    });
    if (matches) started.set(id, trigger.record);
  }
  if (started.size > 0) return [...started.values()];
  // Browser clients invoke a function by emitting its id (contract.md 5.2).
  const named = definitions.functions.get(draft.name);
  return named?.status === "active" ? [named] : [];
}

export function newRun(
  record: FunctionRecord,
  event: { id: string; name: string; value: unknown },
  { ids, now }: { ids: Ids; now: Instant },
): NewRun {
  const { definition } = record;
  return {
    id: ids.next("run"),
    environmentId: record.environmentId,
    functionId: definition.id,
    functionVersion: record.version,
    eventId: event.id,
    eventName: event.name,
    mode: definition.mode,
    maxAttempts: definition.retry.maxAttempts,
    timeoutAt: definition.timeoutMs === undefined ? null : now + definition.timeoutMs,
    actorId: actorOf(definition.actorKey, event.value),
    lease: null,
  };
}
