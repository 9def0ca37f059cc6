import { expect, test } from "bun:test";
import { ReadTurns } from "../../src/store/libsql.ts";

/** Reads that take these milliseconds, asked for all at once: how long others had the loop before each. */
async function restsBefore(texts: readonly string[], tookMs: readonly number[]): Promise<number[]> {
  let at = 0;
  const rests: number[] = [];
  const turns = new ReadTurns({
    elapsed: () => at,
    async sleep(ms) {
      at += ms;
    },
  });
  for (const text of new Set(texts)) turns.took(text, 20);
  at += 1_000;
  let endedAt = at;
  await Promise.all(
    texts.map(async (text, index) => {
      await turns.turnOf(text);
      rests.push(at - endedAt);
      at += tookMs[index]!;
      endedAt = at;
      turns.took(text, tookMs[index]!);
    }),
  );
  return rests;
}

test("of reads that take long one runs at a time, and leaves others as much time as it took", async () => {
  expect(await restsBefore(["a", "b", "a"], [30, 20, 500])).toEqual([0, 30, 20]);
  expect(await restsBefore(["a", "a"], [500, 1])).toEqual([0, 100]);
});

test("a text that read little once still waits, and one that did so often no longer does", async () => {
  expect(await restsBefore(["a", "a", "a"], [1, 20, 20])).toEqual([0, 1, 20]);
  const turns = new ReadTurns({ elapsed: () => 0, sleep: async () => {} });
  turns.took("a", 20);
  for (let times = 0; times < 6; times++) turns.took("a", 1);
  expect(turns.turnOf("a")).toBeUndefined();
});
