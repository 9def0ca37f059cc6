import { expect, test } from "bun:test";
import { freeReads, pauseMs, ReadPace, togetherMs } from "../../src/dashboard/lib/read-pace.ts";

/** When a page reads to which news comes at these times. */
function readsOf(news: readonly number[]): number[] {
  const pace = new ReadPace();
  const reads: number[] = [];
  for (const at of news) {
    // News before the next read is in it.
    if (at <= (reads.at(-1) ?? Number.NEGATIVE_INFINITY)) continue;
    const next = at + pace.waitFrom(at);
    pace.read(next);
    reads.push(next);
  }
  return reads;
}

test("what comes alone is read at once, after any quiet time", () => {
  expect(readsOf([0, 10_000, 10_000 + freeReads * pauseMs])).toEqual([
    0,
    10_000,
    10_000 + freeReads * pauseMs,
  ]);
});

test("what comes close together is read together", () => {
  expect(readsOf([0, 1, 2, togetherMs - 1])).toEqual([0, togetherMs]);
});

test("a stream of news is read once a pause, and each of it within a pause", () => {
  const news = Array.from({ length: 10_000 }, (_, at) => at * 10);
  const reads = readsOf(news);
  expect(reads.length).toBeLessThanOrEqual(100_000 / pauseMs + freeReads);
  for (const at of news) expect(reads.find((read) => read >= at)! - at).toBeLessThanOrEqual(pauseMs);
});
