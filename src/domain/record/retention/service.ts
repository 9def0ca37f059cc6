import type { Clock } from "../../../kit/clock.ts";
import { missing } from "../../../kit/fault.ts";
import { expireSliceMax, expireSlicesMax } from "../../../kit/limits.ts";
import type { Log } from "../../../kit/log.ts";
import type { Metrics } from "../../../kit/metrics.ts";
import type { Cursor } from "../../../kit/page.ts";
import type { Session, Store } from "../../../store/store.ts";
import type { FunctionDefinition } from "../../engine/functions/definition.ts";
import * as rows from "./rows.ts";
import { cutoff, nextSlice, recordedDaysMin, runDays } from "./rules.ts";

type LeaderWrite = <T>(work: (session: Session) => Promise<T>) => Promise<T>;

/** The lowest position of an environment's log that somebody still needs; undefined when nobody does. */
export type FloorGuard = (environmentId: string) => Promise<number | undefined>;

/** How long an environment's past is kept, in days; 0: for ever. */
export interface KeptDays {
  events: number;
  runs: number;
  /** Its own word on both; null: as the installation says. */
  own: number | null;
  /** Positions of its log below this one have expired. */
  floor: number;
}

export interface Retention {
  /** `not_found` when the environment is gone. */
  daysOf(environmentId: string): Promise<KeptDays>;
  setDays(environmentId: string, days: number | null): Promise<KeptDays>;
  /** Days that an environment's runs are kept; 0: for ever. */
  runDaysOf(environmentId: string): Promise<number>;
  /** The tick of `events.expire`, on the node that leads `retention`. */
  expireEvents(write: LeaderWrite): Promise<{ againInMs?: number }>;
  /** The tick of `runs.expire`. */
  expireRuns(write: LeaderWrite): Promise<{ againInMs?: number }>;
}

export interface RetentionDeps {
  store: Store;
  clock: Clock;
  log: Log;
  metrics: Metrics;
  config: { eventRetentionDays: number; runRetentionDays: number };
  definitionOf: (environmentId: string, functionId: string, version: number) => Promise<FunctionDefinition>;
  /** Of matchers, groups, projections and whatever else reads a log behind its end. */
  floorGuards?: readonly FloorGuard[];
}

const environmentsAtOnce = 100;
/** Slices of one environment before it is the next one's turn. */
const turnSlicesMax = 20;
/** So many rows gone at once are worth new statistics. */
const analyzeFrom = 10_000;
/** Between slices, so that whoever waits for the writer comes first. */
const breathMs = 1;

export function openRetention(deps: RetentionDeps): Retention {
  const { store, clock, log, config, definitionOf, floorGuards = [] } = deps;
  const expired = deps.metrics.counter({
    name: "svc_expired_rows_total",
    help: "Events and runs that retention deleted.",
    labels: ["what"],
  });
  /** Where the walk over an environment's runs stands: those before are younger than they look, and come again next time round. */
  const places = new Map<string, Cursor>();

  /** Rows that fit into one transaction, as the last ones took: a run may have one step or ten thousand. */
  const fits = { events: expireSliceMax, runs: expireSliceMax };
  async function timed(what: keyof typeof fits, work: () => Promise<number>): Promise<number> {
    const from = clock.elapsed();
    const gone = await work();
    fits[what] = nextSlice(fits[what], clock.elapsed() - from);
    return gone;
  }

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

  async function expireEventsOf(write: LeaderWrite, environmentId: string, days: number, slices: number) {
    const before = cutoff(days, clock.now());
    if (before === undefined) return { gone: 0, slices: 0, isMore: false };
    let below = await rows.positionAt(store, environmentId, before);
    for (const guard of floorGuards) below = Math.min(below, (await guard(environmentId)) ?? below);
    let gone = 0;
    let used = 0;
    for (; used < slices; used++) {
      const limit = fits.events;
      const found = await rows.expirable(store, environmentId, { below, limit });
      if (found.last === null) break;
      const last = found.needed === null ? found.last : found.needed - 1;
      // With nothing left below the horizon the floor is the horizon itself, whatever stands right before it.
      const isLast = found.needed === null && found.count < limit;
      const floor = found.needed ?? (isLast ? below : last + 1);
      await write((session) => rows.raiseFloor(session, environmentId, floor));
      gone += await timed("events", () =>
        write((session) => rows.deleteEvents(session, environmentId, last, limit)),
      );
      if (found.needed !== null || isLast) break;
      await clock.sleep(breathMs);
    }
    return { gone, slices: used + 1, isMore: used === slices };
  }

  async function expireRunsOf(write: LeaderWrite, environmentId: string, days: number, slices: number) {
    const now = clock.now();
    // A recording may ask for less than the environment, and never for less than this.
    const before = now - (days === 0 ? recordedDaysMin : Math.min(days, recordedDaysMin)) * 86_400_000;
    let gone = 0;
    let used = 0;
    for (; used < slices; used++) {
      const after = places.get(environmentId);
      const limit = fits.runs;
      const found = await rows.oldRuns(store, environmentId, { after, before, limit });
      const old: string[] = [];
      for (const run of found) {
        if (run.status === "active" || run.ended_at === null) continue;
        const definition = await definitionOf(environmentId, run.function_id, run.function_version).catch(
          (error: unknown) => void log.warn("retention.run_kept", { environmentId, runId: run.id, error }),
        );
        // What it asks for cannot be read: it stays, and the others go.
        if (!definition) continue;
        const horizon = cutoff(runDays(definition, days), now);
        if (horizon !== undefined && run.ended_at < horizon) old.push(run.id);
      }
      if (old.length > 0)
        gone += await timed("runs", () => write((session) => rows.deleteRuns(session, old)));
      const last = found.at(-1);
      if (found.length < limit || !last) {
        places.delete(environmentId);
        break;
      }
      places.set(environmentId, { at: last.created_at, id: last.id });
      await clock.sleep(breathMs);
    }
    return { gone, slices: used + 1, isMore: used === slices };
  }

  async function round(
    what: "events" | "runs",
    write: LeaderWrite,
    one: typeof expireEventsOf,
    fallback: number,
    tables: readonly string[],
  ): Promise<{ againInMs?: number }> {
    let left = expireSlicesMax;
    let gone = 0;
    const troubles: unknown[] = [];
    const behind: rows.EnvironmentRetention[] = [];
    const turn = async (keeping: rows.EnvironmentRetention) => {
      const { id, retention_days: own } = keeping;
      try {
        const done = await one(write, id, own ?? fallback, Math.min(left, turnSlicesMax));
        gone += done.gone;
        left -= done.slices;
        if (done.isMore) behind.push(keeping);
      } catch (error) {
        // What stands in one environment must not fill the disk with the others'.
        log.warn("retention.environment_failed", { what, environmentId: id, error });
        troubles.push(error);
        left--;
      }
    };
    for await (const keeping of environments(what)) {
      await turn(keeping);
      if (left <= 0) break;
    }
    // Nobody's past keeps another's from its turn.
    while (left > 0 && behind.length > 0) await turn(behind.shift()!);
    expired(what).add(gone);
    if (gone > 0) log.info("retention.expired", { what, gone });
    if (troubles.length > 0) throw new AggregateError(troubles, `${what} of some environments stay`);
    if (gone >= analyzeFrom) await write((session) => rows.analyze(session, tables));
    // There is more: soon again, with others in between.
    return left <= 0 ? { againInMs: 1_000 } : {};
  }

  async function daysOf(environmentId: string): Promise<KeptDays> {
    const found = await rows.retentionWithFloor(store, environmentId);
    if (!found) throw missing("environment", environmentId);
    const { retention_days: own, retention_floor: floor } = found;
    const { eventRetentionDays, runRetentionDays } = config;
    return { events: own ?? eventRetentionDays, runs: own ?? runRetentionDays, own, floor };
  }

  return {
    daysOf,

    async setDays(environmentId, days) {
      await store.write((session) => rows.setDays(session, environmentId, days, clock.now()));
      log.info("retention.set", { environmentId, days });
      return daysOf(environmentId);
    },

    runDaysOf: async (environmentId) =>
      (await rows.retentionOf(store, environmentId))?.retention_days ?? config.runRetentionDays,
    expireEvents: (write) => round("events", write, expireEventsOf, config.eventRetentionDays, ["events"]),
    expireRuns: (write) =>
      round("runs", write, expireRunsOf, config.runRetentionDays, ["runs", "steps", "run_history"]),
  };
}
