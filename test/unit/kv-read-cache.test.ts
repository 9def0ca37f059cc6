import { expect, test } from "bun:test";
import { cachedMs } from "../../src/domain/state/kv/limits.ts";
import { ReadCache } from "../../src/domain/state/kv/read-queue.ts";
import type { ReadValue } from "../../src/domain/state/kv/rows.ts";

const ask = (key: string, bucket = "orders", environmentId = "e1") => ({ environmentId, bucket, key });
const read = (bucketRevision: number, expires_at: number | null = null, bucketId = "b1"): ReadValue => ({
  ...{ bucket_id: bucketId, bucket_revision: bucketRevision, revision: 1, value: "eA==", created_at: 0 },
  expires_at,
});

const cacheOf = (...reads: ReadValue[]) => {
  const cache = new ReadCache();
  for (const one of reads) cache.keep([ask("k")], [one], 0);
  return cache;
};

test("a value is kept once a second statement found its bucket unchanged", () => {
  expect(cacheOf(read(5)).find(ask("k"), 1)).toBeUndefined();
  expect(cacheOf(read(5), read(5)).find(ask("k"), 1)).toMatchObject({
    bucket: { bucket_id: "b1", bucket_revision: 5 },
  });
  expect(cacheOf(read(5), read(5), read(6)).find(ask("k"), 1)).toBeUndefined();
  expect(cacheOf(read(5), read(5), read(5, null, "b2")).find(ask("k"), 1)).toBeUndefined();
});

test("keys of one statement do not make their bucket quiet", () => {
  const cache = new ReadCache();
  cache.keep([ask("k"), ask("l")], [read(5), read(5)], 0);
  expect(cache.find(ask("k"), 1)).toBeUndefined();
});

test("what is older than its bucket, expired, or kept for long is read anew", () => {
  const cache = cacheOf(read(5), read(5));
  cache.keep([ask("l")], [read(6, 100)], 0);
  cache.keep([ask("l")], [read(6, 100)], 0);
  expect(cache.find(ask("k"), 1)).toBeUndefined();
  expect(cache.find(ask("l"), 99)).toBeDefined();
  expect(cache.find(ask("l"), 100)).toBeUndefined();
  const kept = cacheOf(read(5), read(5));
  expect(kept.find(ask("k"), cachedMs - 1)).toBeDefined();
  expect(kept.find(ask("k"), cachedMs)).toBeUndefined();
});

test("another environment, bucket or key, a missing key and a large value find nothing", () => {
  const cache = cacheOf(read(5), read(5));
  for (const other of [ask("k", "orders", "e2"), ask("k", "others"), ask("l")])
    expect(cache.find(other, 1)).toBeUndefined();
  const head = { bucket_id: "b1", bucket_revision: 5 };
  for (const none of [
    { ...head, revision: null },
    { ...head, revision: 1, value: null },
  ])
    expect(cacheOf(none, none).find(ask("k"), 1)).toBeUndefined();
});
