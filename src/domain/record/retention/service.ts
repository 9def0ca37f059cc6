import type { Instant } from "../../../kit/clock.ts";
import { missing } from "../../../kit/fault.ts";
import { expireSlicesMax } from "../../../kit/limits.ts";
import type { Cursor } from "../../../kit/page.ts";
import { recordedDays } from "../../../kit/recorded-days.ts";
import { SliceSize } from "../../../kit/slice-size.ts";
import type { Basics, LeaderWrite } from "../../../store/store.ts";
import type { FunctionDefinition } from "../../engine/functions/definition.ts";
import type { ForgetBytes } from "../../engine/quotas/service.ts";
import * as rows from "./rows.ts";

const dayMs = 24 * 60 * 60 * 1000;

/** The instant before which rows have expired; undefined when rows never expire. */
const cutoff = (keptMs: number, now: Instant): Instant | undefined =>
  keptMs === 0 ? undefined : now - keptMs;

/** How long a run is kept: the recording of its function says so, else its environment. 0: for ever. */
function runKeptMs(
  recording: { recording: boolean; recordingRetention?: string },
  environmentMs: number,
): number {
  const asked = recording.recording ? recordedDays(recording.recordingRetention ?? "") : undefined;
  return asked === undefined ? environmentMs : asked * dayMs;
}

/** No recording asks for less. */
const recordedMsMin = dayMs;

/** Whole days, rounded up: an answer of 0 days would mean for ever. */
const inDays = (keptMs: number): number => Math.ceil(keptMs / dayMs);

/** What one environment's turn came to. */
export interface ExpiryTurn {
  gone: number;
  slices: number;
  isMore: boolean;
}

/** Deletes what has expired in one environment, at most so many slices. */
type ExpireTurn = (
  write: LeaderWrite,
  environmentId: string,
  keptMs: number,
  slices: number,
) => Promise<ExpiryTurn>;

type DefinitionOf = (
  environmentId: string,
  functionId: string,
  version: number,
) => Promise<FunctionDefinition>;

/** Deletes runs that are older than their environment, or the recording of their function, keeps them. */
function openRunExpiry(deps: Basics<"store" | "clock" | "log"> & { definitionOf: DefinitionOf }): ExpireTurn {
  const { store, clock, log, definitionOf } = deps;
  const size = new SliceSize(clock);
  /**
   * Where the next turn of an environment begins. Runs before that were kept; they come again in the next
   * round.
   */
  const places = new Map<string, Cursor>();

  return async (write, environmentId, keptMs, slices) => {
    const now = clock.now();
    // A recording may keep runs for less time than the environment, but never for less than this.
    const before = now - (keptMs === 0 ? recordedMsMin : Math.min(keptMs, recordedMsMin));
    let gone = 0;
    let used = 0;
    for (; used < slices; used++) {
      const after = places.get(environmentId);
      const limit = size.rows;
      const found = await rows.oldRuns(store, environmentId, { after, before, limit });
      const old: string[] = [];
      for (const run of found) {
        if (run.status === "active" || run.ended_at === null) continue;
        const definition = await definitionOf(environmentId, run.function_id, run.function_version).catch(
          (error: unknown) => void log.warn("retention.run_kept", { environmentId, runId: run.id, error }),
        );
        // The definition says how long the run is kept. When it cannot be read, the run stays and the others
        // go.
        if (!definition) continue;
        const horizon = cutoff(runKeptMs(definition, keptMs), now);
        if (horizon !== undefined && run.ended_at < horizon) old.push(run.id);
      }
      if (old.length > 0)
        gone += await size.delete(write, async (session) => {
          const deleted = await rows.deleteRuns(session, old);
          await rows.deleteErrorGroups(session, { environmentId, before, limit });
          return deleted;
        });
      const last = found.at(-1);
      if (found.length < limit || !last) {
        places.delete(environmentId);
        break;
      }
      places.set(environmentId, { at: last.created_at, id: last.id });
      await size.rest();
    }
    return { gone, slices: used + 1, isMore: used === slices };
  };
}

/** The lowest position of an environment's log that a reader still needs; undefined when none does. */
export type FloorGuard = (environmentId: string) => Promise<number | undefined>;

/**
 * Deletes events that are older than their environment keeps them, below every position that a reader still
 * needs.
 */
function openEventExpiry(
  deps: Basics<"store" | "clock"> & { floorGuards: readonly FloorGuard[]; forgetBytes: ForgetBytes },
): ExpireTurn {
  const { store, clock, floorGuards, forgetBytes } = deps;
  const size = new SliceSize(clock);
  return async (write, environmentId, keptMs, slices) => {
    const before = cutoff(keptMs, clock.now());
    if (before === undefined) return { gone: 0, slices: 0, isMore: false };
    let below = await rows.positionAt(store, environmentId, before);
    for (const guard of floorGuards) below = Math.min(below, (await guard(environmentId)) ?? below);
    let gone = 0;
    let used = 0;
    for (; used < slices; used++) {
      const limit = size.rows;
      const found = await rows.expirable(store, environmentId, { below, limit });
      if (found.last === null) break;
      const last = found.needed === null ? found.last : found.needed - 1;
      // When nothing is left below the horizon, the floor is the horizon itself.
      const isLast = found.needed === null && found.count < limit;
      const floor = found.needed ?? (isLast ? below : last + 1);
      await write((session) => rows.raiseFloor(session, environmentId, floor));
      gone += await size.delete(write, (session) =>
        rows.deleteEvents(session, environmentId, { last, limit }, (which) =>
          forgetBytes(session, environmentId, which),
        ),
      );
      if (found.needed !== null || isLast) break;
      await size.rest();
    }
    return { gone, slices: used + 1, isMore: used === slices };
  };
}

/** How long an environment's past is kept, in days, begun ones included; 0: for ever. */
export interface KeptDays {
  events: number;
  runs: number;
  /** The environment's own days for both; null: the installation's apply. */
  own: number | null;
  /** Positions of its log below this one have expired. */
  floor: number;
}

export type Retention = ReturnType<typeof openRetention>;

export interface RetentionDeps extends Basics<"store" | "clock" | "log" | "metrics"> {
  /** How long events and runs are kept where their environment says nothing, in milliseconds; 0: for ever. */
  kept: { events: number; runs: number };
  definitionOf: DefinitionOf;
  /** The guards of matchers, groups, projections and every other reader that may lag behind a log's end. */
  floorGuards?: readonly FloorGuard[];
  /** Takes what is deleted out of the quotas. */
  forgetBytes: ForgetBytes;
}

const environmentsAtOnce = 100;
/** Slices of one environment before it is the next one's turn. */
const turnSlicesMax = 20;
/** After this many deleted rows the tables are analyzed: plans would go by rows that are gone. */
const analyzeFrom = 10_000;

export function openRetention(deps: RetentionDeps) {
  const { store, clock, log, kept, floorGuards = [], forgetBytes } = deps;
  const expireEventsOf = openEventExpiry({ store, clock, floorGuards, forgetBytes });
  const expireRunsOf = openRunExpiry(deps);
  const expired = deps.metrics.counter({
    name: "svc_expired_rows_total",
    help: "Events and runs that retention deleted.",
    labels: ["what"],
  });
  /** Where the walk over the environments goes on with the next round. */
  const walkedTo = { events: "", runs: "" };
  async function* environments(what: keyof typeof walkedTo) {
    for (;;) {
      const slice = await rows.retentionsAfter(store, walkedTo[what], environmentsAtOnce);
      for (const keeping of slice) {
        walkedTo[what] = keeping.id;
        yield keeping;
      }
      if (slice.length < environmentsAtOnce) break;
    }
    walkedTo[what] = "";
  }

  async function round(
    what: "events" | "runs",
    write: LeaderWrite,
    one: ExpireTurn,
    tables: readonly string[],
  ): Promise<{ againInMs?: number }> {
    let left = expireSlicesMax;
    let gone = 0;
    const troubles: unknown[] = [];
    const behind: rows.EnvironmentRetention[] = [];
    const turn = async (keeping: rows.EnvironmentRetention) => {
      const { id, retention_days: own } = keeping;
      try {
        const done = await one(
          write,
          id,
          own === null ? kept[what] : own * dayMs,
          Math.min(left, turnSlicesMax),
        );
        gone += done.gone;
        left -= done.slices;
        if (done.isMore) behind.push(keeping);
      } catch (error) {
        // A failure in one environment must not keep the others' rows on the disk.
        log.warn("retention.environment_failed", { what, environmentId: id, error });
        troubles.push(error);
        left--;
      }
    };
    for await (const keeping of environments(what)) {
      await turn(keeping);
      if (left <= 0) break;
    }
    // Environments with more to delete go on only after each has had its first turn.
    while (left > 0 && behind.length > 0) await turn(behind.shift()!);
    expired(what).add(gone);
    if (gone > 0) log.info("retention.expired", { what, gone });
    if (troubles.length > 0)
      throw new AggregateError(troubles, `expired ${what} of some environments could not be deleted`);
    if (gone >= analyzeFrom) await write((session) => rows.analyze(session, tables));
    // There is more: the next round begins soon, and other writers come in between.
    return left <= 0 ? { againInMs: 1_000 } : {};
  }

  async function daysOf(environmentId: string): Promise<KeptDays> {
    const found = await rows.retentionWithFloor(store, environmentId);
    if (!found) throw missing("environment", environmentId);
    const { retention_days: own, retention_floor: floor } = found;
    return { events: own ?? inDays(kept.events), runs: own ?? inDays(kept.runs), own, floor };
  }

  return {
    /** `not_found` when the environment is gone. */
    daysOf,

    async setDays(environmentId: string, days: number | null): Promise<KeptDays> {
      await store.write((session) => rows.setDays(session, environmentId, days, clock.now()));
      log.info("retention.set", { environmentId, days });
      return daysOf(environmentId);
    },

    /** The days for which an environment keeps its runs. 0 means without an end. */
    runDaysOf: async (environmentId: string) =>
      (await rows.retentionOf(store, environmentId))?.retention_days ?? inDays(kept.runs),
    /** With all that is theirs; answers how many of them were over. */
    deleteRuns: rows.deleteRuns,
    /** The tick of `events.expire`, on the node that leads `retention`. */
    expireEvents: (write: LeaderWrite) => round("events", write, expireEventsOf, ["events"]),
    /** The tick of `runs.expire`. */
    expireRuns: (write: LeaderWrite) => round("runs", write, expireRunsOf, ["runs", "steps", "run_history"]),
  };
}
