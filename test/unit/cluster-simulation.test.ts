import { describe, expect, test } from "bun:test";
import { combinePaceMs } from "../../src/kit/flush-queue.ts";
import { type Cluster, type Costs, type Load, simulate } from "../bench/cluster-simulation.ts";
import { benchMachine, measuredCosts } from "../bench/measured-costs.ts";
import { Disk, Pool, Timeline } from "../bench/simulated-time.ts";

const cluster: Cluster = {
  ...{ nodes: 2, postgresCores: 4, environments: 20, hottest: 0.2, costs: measuredCosts },
};
const load: Load = { runsPerS: 500, seconds: 4, seed: 7 };
const nothing = Object.fromEntries(Object.keys(measuredCosts).map((name) => [name, 0])) as unknown as Costs;

describe("the simulation of a cluster", () => {
  test("the same seed has the same result, another one another", () => {
    expect(simulate(cluster, load)).toEqual(simulate(cluster, load));
    expect(simulate(cluster, { ...load, seed: 8 })).not.toEqual(simulate(cluster, load));
  });

  test("all work that was asked for is done, and no other", () => {
    for (const one of [cluster, benchMachine]) {
      const { workedMs, askedMs, offered, ended, flushes } = simulate(one, load);
      expect(workedMs).toBeCloseTo(askedMs, 3);
      expect(ended).toBe(offered);
      const { emitMs, handMs, reportMs, nodeFlushMs, storeFlushMs, storeEmitMs, storeReportMs, workerMs } =
        one.costs;
      const perRun = emitMs + handMs + reportMs + storeEmitMs + storeReportMs + workerMs;
      const least = offered * perRun + flushes * (nodeFlushMs + storeFlushMs);
      // The rest are hints, which a single node has none of.
      if (one.nodes === 1) expect(workedMs).toBeCloseTo(least, 3);
      else expect(workedMs).toBeGreaterThan(least);
    }
  });

  test("no flush of a lane begins before its pace, or before the one before it is over", () => {
    const { flushes, earlyFlushes, leastWaitMs } = simulate(benchMachine, {
      ...load,
      runsPerS: 2_000,
      isEven: true,
    });
    expect(earlyFlushes).toBe(0);
    expect(leastWaitMs).toBeGreaterThan(0);
    // Two lanes, each with a flush a pace at most, but for the first ones.
    expect(flushes).toBeLessThan(((2 * load.seconds * 1_000) / combinePaceMs) * 1.3);
  });

  test("a run waits for no less than what it costs", () => {
    const lone = simulate(cluster, { runsPerS: 1, seconds: 20, seed: 3 });
    const { emitMs, handMs, reportMs, nodeFlushMs, storeFlushMs, storeEmitMs, storeReportMs, ...rest } =
      measuredCosts;
    const own = emitMs + handMs + reportMs + 2 * nodeFlushMs + 2 * storeFlushMs + storeEmitMs + storeReportMs;
    expect(lone.p50Ms).toBeCloseTo(own + 2 * rest.syncMs + rest.workerMs + rest.wayMs, 3);
  });

  const full: [resource: string, cluster: Cluster, capacityPerS: number][] = [
    ["event loops of nodes", { ...cluster, nodes: 1, costs: { ...nothing, emitMs: 1 } }, 1_000],
    [
      "cores of PostgreSQL",
      { ...cluster, environments: 1_000, hottest: 0, costs: { ...nothing, storeEmitMs: 4 } },
      1_000,
    ],
    [
      "head of the busiest environment",
      { ...cluster, environments: 1, postgresCores: 64, costs: { ...nothing, storeEmitMs: 1 } },
      1_000,
    ],
  ];
  test.each(full)("%s are full where they are used whole, and not before", (resource, one, capacityPerS) => {
    const at = (share: number) => simulate(one, { runsPerS: capacityPerS * share, seconds: 10, seed: 5 });
    const below = at(0.8);
    expect(below.completed / below.offered).toBeGreaterThan(0.95);
    expect(below.utilisation[resource]!).toBeCloseTo(0.8, 1);
    const above = at(1.3);
    expect(above.first).toBe(resource);
    expect(above.utilisation[resource]!).toBeGreaterThan(0.95);
    expect(above.utilisation[resource]!).toBeLessThanOrEqual(1.000_001);
    expect(above.completed / 10).toBeLessThan(capacityPerS * 1.05);
    // The queue grows as long as the load goes on.
    expect(above.p99Ms).toBeGreaterThan(5 * below.p99Ms);
  });

  test("a disk syncs once for all that wait", () => {
    const time = new Timeline();
    const disk = new Disk(time, 2);
    const ends: number[] = [];
    for (const at of [0, 0.5, 1]) time.after(at, () => disk.sync(() => ends.push(time.now)));
    time.runUntil(10);
    expect(ends).toEqual([2, 4, 4]);
    expect(disk.busyUntil()).toBe(4);
  });

  test("a pool of two works on two at once, in their order", () => {
    const time = new Timeline();
    const pool = new Pool(time, 2);
    const ends: [number, number][] = [];
    for (const one of [0, 1, 2]) pool.hold(10, () => ends.push([one, time.now]));
    time.runUntil(100);
    expect(ends).toEqual([
      [0, 10],
      [1, 10],
      [2, 20],
    ]);
    expect(pool.heldUntil()).toBe(30);
  });
});
