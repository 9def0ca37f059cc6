import { expect, test } from "bun:test";
import { testClock } from "../../src/kit/clock.ts";
import { semaphore } from "../../src/kit/in-turn.ts";
import { ttlCache } from "../../src/kit/ttl-cache.ts";

function fixture(entriesMax = 10) {
  const clock = testClock();
  const store = new Map<string, { value: number }>();
  const pending: (() => void)[] = [];
  const state = { reads: 0, hold: false, fail: false };
  const memory = ttlCache<{ value: number }>({
    clock,
    keptMs: 1_000,
    entriesMax,
    async read(key) {
      state.reads++;
      const value = store.get(key);
      if (state.hold) await new Promise<void>((go) => pending.push(go));
      if (state.fail) throw new Error("down");
      return value;
    },
  });
  return { clock, store, memory, state, release: () => pending.splice(0).forEach((go) => void go()) };
}

test("an answer is believed for its time, counted from before the read", async () => {
  const { clock, store, memory, state, release } = fixture();
  store.set("a", { value: 1 });
  state.hold = true;
  const asked = memory.get("a");
  await clock.advance(900);
  release();
  expect(await asked).toEqual({ value: 1 });
  expect(memory.peek("a")).toEqual({ value: 1 });
  await clock.advance(100);
  expect(memory.peek("a")).toBeUndefined();
});

test("askers at once share one read; what is missing is remembered too; a failure is not", async () => {
  const { memory, state } = fixture();
  expect(await Promise.all([memory.get("a"), memory.get("a"), memory.get("b")])).toEqual([
    undefined,
    undefined,
    undefined,
  ]);
  await memory.get("a");
  expect(state.reads).toBe(2);
  state.fail = true;
  await expect(memory.get("c")).rejects.toThrow("down");
  state.fail = false;
  expect(await memory.get("c")).toBeUndefined();
  expect(state.reads).toBe(4);
});

test("what was read before it was forgotten is not believed", async () => {
  const { store, memory, state, release } = fixture();
  store.set("a", { value: 1 });
  state.hold = true;
  const old = memory.get("a");
  memory.forget("a");
  store.set("a", { value: 2 });
  const young = memory.get("a");
  release();
  expect(await old).toEqual({ value: 1 });
  expect(await young).toEqual({ value: 2 });
  expect(memory.peek("a")).toEqual({ value: 2 });
});

test("a flood of missing keys pushes out none that exists, and memory is bounded", async () => {
  const { store, memory, state } = fixture(3);
  store.set("a", { value: 1 });
  await memory.get("a");
  for (let i = 0; i < 20; i++) await memory.get(`no ${i}`);
  expect(memory.peek("a")).toEqual({ value: 1 });
  const reads = state.reads;
  await memory.get("no 0");
  expect(state.reads).toBe(reads + 1);
});

test("at most so many run at once, in order, also when one fails", async () => {
  const run = semaphore(2);
  let running = 0;
  let most = 0;
  const order: number[] = [];
  const work = (place: number) => async () => {
    most = Math.max(most, ++running);
    await Promise.resolve();
    order.push(place);
    running--;
    if (place === 1) throw new Error("one fails");
  };
  const all = await Promise.allSettled([0, 1, 2, 3, 4].map((place) => run(work(place))));
  expect(all.map(({ status }) => status)).toEqual([
    "fulfilled",
    "rejected",
    "fulfilled",
    "fulfilled",
    "fulfilled",
  ]);
  expect(most).toBe(2);
  expect(order).toEqual([0, 1, 2, 3, 4]);
});
