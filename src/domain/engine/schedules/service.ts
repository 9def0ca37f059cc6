import { type Clock, type Instant, rfc3339 } from "../../../kit/clock.ts";
import { scheduleSliceMax } from "../../../kit/limits.ts";
import { countTurns, roundRobin, type SharedWork, type Slice } from "../../../kit/round-robin.ts";
import type { Events } from "../../log/events/service.ts";
import * as rows from "./rows.ts";
import {
  type DueSlots,
  dueSlots,
  type MissedCause,
  type MissedSlots,
  planOf,
  withoutFired,
} from "./rules.ts";
import { openScheduleSync, type ScheduleSyncDeps, type ScheduleWrite } from "./sync.ts";

export type { ScheduleWrite as Write } from "./sync.ts";

export interface Schedules {
  /** The tick of loop `schedules.tick`, duty `cron`: takes up changed triggers, fires what is due. */
  tickOnce(write: ScheduleWrite): Promise<{ againInMs?: number }>;
}

export interface SchedulesDeps extends ScheduleSyncDeps {
  clock: Pick<Clock, "now" | "elapsed">;
  events: Pick<Events, "emit" | "invoke">;
}

/** What could not be fired or taken up is tried again after this. */
const againMsMin = 250;
const wakeMsMin = 10;
/** A slot that is so late may have been fired by a leader that died over it; it led longer than this after its death. */
const takenOverMsMin = 500;
/** Changed triggers are taken up this often while more is due than can be fired. */
const roundMs = 500;
/** Missed slots that one transaction notes. */
const missedAtOnce = 1_000;

type MissedMove = rows.ScheduleMove & { missed: MissedSlots };

export function openSchedules(deps: SchedulesDeps): Schedules {
  const { store, clock, log, events, self, onFrame } = deps;
  const syncChanged = openScheduleSync(deps);
  /** Slots that could not be fired so far, by schedule. */
  const failing = new Map<string, Instant>();

  async function fire(schedule: rows.Schedule, slot: Instant, now: Instant): Promise<void> {
    if (now - slot >= takenOverMsMin && (await rows.slotsFiredBefore(store, schedule, [slot])).has(slot))
      return;
    const { environmentId, functionId, expression, eventName } = schedule;
    const origin = { environmentId, source: "cron", runId: undefined };
    const value = { scheduledAt: rfc3339(slot), expression };
    const payload = {
      value,
      data: JSON.stringify(value),
      metadata: null,
      idempotencyKey: rows.keyOfSlot(schedule, slot),
      ownKey: true as const,
    };
    await (eventName === ""
      ? events.invoke({ functionId, ...payload }, origin)
      : events.emit([{ name: eventName, version: 1, metadataValue: null, ...payload }], origin));
  }

  /** Undefined while its slot can still be fired. */
  async function run(
    schedule: rows.DueSchedule,
    now: Instant,
  ): Promise<(rows.ScheduleMove & DueSlots) | undefined> {
    const plan = planOf(schedule.expression);
    if ("error" in plan)
      return { schedule, nextAt: null, fires: undefined, missed: undefined, firedCount: 0, missedCount: 0 };
    const due = dueSlots(plan, schedule.nextAt, now);
    if (due.fires !== undefined) {
      try {
        await fire(schedule, due.fires, now);
      } catch (error) {
        const { environmentId, functionId, expression } = schedule;
        log.warn("cron.fire_failed", { environmentId, functionId, expression, error });
        failing.set(nameOf(schedule), due.fires);
        return undefined;
      }
    }
    return {
      schedule,
      ...due,
      firedCount: due.fires === undefined ? 0 : 1,
      missedCount: due.missed?.count ?? 0,
    };
  }

  function causeOf(schedule: rows.DueSchedule): MissedCause {
    if (failing.has(nameOf(schedule))) return "fire_failed";
    return schedule.movedBy === self ? "stall" : "downtime";
  }

  /** Fires what is due of a slice; answers what was found and what of it was moved on. */
  async function fireSlice(write: ScheduleWrite, slice: Slice) {
    const now = clock.now();
    const due = await rows.dueSchedules(store, now, slice);
    const orphans = due.filter(({ definitionsVersion }) => definitionsVersion === null);
    if (orphans.length > 0) await write((session) => rows.deleteSchedules(session, orphans));
    // Whose function has changed is looked at once that is taken up.
    const ready = due.filter(
      (one) => one.definitionsVersion !== null && one.definitionsVersion === one.schedulesVersion,
    );
    const moved = (await Promise.all(ready.map((schedule) => run(schedule, now)))).filter(
      (one) => one !== undefined,
    );
    const plain = moved.filter(({ missed }) => missed === undefined);
    if (plain.length > 0) await write((session) => rows.moveSchedules(session, plain, { now, self }));
    await moveMissed(
      write,
      moved.flatMap((one) => (one.missed ? { ...one, missed: one.missed } : [])),
      now,
    );
    for (const { schedule } of moved) failing.delete(nameOf(schedule));
    const done = [...orphans, ...moved.map(({ schedule }) => schedule)];
    return { found: due.length, done };
  }

  /** So many slots at a time as one transaction takes well. */
  async function moveMissed(write: ScheduleWrite, list: readonly MissedMove[], now: Instant): Promise<void> {
    const sorted = list.toSorted((a, b) => (nameOf(a.schedule) < nameOf(b.schedule) ? -1 : 1));
    while (sorted.length > 0) {
      const some: MissedMove[] = [];
      for (let slots = 0; sorted.length > 0 && slots < missedAtOnce; slots += some.at(-1)!.missed.count)
        some.push(sorted.shift()!);
      const missedSchedules = await write(async (session) => {
        const left: { schedule: rows.DueSchedule; missed: MissedSlots }[] = [];
        for (const { schedule, nextAt, firedCount, missed } of some) {
          const unfired = await rows.giveUpSlots(session, schedule, missed.slots, now);
          const { missed: over, fired } = withoutFired(missed, unfired);
          const counts = { firedCount: firedCount + fired, missedCount: over?.count ?? 0 };
          const count = await rows.moveSchedules(session, [{ schedule, nextAt, ...counts }], { now, self });
          if (count > 0 && over) left.push({ schedule, missed: over });
        }
        return left;
      });
      for (const { schedule, missed } of missedSchedules) {
        const { environmentId, functionId } = schedule;
        const { slots: _, ...window } = missed;
        onFrame({ environmentId, functionId, at: now, leaf: "missed", ...window, cause: causeOf(schedule) });
      }
    }
  }

  /** All that is due; or some of it could not be fired; or there was more than its time allowed. */
  async function fireDue(write: ScheduleWrite): Promise<"all" | "some" | "more"> {
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
    async tickOnce(write) {
      await syncChanged(write);
      const fired = await fireDue(write);
      if (fired !== "all") return { againInMs: fired === "some" ? againMsMin : 0 };
      const next = await rows.nextSlotAt(store);
      return next === undefined ? {} : { againInMs: Math.max(wakeMsMin, next - clock.now()) };
    },
  };
}

const nameOf = ({ environmentId, functionId, place }: rows.Schedule) =>
  `${environmentId}\n${functionId}\n${place}`;
