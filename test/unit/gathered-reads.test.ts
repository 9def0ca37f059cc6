import { expect, test } from "bun:test";
import { testClock } from "../../src/kit/clock.ts";
import { gatheredReads } from "../../src/kit/gathered-reads.ts";

function reads(read = async (keys: readonly string[]) => new Map(keys.map((key) => [key, `row ${key}`]))) {
  const clock = testClock();
  const queries: string[] = [];
  const find = gatheredReads<string>({
    ...{ clock, keysMax: 3 },
    read(keys) {
      queries.push(keys.join(" "));
      return read(keys);
    },
  });
  return { clock, queries, find };
}

test("what is asked for in one turn is one query, each key once, in slices", async () => {
  const { clock, queries, find } = reads();
  const all = Promise.all(["a", "b", "a", "c", "d"].map(find));
  expect(queries).toEqual([]);
  await clock.advance(0);
  expect(await all).toEqual(["row a", "row b", "row a", "row c", "row d"]);
  expect(queries).toEqual(["a b c", "d"]);
  const again = find("a");
  await clock.advance(0);
  expect(await again).toBe("row a");
  expect(queries).toHaveLength(3);
});

test("a key that has no row is undefined, and a query that fails fails for those who asked it", async () => {
  const { clock, find } = reads(async (keys) => {
    if (keys.includes("broken")) throw new Error("no answer");
    return new Map();
  });
  const none = find("a");
  await clock.advance(0);
  expect(await none).toBeUndefined();
  const broken = Promise.allSettled([find("broken"), find("b")]);
  await clock.advance(0);
  expect((await broken).map(({ status }) => status)).toEqual(["rejected", "rejected"]);
});
