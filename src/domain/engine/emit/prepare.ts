import type { Starter } from "../../../kit/caller.ts";
import type { Instant } from "../../../kit/clock.ts";
import type { Ids } from "../../../kit/ids.ts";
import { withTraceparent } from "../../../kit/trace.ts";
import type { NewJoin } from "../batches/join.ts";
import type { NewArm } from "../debounce/arm.ts";
import type { Dispatcher } from "../dispatch/dispatcher.ts";
import type { Reservation } from "../dispatch/reservations.ts";
import type { Definitions, FunctionRecord } from "../functions/definition.ts";
import { laneLimitOf } from "../functions/rules.ts";
import type { NewRun } from "../runs/run.ts";
import { keyedOf, type PreparedEvent } from "./answers.ts";
import {
  addGate,
  type InvokeTarget,
  invokedBy,
  newArm,
  newJoin,
  newRun,
  requireUndelayed,
  startedBy,
} from "./new-runs.ts";
import { cronSource, type EntityDraft, type EventDraft } from "./rules.ts";
import type { EntityPlace } from "./stream-flush.ts";
import type { Judgeable, Judged } from "./trigger-evaluation.ts";

export interface EmitOrigin {
  environmentId: string;
  /** `api`, `webhook`, `cron`, … */
  source: string;
  /**
   * The run whose handler emits, as the caller says; left out when there is no such run in the environment.
   */
  runId: string | undefined;
  /** The function that this run runs. */
  emitter?: string | undefined;
  /** Where its trace stands. */
  traceparent?: string | undefined;
  /** Who sends, where the event is emitted later. */
  sender?: Starter;
  /** It was accepted before: a schema that came since marks it and does not refuse it. */
  isAccepted?: true;
}

/** The events of one call: all or none of them are written. */
export interface EmitUnit extends Judgeable {
  origin: EmitOrigin;
  /** The one function that the one draft starts, whatever triggers there are. */
  target: InvokeTarget | undefined;
  /** None of the functions it starts may be debounced. */
  undelayed: boolean;
}

/** An event of a flush, with the workers reserved for its runs, by the run's id. */
export interface ReservedEvent extends PreparedEvent {
  /** The function whose run emitted it. */
  emitter: string | undefined;
  reservations: Map<string, Reservation>;
}

export interface PrepareDeps {
  ids: Ids;
  dispatcher: Pick<Dispatcher, "reserve">;
}

/**
 * A unit's events with the runs and debounced starts they lead to. Throws the fault that refuses the unit,
 * and holds no worker for it then.
 */
export function prepareUnit(
  unit: EmitUnit,
  known: Definitions,
  { ids, dispatcher }: PrepareDeps,
  now: Instant,
): ReservedEvent[] {
  const { drafts, judged, target, undelayed } = unit;
  const invoked = target && [invokedBy(known, target)];
  const events: ReservedEvent[] = [];
  try {
    for (const [at, draft] of drafts.entries()) {
      const { id, refused, schema, values } = judged[at]!;
      if (refused) throw refused;
      const started = invoked ?? startedBy(known, draft, judged[at]!);
      if (undelayed) requireUndelayed(started);
      const event = eventOf(draft, { id, schema }, unit);
      events.push(event);
      for (const record of started) {
        if (!target && startsLater(record, draft, event, values)) continue;
        const run = startRun(record, draft, event, { ids, dispatcher, now, unit, values });
        event.runs.push(run);
      }
    }
    return events;
  } catch (error) {
    dropReservations(events);
    throw error;
  }
}

/** Whether the event's run begins after it: once others cease to come, or with others. */
function startsLater(
  record: FunctionRecord,
  draft: EventDraft,
  event: ReservedEvent & { arms: NewArm[]; joins: NewJoin[] | undefined },
  values: Judged["values"],
): boolean {
  const { debounce, batch } = record.definition;
  if (debounce === undefined && batch === undefined) return false;
  const { name, value } = draft;
  const seen = { id: event.id, name, value, values };
  const arm = newArm(record, seen);
  if (arm) event.arms.push(arm);
  const join = newJoin(record, seen, draft);
  if (join) event.joins = [...(event.joins ?? []), join];
  return arm !== undefined || join !== undefined;
}

interface StartDeps extends PrepareDeps, Pick<Judged, "values"> {
  now: Instant;
  unit: EmitUnit;
}

/**
 * A run that begins at once if a worker is waiting for it: the place at that worker is reserved until the
 * commit.
 */
function startRun(
  record: FunctionRecord,
  { name, value }: EventDraft,
  { id, reservations }: ReservedEvent,
  { ids, dispatcher, now, unit: { target, origin }, values }: StartDeps,
): NewRun {
  const event = { id, name, value, values };
  const run = newRun(record, event, { ids, now });
  if (target?.parent) run.parent = target.parent;
  // Nobody waits for the run of a slot, with an event's name or without.
  if (!target || origin.source === cronSource) addGate(run, record, event);
  // Only a claim knows what a throttle allows and pins the run, only the flush what a gate lets through.
  const { throttle, pin } = record.definition;
  const mayBegin = record.status === "active" && !throttle && !pin && run.gate === undefined;
  const reservation = mayBegin ? dispatcher.reserve(run) : undefined;
  if (!reservation) return run;
  reservations.set(run.id, reservation);
  const laneLimit = laneLimitOf(record.definition);
  return { ...run, lease: { ...reservation.lease, ...(laneLimit !== undefined && { laneLimit }) } };
}

function eventOf(
  draft: EventDraft,
  { id, schema }: Pick<Judged, "id" | "schema">,
  { origin, target }: EmitUnit,
) {
  const keyed = keyedOf(draft, target);
  // Written field by field: spreading an object costs more than everything else here.
  return {
    id,
    environmentId: origin.environmentId,
    name: draft.name,
    version: draft.version,
    data: draft.data,
    metadata: withTraceparent(draft.metadata, origin.traceparent),
    source: origin.source,
    idempotencyKey: keyed.idempotencyKey,
    key: keyed.key,
    use: keyed.use,
    at: keyed.at,
    ownKey: draft.ownKey,
    isAccepted: draft.isAccepted,
    invokes: target?.functionId ?? null,
    entity: draft.entity ? placeOf(draft.entity) : null,
    arrival: draft.arrival,
    isOrdered: draft.entity !== undefined,
    schema: schema ?? null,
    runId: origin.runId ?? null,
    emitter: origin.emitter,
    runs: [] as NewRun[],
    arms: [] as NewArm[],
    joins: undefined as NewJoin[] | undefined,
    reservations: new Map<string, Reservation>(),
  };
}

const placeOf = ({ id, type, expected }: EntityDraft): EntityPlace => ({ id, type, expected, version: 0 });

export function dropReservations(events: readonly ReservedEvent[]): void {
  for (const { reservations } of events) {
    for (const reservation of reservations.values()) reservation.drop();
    reservations.clear();
  }
}

/** Drops what was reserved for repeats and refused units: they get no runs. */
export function dropUnwritten(
  units: readonly (readonly ReservedEvent[])[],
  written: readonly ReservedEvent[],
): void {
  if (units.reduce((sum, { length }) => sum + length, 0) === written.length) return;
  const going = new Set(written);
  dropReservations(units.flat().filter((event) => !going.has(event)));
}
