import { expect, test } from "bun:test";
import {
  openIntake,
  streamWaitingBytesMax,
  weightOf,
} from "../../src/domain/engine/workers/stream/intake.ts";
import { streamWaitingMax } from "../../src/domain/engine/workers/stream/limits.ts";

const isReady = async (ready: Promise<void>) =>
  Promise.race([ready.then(() => true), new Promise((later) => setImmediate(() => later(false)))]);

test("what a worker has said waits in bytes, not only in messages", async () => {
  const intake = openIntake();
  const large = Array.from({ length: 5 }, () => ({ output: "x".repeat(4 * 1024 * 1024) }));
  for (const message of large.slice(0, 3)) intake.add(message);
  expect(await isReady(intake.ready())).toBe(true);
  intake.add(large[3]!);
  const waiting = intake.ready();
  expect(await isReady(waiting)).toBe(false);
  intake.remove([large[0]!]);
  expect(await isReady(waiting)).toBe(true);
  const small = Array.from({ length: streamWaitingMax }, (_, n) => ({ n }));
  for (const message of small) intake.add(message);
  expect(await isReady(intake.ready())).toBe(false);
  intake.close();
  expect(await isReady(intake.ready())).toBe(true);
});

test("a value is weighed no further than it matters", () => {
  const wide = { list: Array.from({ length: 1_000 }, (_, n) => ({ n, text: "abc" })) };
  expect(weightOf(wide, streamWaitingBytesMax)).toBeGreaterThan(1_000 * 3);
  expect(weightOf(wide, 100)).toBeLessThan(200);
  let deep: unknown = "end";
  for (let level = 0; level < 50_000; level++) deep = [deep];
  expect(weightOf(deep, streamWaitingBytesMax)).toBeGreaterThan(50_000);
});
