import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { type CombineOptions, combine, type ItemOutcome } from "../../src/kit/combine.ts";
import { Fault } from "../../src/kit/fault.ts";

interface Flushed {
  items: readonly string[];
  finish(outcomes?: ItemOutcome<string>[]): void;
  fail(error: unknown): void;
}

/** A combiner of texts whose flushes the test ends by hand; an item `a:k` has the key `k`. */
function combiner(options: Partial<CombineOptions<string, string>> = {}) {
  const open: Flushed[] = [];
  const made = combine<string, string>({
    name: "test",
    lanes: 1,
    laneOf: () => 0,
    keyOf: (item) => item.split(":")[1],
    itemsMax: 100,
    waitingMax: 1_000,
    isOfItem: () => false,
    flush: (items) =>
      new Promise((resolve, reject) => {
        open.push({
          items,
          finish: (outcomes = items.map((value) => ({ value }))) => resolve(outcomes),
          fail: reject,
        });
      }),
    ...options,
  });
  return { combiner: made, open, next: () => open.shift() as Flushed };
}

/** Lets all that is ready to run, run. */
const settle = async () => {
  for (let round = 0; round < 20; round++) await Promise.resolve();
};
/** Ends so many flushes, one after the other. Answers what each had. */
async function flushed(next: () => Flushed, rounds: number): Promise<(readonly string[])[]> {
  const seen: (readonly string[])[] = [];
  for (let round = 0; round < rounds; round++) {
    await settle();
    const flush = next();
    seen.push(flush.items);
    flush.finish();
  }
  return seen;
}

const outcome = (promise: Promise<string>) => promise.catch((error) => `failed: ${(error as Error).message}`);

describe("combine", () => {
  test("a first caller is flushed at once; later ones gather while it commits, in order", async () => {
    const { combiner: c, open, next } = combiner();
    const first = c.submit("a");
    await Promise.resolve();
    expect(open.map((flush) => flush.items)).toEqual([["a"]]);
    const rest = ["b", "c", "d"].map((item) => c.submit(item));
    await settle();
    expect(open).toHaveLength(1);
    next().finish();
    expect(await first).toBe("a");
    await settle();
    expect(open.map((flush) => flush.items)).toEqual([["b", "c", "d"]]);
    next().finish();
    expect(await Promise.all(rest)).toEqual(["b", "c", "d"]);
  });

  test("callers of one turn share the first flush", async () => {
    const { combiner: c, next } = combiner();
    const all = ["a", "b"].map((item) => c.submit(item));
    await settle();
    const flush = next();
    expect(flush.items).toEqual(["a", "b"]);
    flush.finish();
    await Promise.all(all);
  });

  test("one bad item fails alone, and one without an outcome is a defect", async () => {
    const { combiner: c, next } = combiner();
    const all = ["a", "b", "c"].map((item) => outcome(c.submit(item)));
    await settle();
    next().finish([{ value: "A" }, { error: new Error("bad") }]);
    expect(await Promise.all(all)).toEqual([
      "A",
      "failed: bad",
      "failed: test answered nothing about item 2",
    ]);
  });

  test("a flush that fails fails its own items only", async () => {
    const { combiner: c, next } = combiner({ itemsMax: 2 });
    const all = ["a", "b", "c"].map((item) => outcome(c.submit(item)));
    await settle();
    next().fail(new Error("down"));
    await settle();
    next().finish();
    expect(await Promise.all(all)).toEqual(["failed: down", "failed: down", "c"]);
  });

  test("a flush that throws before it promises anything fails its items", async () => {
    const { combiner: c } = combiner({
      flush: () => {
        throw new Error("at once");
      },
    });
    expect(await outcome(c.submit("a"))).toBe("failed: at once");
  });

  test("of a flush that one item spoils, that item fails alone; no item runs twice after it succeeded", async () => {
    const { combiner: c, next } = combiner({
      keyOf: () => undefined,
      isOfItem: (error) => (error as Error).message === "bad value",
    });
    const all = ["a", "b", "bad", "c"].map((item) => outcome(c.submit(item)));
    const seen: (readonly string[])[] = [];
    while (seen.length < 5) {
      await settle();
      const flush = next();
      seen.push(flush.items);
      if (flush.items.includes("bad")) flush.fail(new Error("bad value"));
      else flush.finish();
    }
    expect(seen).toEqual([["a", "b", "bad", "c"], ["a", "b"], ["bad", "c"], ["bad"], ["c"]]);
    expect(await Promise.all(all)).toEqual(["a", "b", "failed: bad value", "c"]);
    await c.drain();
  });

  test("one bad item among n costs at most 2 log2 n flushes more, n bad ones 2n - 2", async () => {
    for (const size of [2, 3, 40, 128]) {
      for (const badCount of [1, size]) {
        let flushes = 0;
        const c = combine<number, number>({
          name: "test",
          lanes: 1,
          laneOf: () => 0,
          itemsMax: size,
          waitingMax: size,
          isOfItem: () => true,
          async flush(items) {
            flushes++;
            if (items.some((item) => item < badCount)) throw new Error("bad");
            return items.map((value) => ({ value }));
          },
        });
        const all = Array.from({ length: size }, (_, item) => c.submit(item).catch(() => -1));
        const answers = await Promise.all(all);
        expect(answers.filter((answer) => answer === -1)).toHaveLength(badCount);
        const most = badCount === 1 ? 2 * Math.ceil(Math.log2(size)) : 2 * size - 2;
        expect(flushes - 1).toBeLessThanOrEqual(most);
      }
    }
  });

  test("a flush whose failure is no item's fails as a whole, also when the question about it throws", async () => {
    const { combiner: c, next } = combiner({
      isOfItem: () => {
        throw new Error("asked");
      },
    });
    const all = ["a", "b"].map((item) => outcome(c.submit(item)));
    await settle();
    next().fail(new Error("down"));
    expect(await Promise.all(all)).toEqual(["failed: down", "failed: down"]);
  });

  test("a flush that throws behind its commit writes nothing again", async () => {
    const written: string[] = [];
    const { combiner: combined } = combiner({
      isOfItem: () => true,
      async flush(items, committed) {
        written.push(...items);
        committed();
        throw new Error("nobody could be told");
      },
    });
    const answers = await Promise.all(["a", "b", "c"].map((item) => outcome(combined.submit(item))));
    expect(answers).toEqual(Array(3).fill("failed: nobody could be told"));
    expect(written).toEqual(["a", "b", "c"]);
  });

  test("what waits is bounded: the rest is told to come back", async () => {
    const { combiner: c, next } = combiner({ waitingMax: 3, weigh: (item) => Number(item) });
    const first = c.submit("1");
    await settle();
    const waiting = [c.submit("1"), c.submit("2")];
    const refusal = await c.submit("1").catch((error) => error);
    expect(refusal).toBeInstanceOf(Fault);
    expect(refusal.kind).toBe("resource_exhausted");
    expect(refusal.headers).toEqual({ "Retry-After": "1" });
    expect(c.counters()).toEqual({ flushes: 1, items: 1, largest: 1, waiting: 3, refused: 1 });
    next().finish();
    await settle();
    next().finish();
    await Promise.all([first, ...waiting]);
    // An item heavier than all that may wait is still taken when nothing does.
    const heavy = c.submit("50");
    await settle();
    next().finish();
    expect(await heavy).toBe("50");
  });

  test("weights fill a flush, and an item heavier than a flush goes alone", async () => {
    const { combiner: c, next } = combiner({ itemsMax: 10, weigh: (item) => Number(item) });
    const all = ["6", "4", "1", "99", "2"].map((item) => c.submit(item));
    expect(await flushed(next, 4)).toEqual([["6", "4"], ["1"], ["99"], ["2"]]);
    await Promise.all(all);
  });

  test("a flush takes so many items at most, and so much weight where that is given apart", async () => {
    const { combiner: c, next } = combiner({ itemsMax: 2, weightMax: 10, weigh: (item) => Number(item) });
    const all = ["1", "1", "1", "9", "1"].map((item) => c.submit(item));
    expect(await flushed(next, 3)).toEqual([["1", "1"], ["1", "9"], ["1"]]);
    await Promise.all(all);
  });

  test("lanes do not wait for each other", async () => {
    const { combiner: c, next } = combiner({ lanes: 2, laneOf: (item) => Number(item[0]) });
    const stuck = c.submit("0a");
    await settle();
    const stuckFlush = next();
    const free = c.submit("1a");
    await settle();
    next().finish();
    expect(await free).toBe("1a");
    stuckFlush.finish();
    await stuck;
  });

  test("items of one key never share a flush and keep their order; others pass", async () => {
    const { combiner: c, next } = combiner();
    const all = ["a:k", "b:k", "c:l", "d:k", "e"].map((item) => c.submit(item));
    expect(await flushed(next, 3)).toEqual([["a:k", "c:l", "e"], ["b:k"], ["d:k"]]);
    await Promise.all(all);
  });

  test("drain waits for all that was submitted", async () => {
    const { combiner: c, next } = combiner({ itemsMax: 1 });
    await c.drain();
    void c.submit("a");
    void c.submit("b");
    let drained = false;
    const waits = c.drain().then(() => {
      drained = true;
    });
    await settle();
    next().finish();
    await settle();
    expect(drained).toBe(false);
    next().finish();
    await waits;
  });

  test("over random schedules every item is settled once, in order, within every bound", async () => {
    const action = fc.oneof(
      {
        weight: 4,
        arbitrary: fc.record({ lane: fc.nat(1), key: fc.nat(4), weight: fc.integer({ min: 1, max: 4 }) }),
      },
      { weight: 2, arbitrary: fc.constantFrom("finish", "fail", "split", "commit", "last") },
    );
    const schedule = fc.array(action, { maxLength: 120 });
    await fc.assert(
      fc.asyncProperty(schedule, async (actions) => {
        interface Item {
          place: number;
          lane: number;
          key: string | undefined;
          weight: number;
        }
        const itemsMax = 5;
        const pending: { items: readonly Item[]; isCommitted: boolean; end(how: string): void }[] = [];
        const done: number[] = [];
        const breaches: string[] = [];
        // What is thrown inside a flush only fails its items.
        const require = (held: boolean, rule: string) => void (held || breaches.push(rule));
        const started: Item[] = [];
        const c = combine<Item, number>({
          name: "random",
          lanes: 2,
          laneOf: (item) => item.lane,
          keyOf: (item) => item.key,
          weigh: (item) => item.weight,
          itemsMax,
          waitingMax: 40,
          flush(items, committed) {
            const busy = pending.flatMap((flush) => (flush.isCommitted ? [] : flush.items));
            const keys = items.flatMap((item) => item.key ?? []);
            require(new Set(keys).size === keys.length, "a key twice in a flush");
            for (const other of busy) {
              if (other.lane === items[0]?.lane && other.key !== undefined)
                require(!keys.includes(other.key), "a key in two flushes");
            }
            require(new Set(items.map((item) => item.lane)).size === 1, "lanes mixed");
            const weight = items.reduce((all, item) => all + item.weight, 0);
            require(items.length === 1 || weight <= itemsMax, "too heavy");
            require(!items.some((item) => done.includes(item.place)), "run again after success");
            started.push(...items);
            return new Promise((resolve, reject) => {
              const flush = {
                items,
                isCommitted: false,
                end(how: string) {
                  if (how === "commit") {
                    if (flush.isCommitted) return;
                    flush.isCommitted = true;
                    for (const item of items) done.push(item.place);
                    return committed(true);
                  }
                  pending.splice(pending.indexOf(flush), 1);
                  if (how !== "finish") return reject(new Error(how));
                  if (!flush.isCommitted) for (const item of items) done.push(item.place);
                  resolve(
                    items.map((item) =>
                      item.place % 7 === 6 ? { error: new Error("bad") } : { value: item.place },
                    ),
                  );
                },
              };
              pending.push(flush);
            });
          },
          isOfItem: (error) => (error as Error).message === "split",
        });

        let settled = 0;
        let submitted = 0;
        const heard: Item[] = [];
        for (const step of actions) {
          if (step === "last") pending.at(-1)?.end("finish");
          else if (typeof step === "string") pending[0]?.end(step);
          else {
            const place = submitted++;
            const item = { ...step, place, key: step.key === 0 ? undefined : `k${step.key}` };
            void c
              .submit(item)
              .then((value) => require(value === place, "another item's answer"))
              .catch(() => {})
              .finally(() => {
                settled++;
                heard.push(item);
              });
          }
          if (submitted % 3 === 0) await settle();
        }
        await settle();
        while (pending.length > 0) {
          pending[0]?.end("finish");
          await settle();
        }
        await c.drain();
        await settle();
        expect(breaches).toEqual([]);
        expect(settled).toBe(submitted);
        expect(c.counters().waiting).toBe(0);
        // Per lane and key, and in a lane without keys, what is first tried first came first.
        const firstTries = started.filter(
          (item, at) => started.findIndex((one) => one.place === item.place) === at,
        );
        for (const lane of [0, 1]) {
          for (const key of [undefined, "k1", "k2", "k3", "k4"]) {
            const places = firstTries
              .filter((item) => item.lane === lane && item.key === key)
              .map((item) => item.place);
            expect(places).toEqual([...places].sort((a, b) => a - b));
            const ofKey = heard.filter(
              (one) => one.lane === lane && one.key === key && started.includes(one),
            );
            if (key !== undefined) expect(ofKey.map((item) => item.place)).toEqual(places);
          }
        }
      }),
      { numRuns: 150 },
    );
  });
});
