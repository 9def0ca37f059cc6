import { afterEach, beforeEach, expect, type Mock, spyOn, test } from "bun:test";
import { createClient, createFunction, createWorker } from "../../src/sdk/index.ts";
import { SvcError } from "../../src/sdk/wire/errors.ts";
import { after, pause, reconnectDelayMs } from "../../src/sdk/wire/retry.ts";
import { Heartbeats } from "../../src/sdk/worker/heartbeats.ts";
import { RequestRecovery } from "../../src/sdk/worker/request-recovery.ts";
import { startFakeServer } from "../support/fake-server.ts";
import { until } from "../support/until.ts";

const silent = { debug() {}, info() {}, warn() {}, error() {} };
const timerMsMax = 2 ** 31 - 1;
const tooLong = [2 ** 31, 30 * 86_400_000, Number.POSITIVE_INFINITY];
let timers: Mock<(run: () => void, ms?: number) => unknown>;
beforeEach(() => {
  timers = spyOn(globalThis, "setTimeout") as never;
});
afterEach(() => timers.mockRestore());
const planned = () => timers.mock.calls.map(([, ms]) => ms);

test("a time that is longer than a timer keeps takes several of them", () => {
  const begun: [() => void, number | undefined][] = [];
  timers.mockImplementation(((run: () => void, ms?: number) => {
    begun.push([run, ms]);
    return 0;
  }) as never);
  let fired = 0;
  after(timerMsMax + 5, () => fired++);
  begun[0]![0]();
  expect([begun.map(([, ms]) => ms), fired]).toEqual([[timerMsMax, 5], 0]);
  begun[1]![0]();
  expect(fired).toBe(1);
});

test("pauses, heartbeats and limits that no timer keeps do not end at once", async () => {
  const over = new AbortController();
  const paused = tooLong.map((ms) => pause(ms, over.signal));
  const beats: number[] = [];
  const heartbeats = tooLong.map((ms) => new Heartbeats(ms, async (everyMs) => beats.push(everyMs) > 0));
  for (const one of heartbeats) one.start();
  expect(planned()).toEqual(Array(6).fill(timerMsMax));
  over.abort();
  for (const one of heartbeats) one.stop();
  await Promise.all(paused);
  expect(beats).toEqual([]);
});

test.each(tooLong)("a client and a drain wait for as long as they are told to: %p", async (timeoutMs) => {
  const server = startFakeServer();
  try {
    const client = createClient({ url: server.url, timeoutMs });
    const { promise: work, resolve: finish } = Promise.withResolvers<void>();
    const slow = createFunction({ id: "slow", event: "slow" }, () => work);
    const worker = createWorker({ client, functions: [slow], handleSignals: false, log: silent });
    await worker.start();
    await client.emit("slow", {});
    await until(() => worker.activeJobs === 1, { about: "the job" });
    const drained = worker.drain({ timeoutMs });
    setImmediate(finish);
    expect(await drained).toBe(true);
    expect([...server.runs.values()].map(({ status }) => status)).toEqual(["completed"]);
  } finally {
    await server.stop();
  }
});

test("what is no time is refused", async () => {
  const client = createClient({ url: "http://svc.test" });
  const functions = [createFunction({ id: "a", event: "a" }, () => 1)];
  expect(() => createClient({ url: "http://svc.test", timeoutMs: Number.NaN })).toThrow("timeoutMs must be");
  await expect(client.waitForRun("run_1", { timeoutMs: Number.NaN })).rejects.toThrow("timeoutMs must be");
  await expect(client.triggerSync("a", {}, { timeoutMs: Number.NaN })).rejects.toThrow("timeoutMs must be");
  await expect(createWorker({ client, functions }).drain({ timeoutMs: Number.NaN })).rejects.toThrow(
    "timeoutMs",
  );
  for (const option of ["checkpointMs", "heartbeatMs"])
    expect(() => createWorker({ client, functions, [option]: Number.NaN })).toThrow(`${option} must be`);
  for (const maxConcurrentJobs of [0, -1, 1.5, 1_001, Number.NaN, Number.POSITIVE_INFINITY, "4" as never])
    for (const transport of ["rest", "stream"] as const)
      expect(() => createWorker({ client, functions, transport, maxConcurrentJobs })).toThrow(
        "maxConcurrentJobs must be a whole number from 1 to 1000",
      );
});

test("a page of maintenance does not send a worker, or a subscription, away for an hour", async () => {
  const halt = new AbortController();
  const recovery = new RequestRecovery({
    register: async () => {},
    onMissingRoute: () => {},
    onDenied: () => {},
    halt: halt.signal,
    log: silent,
  });
  const away = new SvcError("unavailable", "maintenance", {
    status: 503,
    retryable: true,
    retryAfterMs: 3_600_000,
  });
  const recovered = recovery.recover(away, 0);
  expect(Math.max(...planned().map(Number))).toBe(10_000);
  halt.abort();
  await recovered;
  expect(reconnectDelayMs(1, away)).toBe(30_000);
});
