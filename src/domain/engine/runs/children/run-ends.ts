import { type Static, Type } from "@sinclair/typebox";
import { type Bus, type BusChannel, hasOthers } from "../../../../bus/bus.ts";
import type { Clock, Instant } from "../../../../kit/clock.ts";
import { openHolderLimit } from "../../../../kit/holder-limit.ts";
import { column, sql } from "../../../../kit/sql.ts";
import { storedJson } from "../../../../kit/stored-json.ts";
import type { Basics, Store } from "../../../../store/store.ts";
import type { RowOf } from "../../../../store/tables/index.ts";
import { endLookSlice, endWaitsMax } from "../limits.ts";
import { statusOf } from "../rules.ts";
import type { ExecutionState, RunError, RunResult } from "../run.ts";

interface ResultRow
  extends RowOf<
    "runs",
    "id, environment_id, function_id, status, output, error, created_at, started_at, ended_at"
  > {
  state: ExecutionState | null;
}

/** One query is for all callers that wait at a node. */
const unreadable: RunError = { message: "what is stored of the error cannot be read", retryable: false };

/** Runs as they are now, ended or not. */
async function resultsOf(
  store: Store,
  targets: readonly { environmentId: string; runId: string }[],
  now: Instant,
): Promise<Map<string, RunResult>> {
  const runIds = targets.map(({ runId }) => runId);
  const rows =
    await store.all<ResultRow>(sql`SELECT r.id, r.environment_id, r.function_id, r.status, r.output, r.error,
      (SELECT e.state FROM executions e WHERE e.run_id = r.id) AS state, r.created_at,
      COALESCE(r.started_at, (SELECT e.started_at FROM executions e WHERE e.run_id = r.id)) AS started_at, r.ended_at
    FROM runs r WHERE r.id ${store.seams.among(column.text(runIds))}`);
  const environmentOf = new Map(targets.map(({ runId, environmentId }) => [runId, environmentId]));
  const own = rows.filter((row) => row.environment_id === environmentOf.get(row.id));
  return new Map(
    own.map((row) => [
      row.id,
      {
        runId: row.id,
        functionId: row.function_id,
        status: statusOf(row.status, row.state).status,
        output: row.output,
        error: row.error === null ? null : (storedJson<RunError>(row.error) ?? unreadable),
        durationMs: Math.max(0, (row.ended_at ?? now) - (row.started_at ?? row.created_at)),
        isOver: row.ended_at !== null,
      },
    ]),
  );
}

/** Of these runs, the ones that are over. */
async function endedOf(store: Store, runIds: readonly string[]): Promise<string[]> {
  const rows = await store.all<{ id: string }>(sql`SELECT r.id FROM runs r
    WHERE r.id ${store.seams.among(column.text(runIds))} AND r.status <> 'active'`);
  return rows.map((row) => row.id);
}

const EndHint = Type.Object({
  from: Type.String(),
  runIds: Type.Array(Type.String()),
  /** With `runs.awaited`: how long the other nodes shall report the ends of these runs. */
  forMs: Type.Optional(Type.Number()),
});
type EndHint = Static<typeof EndHint>;

/** `onEnded` is called with runs that ended at another node. */
function openEndHints(
  { clock, bus, self }: { clock: Pick<Clock, "now">; bus: Bus; self: string },
  onEnded: (runIds: readonly string[]) => void,
) {
  /** Runs that callers at other nodes wait for, until when. */
  const awaitedElsewhere = new Map<string, Instant>();
  const runsEnded = bus.channel("runs.ended", EndHint);
  const runsAwaited = bus.channel("runs.awaited", EndHint);
  const hint = (channel: BusChannel<EndHint>, content: Omit<EndHint, "from">) => {
    if (hasOthers(bus)) channel.publish({ from: self, ...content });
  };
  const listen = (channel: BusChannel<EndHint>, onContent: (content: EndHint) => void) => {
    if (bus.kind !== "nats") return;
    channel.listen((content) => {
      if (content.from !== self) onContent(content);
    });
  };
  listen(runsEnded, ({ runIds }) => onEnded(runIds));
  listen(runsAwaited, ({ runIds, forMs = 0 }) => {
    const until = clock.now() + forMs;
    for (const runId of runIds) if (awaitedElsewhere.size < endWaitsMax) awaitedElsewhere.set(runId, until);
  });
  return {
    /** Tells the other nodes that callers here wait for these runs. */
    await: (runIds: readonly string[], forMs: number) => hint(runsAwaited, { runIds: [...runIds], forMs }),
    /** Of runs that ended here, tells the nodes that wait for them. */
    ended(runIds: readonly string[]) {
      if (awaitedElsewhere.size === 0) return;
      const awaited = runIds.filter((runId) => awaitedElsewhere.delete(runId));
      if (awaited.length > 0) hint(runsEnded, { runIds: awaited });
    },
    forgetExpired() {
      const now = clock.now();
      for (const [runId, until] of awaitedElsewhere) if (until < now) awaitedElsewhere.delete(runId);
    },
  };
}

/** Callers that wait for the ends of runs, on this node. */
export type RunEnds = ReturnType<typeof openRunEnds>;

export interface EndWait {
  environmentId: string;
  runIds: readonly string[];
  timeoutMs: number;
  signal: AbortSignal;
  /** Query at once: the runs may have ended before the call. */
  look?: boolean;
}

export interface RunEndsDeps extends Basics<"store" | "clock"> {
  bus: Bus;
  /** Id of this process: its own hints are ignored. */
  self: string;
}

interface OpenEndWait {
  runIds: readonly string[];
  left: Set<string>;
  finish: () => void;
}

export function openRunEnds({ store, clock, bus, self }: RunEndsDeps) {
  const openWaits = new Map<string, Set<OpenEndWait>>();
  const finished = new Set<{
    openWait: EndWait;
    resolve: (r: RunResult[]) => void;
    reject: (e: unknown) => void;
  }>();

  const hints = openEndHints({ clock, bus, self }, note);

  function note(runIds: readonly string[]): void {
    for (const runId of runIds)
      for (const openWait of openWaits.get(runId) ?? []) {
        openWait.left.delete(runId);
        if (openWait.left.size === 0) openWait.finish();
      }
  }

  /** Answers how to remove it. */
  function add(openWait: OpenEndWait): () => void {
    for (const runId of openWait.runIds) {
      const others = openWaits.get(runId);
      if (others) others.add(openWait);
      else openWaits.set(runId, new Set([openWait]));
    }
    return () => {
      for (const runId of openWait.runIds) {
        const others = openWaits.get(runId);
        others?.delete(openWait);
        if (others?.size === 0) openWaits.delete(runId);
      }
    };
  }

  /** Waits that finish in the same turn share one query. */
  function read(openWait: EndWait): Promise<RunResult[]> {
    return new Promise((resolve, reject) => {
      finished.add({ openWait, resolve, reject });
      if (finished.size === 1)
        queueMicrotask(async () => {
          const all = [...finished];
          finished.clear();
          try {
            const targets = all.flatMap(({ openWait: { environmentId, runIds } }) =>
              runIds.map((runId) => ({ environmentId, runId })),
            );
            const results = await resultsOf(store, targets, clock.now());
            for (const one of all)
              one.resolve(one.openWait.runIds.flatMap((runId) => results.get(runId) ?? []));
          } catch (error) {
            for (const one of all) one.reject(error);
          }
        });
    });
  }

  return {
    /**
     * Reserves a place for a caller before its runs are started: too many callers are refused before anything
     * is done. Call what it answers to give the place back.
     */
    enter: openHolderLimit({
      ...{ most: endWaitsMax, all: endWaitsMax },
      ...{ what: "callers that wait for runs to end", whose: "environment" },
    }).acquire,

    /** The runs as they are once all have ended, the time is up, or the signal aborts. */
    async wait(waiting: EndWait): Promise<RunResult[]> {
      const { runIds, timeoutMs, signal } = waiting;
      if (runIds.length === 0) return [];
      const openWait: OpenEndWait = { runIds, left: new Set(runIds), finish: () => {} };
      await new Promise<void>((resolve) => {
        const cancel = clock.after(timeoutMs, () => openWait.finish());
        const remove = add(openWait);
        openWait.finish = () => {
          cancel();
          signal.removeEventListener("abort", openWait.finish);
          remove();
          resolve();
        };
        signal.addEventListener("abort", openWait.finish, { once: true });
        if (signal.aborted) return openWait.finish();
        hints.await(runIds, timeoutMs);
        // When this query fails, the next tick of the loop finds the ends.
        if (waiting.look) endedOf(store, runIds).then(note, () => {});
      });
      return read(waiting);
    },

    /** Calls `onEnd`, maybe more than once, when the run is found over, until what it answers is called. */
    watch: (runId: string, onEnd: () => void): (() => void) =>
      add({ runIds: [runId], left: new Set([runId]), finish: onEnd }),

    /** Called after the commit that ended them on this node. */
    ended(runIds: readonly string[]) {
      if (openWaits.size > 0) note(runIds);
      hints.ended(runIds);
    },

    /** The tick of loop `runs.ends`: one query for all waits, for ends whose hint was lost. */
    async lookOnce() {
      hints.forgetExpired();
      const runIds = [...openWaits.keys()];
      for (let from = 0; from < runIds.length; from += endLookSlice)
        note(await endedOf(store, runIds.slice(from, from + endLookSlice)));
    },

    /** Answers all waits with the runs as they are. */
    drain() {
      for (const all of [...openWaits.values()]) for (const openWait of [...all]) openWait.finish();
    },
  };
}
