import { describe, expect, test } from "bun:test";
import { openDispatcher, openGiveBack } from "../../src/domain/engine/dispatch/dispatcher.ts";
import type { PollRequest } from "../../src/domain/engine/dispatch/queues.ts";
import type { ClaimedRow, ClaimInput } from "../../src/domain/engine/runs/execution/claim.ts";
import type { LimitedInput } from "../../src/domain/engine/runs/execution/claim-limited.ts";
import { testClock } from "../../src/kit/clock.ts";
import { systemIds } from "../../src/kit/ids.ts";
import { silentLog } from "../../src/kit/log.ts";

const environmentId = "env_a";

interface Queued {
  runId: string;
  functionId: string;
  laneId: string | undefined;
  at: number;
}

/** A store in memory behind a dispatcher, which claims as the real one does; nobody is told of what is not told here. */
function house(limits: Record<string, number> = {}) {
  const clock = testClock();
  const queue: Queued[] = [];
  const leased = new Map<string, number>();
  const asked: LimitedInput[] = [];
  const busy = new Set<string>();
  const paused = new Set<string>();
  let looks = 0;
  const inLane = (laneId: string) => leased.get(laneId) ?? 0;
  const take = (run: Queued) => {
    queue.splice(queue.indexOf(run), 1);
    if (run.laneId) leased.set(run.laneId, inLane(run.laneId) + 1);
    return run;
  };
  const dispatcher = openDispatcher({
    clock,
    ids: systemIds(clock),
    log: silentLog,
    leaseMs: 90_000,
    mayClaim: () => true,
    back: openGiveBack({
      log: silentLog,
      onQueued: (lanes) => dispatcher.queued(lanes),
      runs: { release: async () => {} },
    }),
    runs: {
      async claim(input: ClaimInput) {
        const limited = input.demands.flatMap((lane, at) => (limits[lane.functionId] ? [at + 1] : []));
        const runs = input.demands.flatMap((lane, at) => {
          if (limits[lane.functionId] || paused.has(lane.functionId)) return [];
          const found = queue.filter((run) => run.functionId === lane.functionId);
          return found.slice(0, lane.slots.length).map((run, rank) => claimed(take(run), at + 1, rank + 1));
        });
        return { runs, limited };
      },
      async claimLimited(input: LimitedInput) {
        asked.push(input);
        const runs: ClaimedRow[] = [];
        const lanes = input.demands.flatMap((demand, at) => {
          if (paused.has(demand.functionId)) return [];
          const quota = Math.ceil(demand.slots.length / demand.laneIds.length);
          let rank = 0;
          return demand.laneIds.map((laneId) => {
            if (busy.delete(laneId)) return { lane: at + 1, lane_id: laneId, free: null, taken: 0, more: 0 };
            const free = limits[demand.functionId]! - inLane(laneId);
            const found = queue.filter((run) => run.laneId === laneId);
            const most = Math.min(quota, free, demand.slots.length - rank);
            const taken = found.slice(0, Math.max(0, most));
            for (const run of taken) runs.push(claimed(take(run), at + 1, ++rank));
            const more = found.length > taken.length ? 1 : 0;
            return { lane: at + 1, lane_id: laneId, free, taken: taken.length, more };
          });
        });
        return { runs, lanes };
      },
      async lookAtLanes({ functionId }) {
        looks++;
        const limit = limits[functionId];
        const ids = new Set(
          queue.flatMap((run) => (run.functionId === functionId ? (run.laneId ?? []) : [])),
        );
        const lanes = paused.has(functionId) ? [] : [...ids].sort().map((id) => ({ id, leased: inLane(id) }));
        return { limit, lanes: limit === undefined ? [] : lanes };
      },
      completedSteps: async () => new Map(),
      completedBytes: async () => [],
      handOver: async () => {},
    },
  });
  let number = 0;
  /** Queued runs; `tells` hints as an emit would. */
  const enqueue = (functionId: string, key?: string, { count = 1, tells = true } = {}) => {
    const laneId = key && `${functionId}:${key}`;
    for (let n = 0; n < count; n++)
      queue.push({
        runId: `run_${functionId}_${key ?? ""}_${++number}`,
        functionId,
        laneId,
        at: clock.now(),
      });
    if (tells) dispatcher.queued([{ environmentId, functionId, ...(laneId && { laneId }) }]);
  };
  /** A run of the lane has ended. */
  const end = (functionId: string, key: string, tells = true) => {
    const laneId = `${functionId}:${key}`;
    leased.set(laneId, inLane(laneId) - 1);
    if (tells) dispatcher.queued([{ environmentId, functionId, laneId, freed: true, queued: false }]);
  };
  const ask = (workerId: string, functionIds: readonly string[], more: Partial<PollRequest> = {}) =>
    dispatcher.poll({
      environmentId,
      workerId,
      functionIds,
      available: 4,
      holdMs: 60_000,
      reports: false,
      signal: new AbortController().signal,
      ...more,
    });
  return { clock, dispatcher, queue, asked, busy, paused, limits, enqueue, end, ask, looks: () => looks };
}

const claimed = (run: Queued, lane: number, rank: number): ClaimedRow => ({
  lane,
  rank,
  run_id: run.runId,
  environment_id: environmentId,
  function_id: run.functionId,
  function_version: 1,
  execution_seq: 1,
  attempt: 1,
  max_attempts: 1,
  log_seen: null,
  ending: null,
  step_count: 0,
  queued_at: run.at,
  actor_id: null,
  event_id: "evt_1",
  event_position: 1,
  event_name: "e",
  event_version: 1,
  event_data: "{}",
  event_metadata: null,
  event_source: "api",
  event_at: 0,
  event_idempotency_key: null,
  event_entity_id: null,
});

const settle = async () => {
  for (let n = 0; n < 5; n++) await new Promise<void>((resolve) => setImmediate(resolve));
};
const keysOf = (jobs: readonly { runId: string }[]) => jobs.map((job) => job.runId.split("_")[2]);
const functionsOf = (jobs: readonly { runId: string }[]) => jobs.map((job) => job.runId.split("_")[1]);

describe("lanes of a limited function", () => {
  test("are found by a look when nobody told of them, also for who does not hold", async () => {
    const { ask, enqueue } = house({ f: 1 });
    enqueue("f", "a", { tells: false });
    enqueue("f", "b", { tells: false, count: 2 });
    expect(keysOf(await ask("w", ["f"], { holdMs: 0 })).sort()).toEqual(["a", "b"]);
  });

  test("take turns: a long queue gets no more than its part", async () => {
    const { ask, enqueue } = house({ f: 100 });
    enqueue("f", "long", { count: 500 });
    enqueue("f", "short", { count: 2 });
    const jobs = await ask("w", ["f"], { available: 4 });
    expect(keysOf(jobs).filter((key) => key === "short")).toHaveLength(2);
  });

  test("that are full are asked for again only when a lease there ends", async () => {
    const { ask, enqueue, end, asked, clock } = house({ f: 1 });
    enqueue("f", "a", { count: 3 });
    expect(await ask("w", ["f"], { available: 1 })).toHaveLength(1);
    const answer = ask("w", ["f"], { available: 1 });
    await settle();
    const before = asked.length;
    for (let n = 0; n < 20; n++) enqueue("f", "a");
    enqueue("f", "b");
    await settle();
    expect(asked.slice(before).flatMap(({ demands }) => demands.flatMap((one) => one.laneIds))).toEqual([
      "f:b",
    ]);
    expect(keysOf(await answer)).toEqual(["b"]);
    const next = ask("w", ["f"], { available: 1 });
    await clock.advance(10);
    end("f", "a");
    expect(keysOf(await next)).toEqual(["a"]);
  });

  test("whose last run ends cost no claim", async () => {
    const { ask, enqueue, end, asked } = house({ f: 1 });
    enqueue("f", "a");
    await ask("w", ["f"], { available: 1 });
    void ask("w", ["f"], { available: 1 });
    await settle();
    const before = asked.length;
    end("f", "a");
    await settle();
    expect(asked.length).toBe(before);
  });

  test("are found again by the slow look when a hint was lost", async () => {
    const { ask, enqueue, end, dispatcher } = house({ f: 1 });
    enqueue("f", "a", { count: 2 });
    await ask("w", ["f"], { available: 1 });
    const answer = ask("w", ["f"], { available: 1 });
    await settle();
    end("f", "a", false);
    await dispatcher.lookOnce();
    expect(keysOf(await answer)).toEqual(["a"]);
  });

  test("are looked at once a second, however often they are asked for", async () => {
    const { clock, ask, enqueue, looks } = house({ limited: 2 });
    // The first claim finds the limit, the second looks.
    for (let round = 0; round < 2; round++) await ask("w", ["limited", "busy"], { holdMs: 0 });
    expect(looks()).toBe(1);
    await clock.advance(1_001);
    for (let round = 0; round < 50; round++) {
      enqueue("busy");
      await ask("w", ["limited", "busy"]);
    }
    expect(looks()).toBe(2);
  });

  test("that another claim was at are tried again in a moment", async () => {
    const { ask, enqueue, busy, clock } = house({ f: 1 });
    busy.add("f:a");
    const answer = ask("w", ["f"], { available: 1 });
    await settle();
    enqueue("f", "a");
    await settle();
    await clock.advance(10);
    expect(keysOf(await answer)).toEqual(["a"]);
  });

  test("are no lanes any more when the function has lost its limit", async () => {
    const { ask, enqueue, limits, dispatcher } = house({ f: 1 });
    enqueue("f", "a", { count: 4 });
    expect(await ask("w", ["f"])).toHaveLength(1);
    delete limits.f;
    dispatcher.queued([{ environmentId, functionId: "f" }]);
    expect(await ask("w", ["f"])).toHaveLength(3);
  });

  test("runs are leased at creation only where no queued run is known", async () => {
    const { ask, dispatcher, enqueue } = house({ f: 1 });
    const reserve = (laneId: string | null) =>
      dispatcher.reserve({ environmentId, functionId: "f", laneId, actorId: null });
    expect(reserve("f:a")).toBeUndefined();
    enqueue("f", "b", { count: 2 });
    expect(await ask("w", ["f"], { available: 1 })).toHaveLength(1);
    void ask("w", ["f"]);
    await settle();
    expect(reserve(null)).toBeUndefined();
    expect(reserve("f:b")).toBeUndefined();
    expect(reserve("f:a")?.lease.workerId).toBe("w");
  });
});

describe("fairness", () => {
  test.each([1, 2, 3, 7])(
    "a light function waits at most one answer of a worker with %p places",
    async (available) => {
      const { ask, enqueue } = house();
      enqueue("heavy", undefined, { count: 2_000 });
      const functionIds = ["heavy", "light"];
      for (let round = 0; round < 20; round++) await ask("w", functionIds, { available });
      for (let round = 0; round < 10; round++) {
        enqueue("light");
        const seen = [
          ...functionsOf(await ask("w", functionIds, { available })),
          ...functionsOf(await ask("w", functionIds, { available })),
        ];
        expect(seen).toContain("light");
        expect(seen).toContain("heavy");
      }
    },
  );

  test("workers that take turns do not share a function each", async () => {
    const { ask, enqueue } = house();
    enqueue("heavy", undefined, { count: 1_000 });
    enqueue("light", undefined, { count: 1_000 });
    enqueue("own", undefined, { count: 1_000 });
    const seen: string[] = [];
    for (let round = 0; round < 20; round++) {
      seen.push(...(functionsOf(await ask("a", ["heavy", "light"], { available: 1 })) as string[]));
      await ask("b", ["own"], { available: 1 });
    }
    expect(seen.filter((name) => name === "light").length).toBeGreaterThanOrEqual(8);
    expect(seen.filter((name) => name === "heavy").length).toBeGreaterThanOrEqual(8);
  });

  test("places of a worker on its way back are shared out too", async () => {
    const { ask, enqueue, clock } = house();
    const functionIds = ["heavy", "light"];
    expect(await ask("w", functionIds, { reports: true, holdMs: 0 })).toEqual([]);
    enqueue("heavy", undefined, { count: 100, tells: false });
    enqueue("light", undefined, { count: 100, tells: false });
    await clock.advance(1);
    enqueue("heavy");
    enqueue("light");
    await settle();
    const seen: string[] = [];
    for (let round = 0; round < 4; round++) {
      seen.push(...(functionsOf(await ask("w", functionIds, { reports: true, holdMs: 0 })) as string[]));
      await settle();
    }
    expect(seen.filter((name) => name === "light").length).toBeGreaterThan(2);
    expect(seen.filter((name) => name === "heavy").length).toBeGreaterThan(2);
  });

  test("a function that had no work for long gets its part and no more for it", async () => {
    const { ask, enqueue } = house();
    enqueue("heavy", undefined, { count: 2_000 });
    const functionIds = ["heavy", "late"];
    for (let round = 0; round < 100; round++) await ask("w", functionIds, { available: 2 });
    enqueue("late", undefined, { count: 2_000 });
    const seen: string[] = [];
    for (let round = 0; round < 20; round++)
      seen.push(...(functionsOf(await ask("w", functionIds, { available: 2 })) as string[]));
    const late = seen.filter((name) => name === "late").length;
    expect(late).toBeGreaterThanOrEqual(15);
    expect(late).toBeLessThanOrEqual(25);
  });

  test("a paused function that is told of again and again takes nobody's turn", async () => {
    const { ask, enqueue, paused } = house();
    paused.add("halted");
    enqueue("halted", undefined, { count: 100 });
    enqueue("light", undefined, { count: 100 });
    for (let round = 0; round < 20; round++) {
      enqueue("halted");
      expect(functionsOf(await ask("w", ["halted", "light"], { available: 1 }))).toEqual(["light"]);
    }
  });

  test("of many functions with work each gets its turn", async () => {
    const { ask, enqueue } = house();
    const functionIds = Array.from({ length: 50 }, (_, n) => `f${n}`);
    for (const id of functionIds) enqueue(id, undefined, { count: 10 });
    const seen = new Set<string>();
    for (let round = 0; round < 50; round++)
      for (const name of functionsOf(await ask("w", functionIds, { available: 1 }))) seen.add(name!);
    expect(seen.size).toBe(50);
  });
});
