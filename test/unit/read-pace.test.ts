import { expect, test } from "bun:test";
import { freeReads, pauseMs, ReadPace, restShare, togetherMs } from "../../src/dashboard/lib/read-pace.ts";

/** When a page reads to which news comes at these times, where a read takes so long. */
function readsOf(news: readonly number[], tookMs = 0): number[] {
  const pace = new ReadPace();
  const reads: number[] = [];
  for (const at of news) {
    // News before the next read is in it, and none is asked for while one is under way.
    const last = reads.at(-1) ?? Number.NEGATIVE_INFINITY;
    if (at <= last || at < last + tookMs) continue;
    const next = at + pace.waitFrom(at);
    pace.began(next);
    pace.ended(next + tookMs);
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

test("a read of a second is made every four seconds", () => {
  const tookMs = 1_000;
  const reads = readsOf(
    Array.from({ length: 1_000 }, (_, at) => at * 100),
    tookMs,
  );
  const least = 100_000 / (restShare * tookMs);
  expect(reads.length).toBeGreaterThanOrEqual(least);
  expect(reads.length).toBeLessThanOrEqual(least + freeReads);
});
