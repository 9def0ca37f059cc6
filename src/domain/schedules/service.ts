import { type Clock, type Instant, rfc3339 } from "../../kit/clock.ts";
import { scheduleSliceMax } from "../../kit/limits.ts";
import type { Log } from "../../kit/log.ts";
import type { Session, Store } from "../../store/store.ts";
import type { Events } from "../events/service.ts";
import type { DefinitionsCache } from "../functions/definition.ts";
import * as rows from "./rows.ts";
import {
  type CronFrame,
  type DueSlots,
  dueSlots,
  type MissedCause,
  type MissedSlots,
  planOf,
  scheduleChanges,
  withoutFired,
} from "./rules.ts";

export interface Schedules {
  /** The tick of loop `schedules.tick`, duty `cron`: takes up changed triggers, fires what is due. */
  tickOnce(write: Write): Promise<{ againInMs?: number }>;
}

/** As the leader of the duty. */
type Write = <T>(work: (session: Session) => Promise<T>) => Promise<T>;

export interface SchedulesDeps {
  store: Store;
  clock: Pick<Clock, "now">;
  log: Log;
  definitions: Pick<DefinitionsCache, "current">;
  events: Pick<Events, "emit" | "invoke">;
  /** Names this process: a slot that it should have fired itself was missed by a stall. */
  self: string;
  /** Called after the commit; a hint that may be lost. */
  onFrame: (frame: CronFrame) => void;
}

/** What could not be fired or taken up is tried again after this. */
const againMsMin = 250;
const wakeMsMin = 10;
/** A slot that is so late may have been fired by a leader that died over it; it led longer than this after its death. */
const takenOverMsMin = 500;

export function openSchedules(deps: SchedulesDeps): Schedules {
  const { store, clock, log, definitions, events, self, onFrame } = deps;
  /** Slots that could not be fired so far, by schedule. */
  const failing = new Map<string, Instant>();

  async function takeUpChanges(write: Write): Promise<void> {
    for (const environmentId of await rows.unscheduled(store, scheduleSliceMax)) {
      const known = await definitions.current(environmentId).catch(() => undefined);
      if (!known) continue;
      const now = clock.now();
      const frames = await write(async (session) => {
        const before = await rows.schedulesOf(session, environmentId);
        const changes = scheduleChanges(environmentId, before, known.functions.values(), { now, self });
        await rows.deleteSchedules(session, changes.gone);
        await rows.putSchedules(session, changes.put, now);
        await rows.setScheduled(session, environmentId, known.version);
        return changes.frames;
      });
      for (const frame of frames) onFrame(frame);
    }
  }

  async function fire(schedule: rows.Schedule, slot: Instant, now: Instant): Promise<void> {
    if (now - slot >= takenOverMsMin && (await rows.slotsOfBefore(store, schedule, [slot])).has(slot)) return;
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
  async function run(schedule: rows.DueSchedule, now: Instant): Promise<(rows.Moved & DueSlots) | undefined> {
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

  async function fireDue(write: Write): Promise<boolean> {
    const now = clock.now();
    const due = await rows.dueSchedules(store, now, scheduleSliceMax);
    const orphans = due.filter(({ definitionsVersion }) => definitionsVersion === null);
    if (orphans.length > 0) await write((session) => rows.deleteSchedules(session, orphans));
    // Whose function has changed is looked at once that is taken up.
    const ready = due.filter(
      (one) => one.definitionsVersion !== null && one.definitionsVersion === one.schedulesVersion,
    );
    const moved = (await Promise.all(ready.map((schedule) => run(schedule, now)))).filter(
      (one) => one !== undefined,
    );
    if (moved.length === 0) return due.length === 0;
    const plain = moved.filter(({ missed }) => missed === undefined);
    if (plain.length > 0) await write((session) => rows.moveSchedules(session, plain, { now, self }));
    for (const one of moved) {
      const { schedule } = one;
      const missed = one.missed && (await moveMissed(write, one, one.missed, now));
      const { environmentId, functionId } = schedule;
      if (missed) {
        const { slots: _, ...said } = missed;
        onFrame({ environmentId, functionId, at: now, leaf: "missed", ...said, cause: causeOf(schedule) });
      }
      failing.delete(nameOf(schedule));
    }
    return moved.length === due.length && due.length < scheduleSliceMax;
  }

  /** Each in a transaction of its own, since they may be many; answers what turned out to be missed. */
  async function moveMissed(
    write: Write,
    moved: rows.Moved,
    missed: MissedSlots,
    now: Instant,
  ): Promise<MissedSlots | undefined> {
    return write(async (session) => {
      const { schedule, nextAt } = moved;
      const left = withoutFired(missed, await rows.giveUpSlots(session, schedule, missed.slots, now));
      const firedCount = moved.firedCount + left.fired;
      const counted = { schedule, nextAt, firedCount, missedCount: left.missed?.count ?? 0 };
      const count = await rows.moveSchedules(session, [counted], { now, self });
      return count === 0 ? undefined : left.missed;
    });
  }

  return {
    async tickOnce(write) {
      await takeUpChanges(write);
      if (!(await fireDue(write))) return { againInMs: againMsMin };
      const next = await rows.nextSlotAt(store);
      return next === undefined ? {} : { againInMs: Math.max(wakeMsMin, next - clock.now()) };
    },
  };
}

const nameOf = ({ environmentId, functionId, place }: rows.Schedule) =>
  `${environmentId}\n${functionId}\n${place}`;
