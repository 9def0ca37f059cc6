import type { Instant } from "../../../kit/clock.ts";
import { Fault, missing } from "../../../kit/fault.ts";
import type { Ids } from "../../../kit/ids.ts";
import { invokeDepthMax } from "../../../kit/limits.ts";
import type { NewArm } from "../../engine/debounce/arm.ts";
import { debounceKey, noMaxWaitMs } from "../../engine/debounce/rules.ts";
import type { Definitions, FunctionDefinition, FunctionRecord } from "../../engine/functions/definition.ts";
import { laneOf } from "../../engine/functions/rules.ts";
import type { NewCancel, NewRun, RunParent } from "../../engine/runs/run.ts";
import { readMatch, storedMatch } from "../../engine/waits/rules.ts";
import { actorOf } from "./actor.ts";
import type { EventDraft } from "./rules.ts";
import type { Judged } from "./trigger-evaluation.ts";

/**
 * Functions that an event starts, once its triggers were asked: every active one with a trigger that matches. Where none is for
 * exactly this name, also the one whose id it is, and that first: who listens to many names takes no call away.
 */
export function startedBy(
  definitions: Definitions,
  draft: EventDraft,
  { verdicts }: Judged,
): FunctionRecord[] {
  const triggers = definitions.triggersOf(draft.name);
  if (triggers.length === 0 && !definitions.functions.has(draft.name)) return [];
  const started = new Map<string, FunctionRecord>();
  const wide = new Map<string, FunctionRecord>();
  for (const trigger of triggers) {
    const { expression, isWide, record } = trigger;
    if (expression !== undefined && !verdicts?.get(expression)) continue;
    (isWide ? wide : started).set(record.definition.id, record);
  }
  // Browser clients invoke a function by emitting its id (proto/README.md 'Starting by name').
  const named = started.size === 0 ? definitions.functions.get(draft.name) : undefined;
  if (named?.status === "active") {
    if (draft.startRefused) throw draft.startRefused;
    started.set(draft.name, named);
  }
  if (wide.size === 0) return [...started.values()];
  return [...new Map([...started, ...wide]).values()];
}

/** A function that is started directly, and the step that asks for it when a run does. */
export interface InvokeTarget {
  functionId: string;
  parent?: RunParent;
}

/**
 * The function to start: a paused one too, its run waits until it is active again. Whoever holds the right may invoke any
 * function; from inside a run only those that no event starts may be, or invokes and events could feed each other
 * (proto/README.md 'Steps').
 */
export function invokedBy(definitions: Definitions, { functionId, parent }: InvokeTarget): FunctionRecord {
  const record = definitions.functions.get(functionId);
  if (!record) throw missing("function", functionId);
  if (record.status === "archived")
    throw new Fault("failed_precondition", `function ${functionId} is archived and takes no runs`);
  if (!parent) return record;
  if (record.definition.triggers.some(({ event }) => event !== undefined))
    throw new Fault(
      "failed_precondition",
      `function ${functionId} has event triggers and cannot be invoked by a run`,
    );
  if (parent.depth >= invokeDepthMax)
    throw new Fault(
      "failed_precondition",
      `more than ${invokeDepthMax} invokes lead to function ${functionId}`,
    );
  return record;
}

/**
 * A caller that waits for the runs' ends cannot wait for a debounced start (proto/README.md 'Flow control').
 */
export function requireUndelayed(started: readonly FunctionRecord[]): void {
  const debounced = started.find(({ definition }) => definition.debounce !== undefined);
  if (debounced)
    throw new Fault(
      "failed_precondition",
      `function ${debounced.definition.id} is debounced: its run does not begin with the event`,
    );
}

/** Undefined for a function whose run begins with the event. */
export function newArm(
  { environmentId, definition, version }: FunctionRecord,
  event: { id: string; value: unknown },
): NewArm | undefined {
  const { debounce } = definition;
  return (
    debounce && {
      environmentId,
      functionId: definition.id,
      functionVersion: version,
      key: debounceKey(debounce.key, event.value),
      eventId: event.id,
      periodMs: debounce.periodMs,
      maxWaitMs: debounce.maxWaitMs ?? noMaxWaitMs,
    }
  );
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
    laneId: laneOf(record, event.value),
    lease: null,
    ...(definition.cancelOn.length > 0 && { cancels: cancelsOf(definition, event.value) }),
  };
}

/** A spec that compares with something this event does not have can never hold, and is left out. */
function cancelsOf({ cancelOn }: FunctionDefinition, value: unknown): NewCancel[] {
  return cancelOn.flatMap(({ event, match }) => {
    try {
      const stored = storedMatch(readMatch(match), value);
      return stored ? { eventName: event, match: stored } : [];
    } catch {
      // Registered before expressions were checked.
      return [];
    }
  });
}
