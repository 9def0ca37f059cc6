import type { Instant } from "../../../kit/clock.ts";
import { valueAt } from "../../../kit/data-path.ts";
import { Fault, missing } from "../../../kit/fault.ts";
import type { Ids } from "../../../kit/ids.ts";
import { attributesOfData, type DeclaredAttribute } from "../attributes/rules.ts";
import type { NewJoin } from "../batches/join.ts";
import type { NewArm } from "../debounce/arm.ts";
import { keyOf, noMaxWaitMs } from "../debounce/rules.ts";
import type { Definitions, FunctionDefinition, FunctionRecord } from "../functions/definition.ts";
import { batchOf, gateOf, headStartOf, laneOf } from "../functions/rules.ts";
import type { FlowEvent, FlowNotice } from "../functions/start-options.ts";
import type { NewCancel, NewRun, RunParent } from "../runs/run.ts";
import { readMatch, storedMatch } from "../waits/rules.ts";
import type { EventDraft } from "./rules.ts";
import type { Judged } from "./trigger-evaluation.ts";

/** Of a value at `actorKey`; the rest of a longer one is not looked at. */
const actorIdCharactersMax = 200;

/**
 * The actor of a run: the value at the function's `actorKey` in the event's data. Null for no value, and for
 * one that is not text, a number or a boolean.
 */
export function actorOf(actorKey: string | undefined, data: unknown): string | null {
  if (actorKey === undefined) return null;
  const value = valueAt(data, actorKey);
  if (typeof value !== "string" && typeof value !== "number" && typeof value !== "boolean") return null;
  const text = String(value).slice(0, actorIdCharactersMax);
  // Postgres keeps no NUL in text, and a hint is not worth an event.
  return text === "" || text.includes("\0") ? null : text;
}

/** How many invokes may lead to a run, one started by the other. */
const invokeDepthMax = 32;

/**
 * Functions that an event starts, once its triggers were evaluated: every active one with a matching trigger.
 * When none names exactly this event, the function whose id is the event's name is started too, and first: a
 * wildcard trigger must not take a call away from it.
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
  /** By a trigger of its own the function of this name takes some of these events, and not this one. */
  let saysNo = false;
  for (const trigger of triggers) {
    const { expression, isWide, record } = trigger;
    if (expression !== undefined && !verdicts?.get(expression)) {
      saysNo ||= !isWide && record.definition.id === draft.name;
      continue;
    }
    (isWide ? wide : started).set(record.definition.id, record);
  }
  // Browser clients invoke a function by emitting its id.
  const named = started.size === 0 && !saysNo ? definitions.functions.get(draft.name) : undefined;
  if (named?.status === "active") {
    if (draft.startRefused) throw draft.startRefused;
    started.set(draft.name, named);
  }
  if (wide.size === 0) return [...started.values()];
  return [...new Map([...started, ...wide]).values()];
}

/** A function that is invoked, and the invoking step when a run does it. */
export interface InvokeTarget {
  functionId: string;
  parent?: RunParent;
  /** The run may invoke functions with event triggers, too. */
  anyFunction?: boolean;
}

/**
 * The function that an invoke starts. The run of a paused function waits until it is active again. A run
 * invokes a function with event triggers only by asking for it: other clients rely on the refusal.
 */
export function invokedBy(
  definitions: Definitions,
  { functionId, parent, anyFunction = false }: InvokeTarget,
): FunctionRecord {
  const record = definitions.functions.get(functionId);
  if (!record) throw missing("function", functionId);
  if (record.status === "archived")
    throw new Fault("failed_precondition", `function ${functionId} is archived and takes no runs`);
  if (!parent) return record;
  if (!anyFunction && record.definition.triggers.some(({ event }) => event !== undefined))
    throw new Fault(
      "failed_precondition",
      `function ${functionId} has event triggers and cannot be invoked by a run`,
    );
  if (parent.depth >= invokeDepthMax)
    throw new Fault(
      "failed_precondition",
      `invoke depth limit exceeded: more than ${invokeDepthMax} invokes lead to function ${functionId}`,
    );
  return record;
}

/**
 * Refuses a debounced function, and one of batches, to a caller that waits for the runs' ends: its run does
 * not begin with the event.
 */
export function requireUndelayed(started: readonly FunctionRecord[]): void {
  const delayed = started.find(({ definition }) => definition.debounce || isBatched(definition));
  if (delayed)
    throw new Fault(
      "failed_precondition",
      `function ${delayed.definition.id} is ${delayed.definition.debounce ? "debounced" : "started by batches"}: its run does not begin with the event`,
    );
}

/** An event that waits for no other starts its run at once. */
const isBatched = ({ batch }: FunctionDefinition): boolean => batch !== undefined && batch.size > 1;

/** Undefined for a function whose run begins with the event. */
export function newJoin(
  { environmentId, definition, version }: FunctionRecord,
  event: FlowEvent,
  { data, metadata }: Pick<EventDraft, "data" | "metadata">,
): NewJoin | undefined {
  if (!isBatched(definition)) return undefined;
  const { size, timeoutMs, key } = definition.batch!;
  const { id: batchId, notice } = batchOf(environmentId, definition.id, key, event);
  return {
    ...{ environmentId, functionId: definition.id, functionVersion: version, batchId, eventId: event.id },
    bytes: Buffer.byteLength(data) + (metadata === null ? 0 : Buffer.byteLength(metadata)),
    ...{ size, timeoutMs, notice },
  };
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
      ...keyOf(debounce.key, event.value),
      eventId: event.id,
      periodMs: debounce.periodMs,
      maxWaitMs: debounce.maxWaitMs ?? noMaxWaitMs,
    }
  );
}

export function newRun(
  record: FunctionRecord,
  event: FlowEvent,
  { ids, now }: { ids: Ids; now: Instant },
): NewRun {
  const { definition } = record;
  const run: NewRun = {
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
  if (definition.startWithinMs !== undefined) run.startBy = now + definition.startWithinMs;
  if (definition.priority !== undefined) addHeadStart(run, definition.priority, event);
  if (definition.attributes !== undefined) addAttributes(run, definition.attributes, event);
  return run;
}

/** A priority that does not apply to the event is none, and the run says why. */
function addHeadStart(run: NewRun, priority: number | string, event: FlowEvent): void {
  const found = headStartOf(priority, event);
  run.headStartMs = "error" in found ? 0 : found.headStartMs;
  if ("error" in found) note(run, "priority", found.error);
}

/** A value of another type is left out, and the run says why. */
function addAttributes(run: NewRun, declared: readonly DeclaredAttribute[], { value }: FlowEvent): void {
  const { found, failed } = attributesOfData(declared, value);
  if (found.length > 0) run.attributes = found;
  for (const message of failed) note(run, "attributes", message);
}

/** An invoke passes no gate: its caller waits for one run. */
export function addGate(run: NewRun, { environmentId, definition }: FunctionRecord, event: FlowEvent): void {
  const gate = gateOf(environmentId, definition, event);
  if (gate === undefined) return;
  if ("error" in gate) note(run, "idempotency", gate.error);
  else run.gate = gate;
}

function note(run: NewRun, option: FlowNotice["option"], message: string): void {
  run.notices = [...(run.notices ?? []), { option, outcome: "failed", message }];
}

/** Leaves out a `cancelOn` that compares with a field this event does not have: it could never match. */
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
