import { describe, expect, test } from "bun:test";
import { openMetrics } from "../../src/edge/metrics.ts";
import { testClock } from "../../src/kit/clock.ts";
import { combine } from "../../src/kit/combine.ts";
import { systemIds, timeOfId } from "../../src/kit/ids.ts";
import { loop } from "../../src/kit/loop.ts";
import { noMetrics } from "../../src/kit/metrics.ts";
import { noTracer, type Tracer } from "../../src/kit/trace.ts";
import { cachedQuery } from "../../src/kit/ttl-cache.ts";
import { watchFlushes, watchLoop, watchWaiting } from "../../src/kit/watch.ts";
import { pool } from "../../src/store/pool.ts";
import { watchConflicts, watchPool, watchWaits } from "../../src/store/postgres-watch.ts";
import { StoreError } from "../../src/store/store.ts";
import { samplesOf } from "../support/metrics.ts";

function open() {
  const errors: unknown[] = [];
  const metrics = openMetrics({ onError: (error) => errors.push(error) });
  const read = async () => samplesOf(await metrics.text());
  return { metrics, errors, read };
}

describe("metrics", () => {
  test("count, show and measure, with labels in the order of their names", async () => {
    const { metrics, read } = open();
    const doors = metrics.counter({ name: "doors_total", help: "Doors.", labels: ["side", "colour"] });
    doors("left", "red").add();
    doors("left", "red").add(2);
    doors("right", "red");
    metrics.gauge({ name: "height_metres", help: "Height." })().set(1.5);
    const steps = metrics.histogram({ name: "steps", help: "Steps.", buckets: [1, 10] })();
    steps.observe(4);
    expect(await read()).toMatchObject({
      'doors_total{side="left",colour="red"}': 3,
      // Nothing has happened there yet, and that is said.
      'doors_total{side="right",colour="red"}': 0,
      height_metres: 1.5,
      'steps_bucket{le="1"}': 0,
      'steps_bucket{le="10"}': 1,
      steps_sum: 4,
      steps_count: 1,
    });
  });

  test("of one name are one, also when two ask for it", async () => {
    const { metrics, read } = open();
    const ask = () => metrics.counter({ name: "rooms_total", help: "Rooms.", labels: ["floor"] });
    ask()("one").add();
    ask()("one").add();
    expect((await read())['rooms_total{floor="one"}']).toBe(2);
  });

  test("take no nonsense, and never throw", async () => {
    const { metrics, read } = open();
    const counter = metrics.counter({ name: "odd_total", help: "Odd." })();
    const histogram = metrics.histogram({ name: "odd", help: "Odd.", buckets: [1] })();
    counter.add(-1);
    counter.add(Number.NaN);
    histogram.observe(Number.NaN);
    histogram.observe(Number.POSITIVE_INFINITY);
    expect(await read()).toMatchObject({ odd_total: 0, odd_count: 0 });
  });

  test("say nothing rather than something old", async () => {
    const { metrics, read } = open();
    const plain = metrics.gauge({ name: "plain", help: "Plain." })();
    const labelled = metrics.gauge({ name: "labelled", help: "Labelled.", labels: ["a"] })("b");
    expect(Object.keys(await read())).not.toContain("plain");
    plain.set(1);
    labelled.set(2);
    expect(await read()).toMatchObject({ plain: 1, 'labelled{a="b"}': 2 });
    plain.set(undefined);
    labelled.set(undefined);
    const names = Object.keys(await read());
    expect(names.filter((name) => /^(plain|labelled)/.test(name))).toEqual([]);
  });

  test("are looked up before each reading; one that fails spares the others, and readers share", async () => {
    const { metrics, errors, read } = open();
    let looks = 0;
    const gauge = metrics.gauge({ name: "looked", help: "Looked." })();
    metrics.beforeReading(() => {
      throw new Error("sync");
    });
    metrics.beforeReading(async () => Promise.reject(new Error("async")));
    metrics.beforeReading(async () => gauge.set(++looks));
    await Promise.all([read(), read()]);
    expect((await read()).looked).toBe(2);
    expect(errors.map((error) => (error as Error).message)).toEqual(["sync", "async", "sync", "async"]);
  });

  test("of the process are there, the event loop's lag among them", async () => {
    const names = Object.keys(await open().read());
    for (const name of ["process_cpu_seconds_total", "nodejs_eventloop_lag_p99_seconds"])
      expect(names).toContain(name);
    // They cost a walk over the whole heap.
    expect(names.filter((name) => name.includes("heap_space"))).toEqual([]);
  });

  test("that nobody reads cost and keep nothing", () => {
    const family = noMetrics.counter({ name: "x", help: "X.", labels: ["a"] });
    expect(family("1")).toBe(family("2"));
    expect(noMetrics.on).toBe(false);
    noMetrics
      .histogram({ name: "x", help: "X.", buckets: [1] })()
      .observe(1);
    noMetrics.gauge({ name: "x", help: "X." })().set(1);
    noMetrics.beforeReading(() => expect.unreachable());
    expect(watchFlushes({ metrics: noMetrics, tracer: noTracer }, testClock(), "f")).toBeUndefined();
  });
});

describe("what is watched", () => {
  test("a loop: its progress and its failures, each counted once", async () => {
    const { metrics, read } = open();
    const clock = testClock(1_700_000_000_000);
    let fails = false;
    const one = loop(
      { clock, onError: () => {} },
      {
        name: "some.loop",
        about: "Tested.",
        everyMs: 1_000,
        async tick() {
          if (fails) throw new Error("no");
        },
      },
    );
    watchLoop(metrics, one);
    const progress = 'svc_loop_last_progress_timestamp_seconds{loop="some.loop"}';
    const failures = 'svc_loop_failures_total{loop="some.loop"}';
    expect((await read())[progress]).toBeUndefined();
    one.start();
    await clock.advance(0);
    expect(await read()).toMatchObject({ [progress]: 1_700_000_000, [failures]: 0 });
    fails = true;
    await clock.advance(1_000);
    await read();
    expect(await read()).toMatchObject({ [progress]: 1_700_000_000, [failures]: 1 });
    await one.stop();
  });

  test("flushes: sizes, times, failures' spans, what waits and what was refused", async () => {
    const { metrics, read } = open();
    const clock = testClock();
    const spans: string[] = [];
    const tracer: Tracer = {
      on: true,
      start(name, kind) {
        const said = [name, kind];
        return {
          traceparent: undefined,
          set: (attribute, value) => void said.push(`${attribute}=${value}`),
          end: (failed) => void spans.push([...said, failed ?? "ok"].join(" ")),
        };
      },
      record() {},
    };
    let outcome = Promise.withResolvers<void>();
    const combiner = combine<number, number>({
      name: "some.flush",
      lanes: 1,
      laneOf: () => 0,
      itemsMax: 2,
      waitingMax: 3,
      isOfItem: () => false,
      watch: watchFlushes({ metrics, tracer }, clock, "some.flush"),
      async flush(items) {
        await outcome.promise;
        return items.map((value) => ({ value }));
      },
    });
    watchWaiting(metrics, combiner);
    const answers = Array.from({ length: 6 }, (_, n) => combiner.submit(n).catch(() => "refused"));
    await Promise.resolve();
    const label = '{flush="some.flush"}';
    expect(await read()).toMatchObject({
      [`svc_flush_waiting${label}`]: 1,
      [`svc_flush_refused_total${label}`]: 3,
      [`svc_flush_items_count${label}`]: 0,
    });
    await clock.advance(250);
    outcome.resolve();
    expect(await Promise.all(answers)).toEqual([0, 1, 2, "refused", "refused", "refused"]);
    outcome = Promise.withResolvers();
    const lost = combiner.submit(9).catch(() => "failed");
    outcome.reject(new Error("gone"));
    expect(await lost).toBe("failed");
    expect(await read()).toMatchObject({
      [`svc_flush_waiting${label}`]: 0,
      [`svc_flush_refused_total${label}`]: 3,
      [`svc_flush_items_count${label}`]: 3,
      [`svc_flush_items_sum${label}`]: 4,
      [`svc_flush_duration_seconds_sum${label}`]: 0.25,
    });
    expect(spans).toEqual(
      ["2 ok", "1 ok", "1 failed"].map((end) => `flush some.flush client svc.flush.items=${end}`),
    );
  });

  test("a pool: what is open, in use and waited for, and for how long", async () => {
    const { metrics, read } = open();
    const clock = testClock();
    const onWaited = watchWaits(metrics, "p")!;
    const clients = pool({
      clock,
      sizeMax: 1,
      waitMsMax: 1_000,
      onWaited,
      open: async () => ({ usable: () => true, destroy() {} }),
    });
    watchPool(metrics, "p", clients);
    const now = async () => {
      const all = await read();
      const of = (name: string) => all[`svc_store_pool_${name}{pool="p"}`];
      return [
        of("connections"),
        of("in_use"),
        of("waiting"),
        of("wait_seconds_count"),
        of("wait_seconds_sum"),
      ];
    };
    expect(await now()).toEqual([0, 0, 0, 0, 0]);
    const first = await clients.acquire();
    const second = clients.acquire();
    const third = clients.acquire().catch((error: unknown) => error);
    expect(await now()).toEqual([1, 1, 2, 0, 0]);
    await clock.advance(500);
    clients.release(first);
    const held = await second;
    expect(await now()).toEqual([1, 1, 1, 1, 0.5]);
    await clock.advance(500);
    expect(await third).toMatchObject({ trouble: "unavailable" });
    clients.release(held);
    expect(await now()).toEqual([1, 0, 0, 2, 1.5]);
    clients.close();
  });

  test("conflicts by their kind, whether they come bare or as the port's own error", async () => {
    const { metrics, read } = open();
    const count = watchConflicts(metrics);
    const bare = (code: string) => Object.assign(new Error(code), { code });
    count(bare("40P01"));
    count(bare("40001"));
    count(bare("40001"));
    count(new StoreError("lock_timeout", "held", bare("55P03")));
    count(bare("23505"));
    count(new Error("something else"));
    const kinds = await read();
    const of = (kind: string) => kinds[`svc_store_conflicts_total{kind="${kind}"}`];
    expect(["deadlock", "serialization", "lock_timeout"].map(of)).toEqual([1, 2, 1]);
  });
});

describe("a question that may get stuck", () => {
  test("is asked once for all, believed for a while, and not waited for too long", async () => {
    const clock = testClock();
    const asked: PromiseWithResolvers<number>[] = [];
    const value = cachedQuery({
      clock,
      keptMs: 100,
      waitMsMax: 50,
      query() {
        const one = Promise.withResolvers<number>();
        asked.push(one);
        return one.promise;
      },
    });
    const both = [value(), value()];
    asked[0]!.resolve(1);
    expect(await Promise.all(both)).toEqual([1, 1]);
    expect(await value()).toBe(1);
    await clock.advance(100);
    const late = value();
    await clock.advance(50);
    expect(await late).toBeUndefined();
    // It is still on its way: nobody asks a second time.
    const again = value();
    expect(asked).toHaveLength(2);
    asked[1]!.resolve(2);
    expect(await again).toBe(2);
    await clock.advance(100);
    const failed = value();
    asked[2]!.reject(new Error("down"));
    expect(await failed).toBeUndefined();
  });
});

test("an id says when it was made", () => {
  const clock = testClock(1_700_000_000_123);
  const ids = systemIds(clock);
  expect(timeOfId(ids.next("run"))).toBe(1_700_000_000_123);
  expect(timeOfId(ids.next("run"))).toBe(1_700_000_000_123);
  for (const other of ["", "run_", "run_short", "nothing", `run_${"u".repeat(26)}`, `run_${"0".repeat(27)}`])
    expect(timeOfId(other)).toBeUndefined();
});
