import type { SagaCase } from "./saga-points.ts";

/** One saga: where it is held, and what it did to the world. */
export interface Saga extends SagaCase {
  runId: string;
  /** How many of its points it has come to. */
  reached: number;
  /** Lets it go on from the point that it is at. */
  release(): void;
  /** Steps of which the server has answered that it has them. */
  stored: Set<string>;
  /** So many compensations fail, and are tried again. */
  refusals: number;
  effects: { deed: "do" | "undo"; what: string; key: string; wasStored: boolean }[];
}

export interface SagaDriver {
  url: string;
  /** How many processes have begun to take jobs. */
  started(): number;
  plan(runId: string, one: SagaCase): Saga;
  stop(): Promise<void>;
}

interface Told {
  runId: string;
  point?: string;
  deed: "do" | "undo";
  what: string;
  key: string;
}

const nameOf = ({ deed, what }: Pick<Told, "deed" | "what">) => (deed === "do" ? what : `undo:${what}`);

/** Takes down what sagas do, outside of all that is killed, and holds each of them at its points. */
export function startSagaDriver(): SagaDriver {
  const sagas = new Map<string, Saga>();
  const holds = new Map<string, PromiseWithResolvers<void>>();
  let started = 0;
  const unplanned = new Map<string, PromiseWithResolvers<Saga>>();

  /** A worker may have the run before whoever started it has its id. */
  function sagaOf(runId: string): Saga | Promise<Saga> {
    const known = sagas.get(runId);
    if (known) return known;
    const waiting = unplanned.get(runId) ?? Promise.withResolvers<Saga>();
    unplanned.set(runId, waiting);
    return waiting.promise;
  }

  async function isHeldAt(saga: Saga, point: string): Promise<boolean> {
    if (point.endsWith(".unanswered")) saga.stored.add(point.slice(0, point.indexOf(".")));
    if (saga.points[saga.reached] !== point) return false;
    const hold = Promise.withResolvers<void>();
    holds.set(saga.runId, hold);
    saga.reached++;
    await hold.promise;
    return true;
  }

  const server = Bun.serve({
    port: 0,
    hostname: "127.0.0.1",
    idleTimeout: 0,
    async fetch(request) {
      if (request.url.endsWith("/started")) {
        started++;
        return new Response();
      }
      const { runId, point, ...effect } = (await request.json()) as Told;
      const saga = await sagaOf(runId);
      if (point !== undefined) return Response.json({ isHeld: await isHeldAt(saga, point) });
      const isRefused = saga.refusals > 0 && effect.deed === "undo";
      if (isRefused) saga.refusals--;
      else saga.effects.push({ ...effect, wasStored: saga.stored.has(nameOf(effect)) });
      return Response.json({ isRefused });
    },
  });
  return {
    url: `http://127.0.0.1:${server.port}`,
    started: () => started,
    plan(runId, one) {
      const release = () => holds.get(runId)?.resolve();
      const saga: Saga = { ...one, runId, reached: 0, release, stored: new Set(), refusals: 0, effects: [] };
      if (one.ending.startsWith("cancel-")) saga.refusals = 1;
      sagas.set(runId, saga);
      unplanned.get(runId)?.resolve(saga);
      return saga;
    },
    stop: () => server.stop(true),
  };
}
