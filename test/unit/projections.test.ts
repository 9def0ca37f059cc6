import { expect, test } from "bun:test";
import { BuildPace } from "../../src/domain/state/projections/fold-sizes.ts";
import {
  buildNearerMs,
  buildRestBusy,
  buildRestIdle,
  buildRestMsMax,
  projectionWaitsMax,
} from "../../src/domain/state/projections/limits.ts";
import { newGeneration } from "../../src/domain/state/projections/rows.ts";
import { definitionOf, eventNamesOf, runnerOf } from "../../src/domain/state/projections/rules.ts";
import { standingOf, takeLease } from "../../src/domain/state/projections/runners/leases.ts";
import { openSignals, Rest } from "../../src/domain/state/projections/runners/signals.ts";
import { openWaits } from "../../src/domain/state/projections/waits/service.ts";
import { testClock } from "../../src/kit/clock.ts";
import { Fault } from "../../src/kit/fault.ts";
import { silentLog } from "../../src/kit/log.ts";
import type { Store } from "../../src/store/store.ts";

test("events are matched by name and by pattern, and patterns say what their names begin with", () => {
  const names = eventNamesOf(["order.*", "order.line.>", "paid", "*"]);
  expect(["order.made", "order.line.a.b", "paid", "anything"].map((name) => names.matches(name))).toEqual(
    Array(4).fill(true),
  );
  expect(["order", "order.a.b"].map((name) => eventNamesOf(["order.*"]).matches(name))).toEqual([
    false,
    false,
  ]);
  expect([names.names, names.prefixes]).toEqual([["paid"], ["order.", "order.line.", ""]]);
});

test("a definition has defaults, and each event once", () => {
  expect(definitionOf({ name: "p", events: ["a", "a", "b.>"] })).toEqual({
    ...{ name: "p", events: ["a", "b.>"], mode: "managed", partitionPath: "", version: 1 },
    isRecording: false,
  });
});

test("the fence grows with each new holder, and a stream keeps its caller's other ways out", () => {
  const unnamed = runnerOf({ runnerId: "", fence: 0, generation: 0 }, { id: "ak_1", address: "10.0.0.1" });
  const other = runnerOf({ runnerId: "r", fence: 0, generation: 0 }, { id: "ak_1", address: "10.0.0.1" });
  const generation = newGeneration(
    { environment_id: "e", name: "p", generation: 1 },
    { after: 0, version: 1, isRecording: false, now: 0 },
  );
  const poll = { streamId: null, now: 1_000 };
  expect(standingOf(generation, unnamed, poll)).toBe("free");
  takeLease(generation, unnamed, { ...poll, hasWork: false });
  expect(generation.fence).toBe(1);
  takeLease(generation, unnamed, { streamId: "s", now: 1_000, hasWork: false });
  expect(generation.fence).toBe(1);
  expect(standingOf(generation, unnamed, poll)).toBe("another");
  expect(standingOf(generation, unnamed, { ...poll, streamId: "s" })).toBe("mine");
  expect(standingOf(generation, other, poll)).toBe("another");
  const later = { streamId: null, now: generation.lease_until };
  expect([standingOf(generation, unnamed, later), standingOf(generation, other, later)]).toEqual([
    "mine",
    "free",
  ]);
  takeLease(generation, other, { ...later, hasWork: true });
  expect([generation.fence, generation.holder]).toEqual([2, "runner:r"]);
});

test("a rest that was woken before it begins is over at once", async () => {
  const clock = testClock();
  const rest = new Rest();
  rest.wake();
  await rest.for(1_000, clock);
  let isOver = false;
  const resting = rest.for(1_000, clock).then(() => {
    isOver = true;
  });
  await clock.advance(999);
  expect(isOver).toBe(false);
  rest.wake();
  await resting;
  expect(isOver).toBe(true);
});

test("so many callers may wait at a node, and one more is asked to come again", async () => {
  const never = () => new Promise<never>(() => {});
  const store = {
    seams: { rowsFrom: () => ({ strings: [""], values: [] }) },
    all: never,
  } as unknown as Store;
  const waits = openWaits({
    ...{ store, clock: testClock(), log: silentLog, signals: openSignals() },
    passOver: never,
  });
  const request = { name: "p", minPosition: 1, partition: "" };
  const options = { timeoutMs: undefined, signal: new AbortController().signal };
  const share = (3 * projectionWaitsMax) / 4;
  for (let count = 0; count < share; count++) void waits.wait("env", request, options);
  expect(waits.size()).toBe(share);
  const refused = await waits.wait("env", request, options).catch((error: unknown) => error);
  expect(refused).toBeInstanceOf(Fault);
  expect(refused).toMatchObject({ kind: "resource_exhausted", headers: { "Retry-After": "1" } });
  // And leaves places to other environments.
  void waits.wait("env_other", request, options);
  expect(waits.size()).toBe(share + 1);
});

test("what is built beside rests while the log grows, and less where the end comes no nearer", async () => {
  const clock = testClock();
  let position = 0;
  const store = { one: async () => ({ position, retention_floor: 0 }) } as unknown as Store;
  const pace = new BuildPace({ store, clock }, "env_a");
  const after = async (head: number, reached: number) => {
    position = head;
    return pace.restMs(reached, 10);
  };
  expect(await after(1_000, 100)).toBe(10 * buildRestBusy);
  expect(await after(1_000, 200)).toBe(10 * buildRestIdle);
  expect(await after(1_001, 300)).toBe(10 * buildRestBusy);
  await clock.advance(buildNearerMs);
  expect(await after(2_000, 1_500)).toBe(10 * buildRestBusy);
  await clock.advance(buildNearerMs);
  expect(await after(4_000, 3_000)).toBe(5 * buildRestBusy);
  position++;
  expect(await pace.restMs(3_100, 60_000)).toBe(buildRestMsMax);
});
