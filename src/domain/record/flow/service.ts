import type { Instant } from "../../../kit/clock.ts";
import { invalid } from "../../../kit/fault.ts";
import { isRunId } from "../../../kit/ids.ts";
import { purgeSliceMax } from "../../../kit/limits.ts";
import type { Basics, Store } from "../../../store/store.ts";
import { type EdgeKind, type FlowCounted, FlowCounts, type Happening } from "./counts.ts";
import {
  edgesKeptMs,
  flowHoursDefault,
  flowHoursMax,
  flowReadMax,
  flowRowsMax,
  flowShownMax,
  minutesKeptMs,
} from "./limits.ts";
import * as rows from "./rows.ts";
import { byMinute, hourOf, lastMinute, minuteOf, type Rate, sinceOf, windowsOf } from "./rules.ts";

export type { EdgeKind, Rate };

export interface FlowMap {
  /** Those that most happened along, most first. */
  edges: { source: string; target: string; count: number }[];
  /** Later than asked where there is more than one map reads. */
  since: Instant;
  /** What happened along edges that found no room. */
  uncounted: number;
  /** More is known than is answered. */
  isCut: boolean;
}

export interface Rates {
  lastMinute: Rate;
  lastHour: Rate;
  lastDay: Rate;
}

export interface LoggedFact {
  environmentId: string;
  name: string;
  emitter: string | undefined;
  invokes: string | null;
  entity: { type: string } | null;
}

type FlowDeps = Basics<"store" | "clock">;

/** What is called after a commit counts in memory and answers at once. */
export type Flow = ReturnType<typeof openFlow>;

const none: Record<Happening, number> = { events: 0, started: 0, completed: 0, failed: 0, cancelled: 0 };

async function writeCounted({ store, clock }: FlowDeps, { edges, minutes }: FlowCounted): Promise<void> {
  const now = clock.now();
  await store.write(async (session) => {
    if (edges.length > 0) await rows.addEdges(session, edges, hourOf(now));
    if (minutes.length > 0) await rows.addMinutes(session, minutes, minuteOf(now));
  });
}

export function openFlow({ store, clock }: FlowDeps) {
  const counts = new FlowCounts();

  /** Counts what runs published for their functions. */
  async function nameFunctions(): Promise<void> {
    const publishes = counts.takePublishes();
    const runIds = [...new Set(publishes.map(({ runId }) => runId))];
    const functionOf = new Map<string, string>();
    try {
      for (let from = 0; from < runIds.length; from += flowRowsMax)
        for (const run of await rows.functionsOf(store, runIds.slice(from, from + flowRowsMax)))
          functionOf.set(`${run.environment_id}\n${run.id}`, run.function_id);
    } catch (error) {
      for (const { environmentId, runId, topic, count } of publishes)
        counts.publishes(environmentId).add(runId, topic, count);
      throw error;
    }
    for (const { environmentId, runId, topic, count } of publishes) {
      const source = functionOf.get(`${environmentId}\n${runId}`);
      if (source !== undefined) counts.edges(environmentId, "topic").add(source, topic, count);
    }
  }

  return {
    logged({ environmentId, name, emitter, invokes, entity }: LoggedFact) {
      counts.happened(environmentId, "events", 1);
      if (emitter !== undefined)
        counts.edges(environmentId, invokes === null ? "emit" : "invoke").add(emitter, invokes ?? name, 1);
      if (entity !== null) counts.edges(environmentId, "stream").add(entity.type, name, 1);
    },
    started(runs: readonly { environmentId: string; functionId: string; eventName: string }[]) {
      for (const { environmentId, functionId, eventName } of runs)
        counts.began(environmentId, eventName, functionId);
    },
    ended(runs: readonly { environmentId: string; ends: "completed" | "failed" | "cancelled" }[]) {
      for (const { environmentId, ends } of runs) counts.happened(environmentId, ends, 1);
    },
    awaited: (environmentId: string, functionId: string, eventName: string) =>
      counts.edges(environmentId, "wait").add(functionId, eventName, 1),
    /** A run that is not one of the environment counts nothing. */
    published(environmentId: string, runId: string, topic: string) {
      if (isRunId(runId)) counts.publishes(environmentId).add(runId, topic, 1);
    },

    /** The tick of loop `flow.write`. What fails to be written is tried again with the next tick. */
    async writeOnce() {
      await nameFunctions();
      const { edges, minutes } = counts.take();
      try {
        while (edges.length + minutes.length > 0) {
          const some = { edges: edges.slice(0, flowRowsMax), minutes: minutes.slice(0, flowRowsMax) };
          await writeCounted({ store, clock }, some);
          edges.splice(0, some.edges.length);
          minutes.splice(0, some.minutes.length);
        }
      } catch (error) {
        counts.putBack({ edges, minutes });
        throw error;
      }
    },

    /** Part of the duty `retention`. */
    async forgetOnce(write: Store["write"]) {
      const now = clock.now();
      const edgesBefore = hourOf(now - edgesKeptMs);
      const minutesBefore = minuteOf(now - minutesKeptMs);
      while (
        (await write((session) => rows.forgetEdges(session, edgesBefore, purgeSliceMax))) === purgeSliceMax
      );
      while (
        (await write((session) => rows.forgetMinutes(session, minutesBefore, purgeSliceMax))) ===
        purgeSliceMax
      );
    },

    /** Of so many hours, the present one included; a day when left out. */
    async map(environmentId: string, kind: EdgeKind, hours = flowHoursDefault): Promise<FlowMap> {
      if (hours < 1 || hours > flowHoursMax) throw invalid("hours", `must be from 1 to ${flowHoursMax}`);
      const since = sinceOf(clock.now(), hours);
      const found = await rows.edgesSince(store, { environmentId, kind, since });
      const named = found.filter(({ source }) => source !== "");
      const isCut = (found[0]?.read ?? 0) >= flowReadMax;
      return {
        edges: named.slice(0, flowShownMax),
        since: isCut ? found[0]!.oldest : since,
        uncounted: found.find(({ source }) => source === "")?.count ?? 0,
        isCut: isCut || named.length > flowShownMax,
      };
    },

    async rates(environmentId: string): Promise<Rates> {
      const now = clock.now();
      const { minute, previous, hour, day } = windowsOf(now);
      const found = await rows.ratesSince(store, environmentId, [
        { name: "minute", since: minute },
        { name: "previous", since: previous, until: minute },
        { name: "hour", since: hour },
        { name: "day", since: day },
      ]);
      const of = (window: string): Rate => found.find(({ name }) => name === window) ?? none;
      const shown = ({ events, started, completed, failed, cancelled }: Rate): Rate => ({
        ...{ events, started, completed, failed, cancelled },
      });
      return {
        lastMinute: lastMinute(now, of("minute"), of("previous")),
        lastHour: shown(of("hour")),
        lastDay: shown(of("day")),
      };
    },

    /** Of so many minutes, the present one included and last. */
    async minutes(environmentId: string, minutes: number): Promise<(Rate & { minute: Instant })[]> {
      const now = clock.now();
      const [first] = byMinute(now, minutes, []);
      return byMinute(now, minutes, await rows.minutesSince(store, environmentId, first!.minute));
    },
  };
}
