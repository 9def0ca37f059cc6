import { expect, test } from "bun:test";
import { type CombineOptions, combine } from "../../src/kit/combine.ts";

const combiner = (options: Pick<CombineOptions<string, string>, "flush">) =>
  combine<string, string>({
    ...{ name: "test", lanes: 1, laneOf: () => 0, itemsMax: 100, waitingMax: 1_000, isOfItem: () => true },
    ...options,
  });

/** Lets all that is ready to run, run. */
const settle = async () => {
  for (let round = 0; round < 20; round++) await Promise.resolve();
};

const outcome = (promise: Promise<string>) => promise.catch((error) => `failed: ${(error as Error).message}`);

test("behind the commit of a heavy flush the next one begins; callers hear in order, and drain waits for both", async () => {
  const open: { items: readonly string[]; committed: (isHeavy?: boolean) => void; end(): void }[] = [];
  const c = combiner({
    flush: (items, committed) =>
      new Promise((resolve) => {
        open.push({ items, committed, end: () => resolve(items.map((value) => ({ value }))) });
      }),
  });
  const heard: string[] = [];
  const submit = (item: string) => void c.submit(item).then((value) => heard.push(value));
  submit("a");
  await settle();
  submit("b");
  await settle();
  expect(open.map(({ items }) => items)).toEqual([["a"]]);
  open[0]!.committed(true);
  expect(open.map(({ items }) => items)).toEqual([["a"], ["b"]]);
  // Said again it frees nothing: the lane is the next flush's.
  submit("after");
  open[0]!.committed(true);
  await settle();
  expect(open).toHaveLength(2);
  open[1]!.committed();
  open[1]!.end();
  let isDrained = false;
  const drained = c.drain().then(() => {
    isDrained = true;
  });
  await settle();
  expect({ heard, isDrained }).toEqual({ heard: [], isDrained: false });
  open[0]!.end();
  await settle();
  open[2]!.end();
  await drained;
  expect(heard).toEqual(["a", "b", "after"]);
  // Of one that is not heavy the callers hear first.
  submit("c");
  await settle();
  submit("d");
  open[3]!.committed();
  await settle();
  expect(open).toHaveLength(4);
  open[3]!.end();
  await settle();
  expect(open.map(({ items }) => items)).toEqual([["a"], ["b"], ["after"], ["c"], ["d"]]);
  open[4]!.end();
  await c.drain();
});

test("what fails behind the commit of a heavy flush is told to its own callers, and nothing is written again", async () => {
  const writes: string[] = [];
  const c = combiner({
    async flush(items, committed) {
      writes.push(...items);
      await Promise.resolve();
      committed(true);
      await Promise.resolve();
      if (items.includes("bad")) throw new Error("behind the commit");
      return items.map((value) => ({ value }));
    },
  });
  const first = ["bad", "beside"].map((item) => outcome(c.submit(item)));
  await Promise.resolve();
  const second = outcome(c.submit("good"));
  expect([...(await Promise.all(first)), await second]).toEqual([
    ...["failed: behind the commit", "failed: behind the commit", "good"],
  ]);
  await c.drain();
  expect(writes).toEqual(["bad", "beside", "good"]);
});
