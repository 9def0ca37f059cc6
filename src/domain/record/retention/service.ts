import { missing } from "../../../kit/fault.ts";
import { expireSlicesMax } from "../../../kit/limits.ts";
import type { Basics, LeaderWrite } from "../../../store/store.ts";
import type { ForgetBytes } from "../../engine/quotas/service.ts";
import { type FloorGuard, openEventExpiry } from "./expire-events.ts";
import { type DefinitionOf, openRunExpiry } from "./expire-runs.ts";
import * as rows from "./rows.ts";
import { dayMs, inDays } from "./rules.ts";
import type { ExpireTurn } from "./turns.ts";

export type { FloorGuard } from "./expire-events.ts";

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
