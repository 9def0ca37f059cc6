import { type Clock, type Instant, rfc3339 } from "../../../kit/clock.ts";
import { Fault } from "../../../kit/fault.ts";
import { integrityRowsMax, overdueMs } from "../../../kit/limits.ts";
import { countTurns, roundRobin, type SharedWork, type Slice } from "../../../kit/round-robin.ts";
import { sql } from "../../../kit/sql.ts";
import { noTracer, type Tracer } from "../../../kit/trace.ts";
import type { LeaderWrite, Store } from "../../../store/store.ts";
import { violationsOf } from "../../record/integrity/rules.ts";
import type { IntegrityCheck } from "../../record/integrity/service.ts";
import { cronSource } from "../emit/rules.ts";
import type { Events } from "../emit/service.ts";
import { statusOf } from "../runs/rules.ts";
import type { ExecutionState, RunStatus } from "../runs/run.ts";
import * as rows from "./rows.ts";
import { type DueSlots, dueSlots, nameOf, planOf } from "./rules.ts";
import { openScheduleSync, recordMissed, type ScheduleSyncDeps, scheduleSliceMax } from "./sync.ts";

/** A schedule as callers see it. */
export interface ShownSchedule {
  schedule: rows.Schedule;
  /** The slots from its next one on; none while it rests. */
  coming: Instant[];
  /** Why the expression cannot be read. */
  error: string | undefined;
  /** The run of its function that the last slot started; undefined for none. */
  lastRun?: { id: string; status: RunStatus } | undefined;
}

export type Schedules = ReturnType<typeof openSchedules>;

export interface SchedulesDeps extends ScheduleSyncDeps {
  clock: Pick<Clock, "now" | "elapsed">;
  events: Pick<Events, "emit" | "invoke">;
  tracer?: Pick<Tracer, "start">;
}

/** A slot that could not be fired is tried again after this. */
const againMsMin = 250;
const wakeMsMin = 10;
/**
 * A leader that dies may have fired a slot without recording it. A slot this late is checked for that before
 * it is fired.
 */
const takenOverMsMin = 500;
/** Changed triggers are stored at least this often, also while more slots are due than can be fired. */
const roundMs = 500;

/** Slots that are shown of a schedule. */
const comingShown = 5;

function shownOf(schedule: rows.Schedule): ShownSchedule {
  const plan = planOf(schedule.expression);
  if ("error" in plan) return { schedule, coming: [], error: plan.error };
  const coming: Instant[] = [];
  let slot = schedule.nextAt ?? undefined;
  while (slot !== undefined && coming.length < comingShown) {
    coming.push(slot);
    slot = plan.next(slot);
  }
  return { schedule, coming, error: undefined };
}

const withoutSlots = (schedule: rows.DueSchedule) => ({
  ...{ schedule, nextAt: null, fires: undefined, missed: undefined, last: undefined },
  ...{ firedCount: 0, missedCount: 0 },
});

async function listOf(
  store: Store,
  environmentId: string,
  functionId: string | undefined,
): Promise<ShownSchedule[]> {
  const found = await (functionId === undefined
    ? rows.schedulesOf(store, environmentId)
    : rows.schedulesOfFunction(store, environmentId, functionId));
  const last = found.flatMap(({ lastEventId: eventId, functionId: of }) =>
    eventId === null ? [] : { eventId, functionId: of },
  );
  const nameOfRun = (eventId: string | null, of: string) => `${eventId}\n${of}`;
  const runs = new Map(
    (last.length === 0 ? [] : await rows.lastRunsOf(store, environmentId, last)).map((run) => [
      nameOfRun(run.event_id, run.function_id),
      { id: run.id, status: statusOf(run.status, run.state as ExecutionState | null).status },
    ]),
  );
  return found.map((schedule) => ({
    ...shownOf(schedule),
    lastRun: runs.get(nameOfRun(schedule.lastEventId, schedule.functionId)),
  }));
}

/** Each slot begins a trace. */
const openSlotTraces =
  ({ tracer = noTracer }: Pick<SchedulesDeps, "tracer">) =>
  async <Fired>(
    environmentId: string,
    fire: (traceparent: string | undefined) => Promise<Fired>,
  ): Promise<Fired> => {
    const span = tracer.start("schedule", "internal");
    span.set("svc.environment_id", environmentId);
    let failed: string | undefined = "failed";
    try {
      const fired = await fire(span.traceparent);
      failed = undefined;
      return fired;
    } finally {
      span.end(failed);
    }
  };

/** Its function was deleted since the schedules were read, and the schedule with it. */
const isGone = (error: unknown): boolean => error instanceof Fault && error.kind === "not_found";

export function openSchedules(deps: SchedulesDeps) {
  const { store, clock, log, events, self, onFrame } = deps;
  const inOwnTrace = openSlotTraces(deps);
  const syncChanged = openScheduleSync(deps);
  /** The slot that could not be fired, by the schedule's name. */
  const failing = new Map<string, Instant>();

  /** The event of the slot; null where another leader had fired it. */
  async function fire(schedule: rows.Schedule, slot: Instant, now: Instant): Promise<string | null> {
    if (now - slot >= takenOverMsMin && (await rows.slotsFiredBefore(store, schedule, [slot])).has(slot))
      return null;
    const { environmentId, functionId, expression, eventName } = schedule;
    const value = { scheduledAt: rfc3339(slot), expression };
    const payload = {
      value,
      data: JSON.stringify(value),
      metadata: null,
      idempotencyKey: rows.keyOfSlot(schedule, slot),
      ownKey: true as const,
    };
    return inOwnTrace(environmentId, async (traceparent) => {
      const origin = { environmentId, source: cronSource, runId: undefined, traceparent };
      if (eventName === "") return (await events.invoke({ functionId, ...payload }, origin)).eventId;
      const draft = { name: eventName, version: 1, metadataValue: null, ...payload };
      const [emitted] = await events.emit([draft], origin);
      return emitted!.eventId;
    });
  }

  /** Fires the schedule's slot; undefined when that failed and shall be tried again. */
  async function run(
    schedule: rows.DueSchedule,
    now: Instant,
  ): Promise<(rows.ScheduleMove & DueSlots) | undefined> {
    const plan = planOf(schedule.expression);
    if ("error" in plan) return withoutSlots(schedule);
    let last: rows.ScheduleMove["last"];
    const due = dueSlots(plan, schedule.nextAt, now);
    if (due.fires !== undefined) {
      try {
        last = { at: due.fires, eventId: await fire(schedule, due.fires, now) };
      } catch (error) {
        const { environmentId, functionId, expression } = schedule;
        if (isGone(error)) return undefined;
        log.warn("cron.fire_failed", { environmentId, functionId, expression, error });
        failing.set(nameOf(schedule), due.fires);
        return undefined;
      }
    }
    return {
      schedule,
      ...due,
      last,
      firedCount: due.fires === undefined ? 0 : 1,
      missedCount: due.missed?.count ?? 0,
    };
  }

  /** Fires the due schedules of a slice; answers how many were found, and those that are done. */
  async function fireSlice(write: LeaderWrite, slice: Slice) {
    const now = clock.now();
    const due = await rows.dueSchedules(store, now, slice);
    const orphans = due.filter(({ definitionsVersion }) => definitionsVersion === null);
    if (orphans.length > 0) await write((session) => rows.deleteSchedules(session, orphans));
    // A schedule whose function changed waits until the next tick has stored its triggers.
    const ready = due.filter(
      (one) => one.definitionsVersion !== null && one.definitionsVersion === one.schedulesVersion,
    );
    const moved = (await Promise.all(ready.map((schedule) => run(schedule, now)))).filter(
      (one) => one !== undefined,
    );
    const plain = moved.filter(({ missed }) => missed === undefined);
    if (plain.length > 0) await write((session) => rows.moveSchedules(session, plain, { now, self }));
    await recordMissed(
      write,
      moved.flatMap((one) => (one.missed ? { ...one, missed: one.missed } : [])),
      { now, self, onFrame, hasFailed: (schedule) => failing.has(nameOf(schedule)) },
    );
    for (const { schedule } of moved) failing.delete(nameOf(schedule));
    const done = [...orphans, ...moved.map(({ schedule }) => schedule)];
    return { found: due.length, done };
  }

  /** `some`: slots are left that could not be fired. `more`: the time was over before all were fired. */
  async function fireDue(write: LeaderWrite): Promise<"all" | "some" | "more"> {
    let isLeft = false;
    const work: SharedWork = {
      async oldest(limit) {
        const { found, done } = await fireSlice(write, { oldest: limit });
        if (done.length < found) isLeft = true;
        return { found, taken: done.length };
      },
      scopes: () => rows.environmentsDueNow(store, clock.now()),
      async claim(turns) {
        const { found, done } = await fireSlice(write, { turns });
        if (done.length < found) isLeft = true;
        return countTurns(turns, done);
      },
    };
    const isOver = await roundRobin([work], { clock, limit: scheduleSliceMax, msMax: roundMs });
    if (!isOver) return "more";
    return isLeft ? "some" : "all";
  }

  return {
    /** Of one function, or of all. */
    list: (environmentId: string, functionId?: string) => listOf(store, environmentId, functionId),

    /** The tick of loop `schedules.tick`, duty `cron`: stores changed triggers, then fires due slots. */
    async tickOnce(write: LeaderWrite): Promise<{ againInMs?: number }> {
      await syncChanged(write);
      const fired = await fireDue(write);
      if (fired !== "all") return { againInMs: fired === "some" ? againMsMin : 0 };
      const next = await rows.nextSlotAt(store);
      return next === undefined ? {} : { againInMs: Math.max(wakeMsMin, next - clock.now()) };
    },
  };
}

/** The ledger of each schedule adds up, and no slot passes unseen. */
export const scheduleChecks = (store: Store, clock: { now(): Instant }): IntegrityCheck[] => [
  {
    name: "cron.ledger",
    about: "Schedules whose slots are not all either fired or missed.",
    run: async (environmentId) =>
      violationsOf(
        await store.all<{
          id: string;
          at: Instant;
        }>(sql`SELECT function_id || ':' || place AS id, updated_at AS at,
            expected_count AS expected, fired_count AS fired, missed_count AS missed
          FROM (SELECT * FROM schedules WHERE environment_id = ${environmentId} LIMIT ${integrityRowsMax}) s
          WHERE expected_count <> fired_count + missed_count`),
      ),
  },
  {
    name: "cron.overdue",
    about: "Schedules whose next slot passed without anyone firing or missing it.",
    run: async (environmentId) => {
      const late = clock.now() - overdueMs;
      return violationsOf(
        await store.all<{
          id: string;
          at: Instant;
        }>(sql`SELECT function_id || ':' || place AS id, next_at AS at
          FROM (SELECT * FROM schedules WHERE environment_id = ${environmentId} LIMIT ${integrityRowsMax}) s
          WHERE next_at <= ${late}`),
      );
    },
  },
];
