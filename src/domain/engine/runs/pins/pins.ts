import { Fault, missing } from "../../../../kit/fault.ts";
import { countCap, pinGraceMsDefault, workerSilenceMsMax } from "../../../../kit/limits.ts";
import type { Basics, Store } from "../../../../store/store.ts";
import type { Definitions, DefinitionsCache, FunctionDefinition } from "../../functions/definition.ts";
import { neverWakesAt } from "../execution/commit-reports.ts";
import { getRun } from "../rows.ts";
import type { QueueHint, Run } from "../run.ts";
import { pinPlacesMax, pinSliceMax, pinSlicesMax } from "./limits.ts";
import * as rows from "./pin-rows.ts";

/** A node says that it knows runs of state `stranded`. */
export const knowsPins = "pins";

/** A build of a program, as its workers and the runs that are pinned to it tell. */
export interface Deployment {
  name: string;
  workers: number;
  since: number | null;
  /** Counted up to `countCap` a function and state. */
  runs: number;
  runsCapped: boolean;
  held: number;
  functionIds: string[];
}

export interface PinsDeps extends Basics<"store" | "clock"> {
  definitions: Pick<DefinitionsCache, "current">;
  /** False while a node lives that would not know what a stranded run is. */
  everyNodeKnows: () => Promise<boolean>;
  onQueued: (queues: readonly QueueHint[]) => void;
  /** Called after the commit; a hint that may be lost. */
  onMoved: (runs: readonly { runId: string; environmentId: string }[]) => void;
}

const placeOf = (one: { environmentId: string; deployment: string }, functionId: string): string =>
  `${one.environmentId}\n${functionId}\n${one.deployment}`;

const hintOf = (environmentId: string, functionId: string, laneId: string | null): QueueHint => ({
  ...{ environmentId, functionId },
  ...(laneId !== null && { laneId }),
});

/** Runs that stay with the deployment of the worker that claimed them first. */
export type Pins = ReturnType<typeof openPins>;

export function openPins({ store, clock, definitions, everyNodeKnows, onQueued, onMoved }: PinsDeps) {
  const workersOf = (environmentIds: readonly string[]) =>
    rows.deployedWorkers(store, environmentIds, clock.now() - workerSilenceMsMax);

  /** Undefined for a place that is as it should be. */
  function moveOf(
    { state, deployment }: rows.PinnedPlace,
    { isLive, definition }: { isLive: boolean; definition: FunctionDefinition | undefined },
  ) {
    const now = clock.now();
    const mustWait = definition?.pin === true && !isLive;
    if (state === "stranded" && !mustWait)
      return { to: "queued" as const, wakeAt: now, now, detail: { deployment } };
    if (state !== "queued" || !mustWait) return undefined;
    const until = definition.pinGone === "hold" ? null : now + (definition.pinGraceMs ?? pinGraceMsDefault);
    return { to: "stranded" as const, wakeAt: until ?? neverWakesAt, now, detail: { deployment, until } };
  }

  /** Answers whether some are left for the next tick: a long queue keeps no other place waiting. */
  async function settle(
    write: Store["write"],
    place: rows.PinnedPlace,
    how: Parameters<typeof moveOf>[1],
  ): Promise<boolean> {
    const { environmentId, functionId } = place;
    let isFull = true;
    for (let slice = 0; isFull && slice < pinSlicesMax; slice++) {
      const move = moveOf(place, how);
      if (!move) return false;
      const moved = await write((session) => rows.moveAtPlace(session, place, move));
      isFull = moved.length === pinSliceMax;
      onMoved(moved.map((row) => ({ runId: row.run_id, environmentId })));
      const lanes = new Set(moved.map((row) => row.lane_id));
      if (move.to === "queued") onQueued([...lanes].map((lane) => hintOf(environmentId, functionId, lane)));
    }
    return isFull;
  }

  /** Where the next look begins: one that met more places than it goes through is followed by the rest. */
  let after: rows.PinnedPlace | undefined;

  return {
    /**
     * The tick of loop `runs.pins`: what is queued for a deployment without a worker is stranded, and queued
     * again when one comes. An environment that cannot be read holds up no other.
     */
    async lookOnce(write: Store["write"]): Promise<{ againInMs?: number }> {
      const all = await rows.pinnedPlaces(store, { after });
      after = all.length === pinPlacesMax ? all.at(-1) : undefined;
      let isLeft = after !== undefined;
      const places = all.filter(({ state }) => state === "queued" || state === "stranded");
      if (places.length === 0) return isLeft ? { againInMs: 0 } : {};
      if (!(await everyNodeKnows())) return {};
      const workers = await workersOf([...new Set(places.map((place) => place.environmentId))]);
      const live = new Set(
        workers.flatMap((worker) => worker.functionIds.map((functionId) => placeOf(worker, functionId))),
      );
      const known = new Map<string, Promise<Definitions>>();
      let failed: { error: unknown } | undefined;
      for (const place of places)
        try {
          const { environmentId, functionId } = place;
          if (!known.has(environmentId)) known.set(environmentId, definitions.current(environmentId));
          const definition = (await known.get(environmentId))?.functions.get(functionId)?.definition;
          const isLive = live.has(placeOf(place, functionId));
          if (await settle(write, place, { isLive, definition })) isLeft = true;
        } catch (error) {
          if (!(error instanceof Fault && error.kind === "not_found")) failed ??= { error };
        }
      if (failed) throw failed.error;
      return isLeft ? { againInMs: 0 } : {};
    },

    /** Those that are connected, or that runs are pinned to, by their names. */
    list: (environmentId: string) => deploymentsOf(store, environmentId, workersOf([environmentId])),

    /**
     * Gives a pinned run to another deployment: a named one, or the newest that serves its function; without
     * any, to the first worker that comes. A run that a worker holds goes there with its next attempt.
     */
    async move(
      environmentId: string,
      { runId, deployment }: { runId: string; deployment: string | undefined },
      actorId: string,
    ): Promise<Run> {
      const [workers, asked] = await Promise.all([
        workersOf([environmentId]),
        getRun(store, environmentId, runId),
      ]);
      if (!asked) throw missing("run", runId);
      const row = await store.write(async (session) => {
        const held = await rows.lockPinned(session, environmentId, runId);
        if (!held) throw new Fault("failed_precondition", "the run is over: it cannot be moved");
        if (held.pinned_to === null)
          throw new Fault(
            "failed_precondition",
            "the run is pinned to no deployment: any worker may have it",
          );
        const serving = workers.filter((one) => one.functionIds.includes(held.function_id));
        if (deployment !== undefined && !serving.some((one) => one.deployment === deployment))
          throw new Fault(
            "failed_precondition",
            `deployment: no connected worker of ${deployment.slice(0, 128)} serves the function of the run`,
          );
        const others = serving.filter((one) => one.deployment !== held.pinned_to);
        const place = { environmentId, functionId: held.function_id };
        const to = deployment ?? rows.newestOf(others, place);
        const by = { actor_id: actorId };
        if (to !== held.pinned_to) await rows.repin(session, [{ ...held, to }], { now: clock.now(), by });
        return held;
      });
      onMoved([{ runId, environmentId }]);
      onQueued([hintOf(environmentId, row.function_id, row.lane_id)]);
      const run = await getRun(store, environmentId, runId);
      if (!run) throw missing("run", runId);
      return run;
    },
  };
}

async function deploymentsOf(
  store: Store,
  environmentId: string,
  connected: Promise<rows.DeployedWorker[]>,
): Promise<Deployment[]> {
  const [places, workers] = await Promise.all([rows.pinnedPlaces(store, { environmentId }), connected]);
  const found = new Map<string, Deployment>();
  const of = (name: string): Deployment => {
    const none = { name, workers: 0, since: null, runs: 0, runsCapped: false, held: 0, functionIds: [] };
    const one = found.get(name) ?? none;
    found.set(name, one);
    return one;
  };
  for (const { deployment, registeredAt, functionIds } of workers) {
    const one = of(deployment);
    one.workers++;
    one.since = Math.min(one.since ?? registeredAt, registeredAt);
    one.functionIds = [...new Set([...one.functionIds, ...functionIds])].sort();
  }
  for (const { deployment, state, count } of await rows.countPinned(store, environmentId, places)) {
    const one = of(deployment);
    one.runs += count;
    one.runsCapped ||= count === countCap;
    if (state === "stranded") one.held += count;
  }
  return [...found.values()].sort((a, b) => (a.name < b.name ? -1 : 1));
}
