import { expect, test } from "bun:test";
import {
  outputLookMs,
  outputPaceMsEach,
  outputPaceMsMax,
  outputToldLookMs,
} from "../../src/domain/engine/runs/outputs/limits.ts";
import { openOutputNews } from "../../src/domain/engine/runs/outputs/output-news.ts";
import { testClock } from "../../src/kit/clock.ts";

const open = (count: number, hearsAll = false) => {
  const clock = testClock();
  const watched: string[] = [];
  let end = () => {};
  const watchEnd = (runId: string, onEnd: () => void) => {
    watched.push(runId);
    end = onEnd;
    return () => void watched.pop();
  };
  const news = openOutputNews({ clock, hearsAll: () => hearsAll, watchEnd });
  const seats = Array.from({ length: count }, () => news.join("run"));
  const stop = new AbortController();
  let woken = 0;
  const wait = () => {
    for (const seat of seats) void seat.wait(seat.version(), stop.signal).then(() => woken++);
  };
  const wokenNow = async () => {
    await clock.advance(0);
    return woken;
  };
  return { clock, news, seats, stop, wait, woken: wokenNow, watched, end: () => end() };
};

test("who waits is woken at once by the first write, and then by many writes together", async () => {
  const { clock, news, wait, woken } = open(100);
  wait();
  news.wake("another");
  expect(await woken()).toBe(0);
  news.wake("run");
  expect(await woken()).toBe(100);
  wait();
  for (let write = 0; write < 5; write++) news.wake("run");
  expect(await woken()).toBe(100);
  await clock.advance(100 * outputPaceMsEach);
  expect(await woken()).toBe(200);
});

test("however many they are, none waits longer than the most", async () => {
  const { clock, news, wait, woken } = open(2_000);
  wait();
  news.wake("run");
  expect(await woken()).toBe(2_000);
  wait();
  news.wake("run");
  await clock.advance(outputPaceMsMax);
  expect(await woken()).toBe(4_000);
});

test("a write that came between a look and the wait is not missed", async () => {
  const { clock, news, seats, stop, woken } = open(1);
  const [seat] = seats as [(typeof seats)[0]];
  const seen = seat.version();
  news.wake("run");
  await seat.wait(seen, stop.signal);
  const again = seat.version();
  news.wake("run");
  const waited = seat.wait(again, stop.signal);
  await clock.advance(1);
  await waited;
  expect(await woken()).toBe(0);
});

test("without news they look now and then, and who leaves waits no longer", async () => {
  const { clock, wait, stop, woken, seats } = open(3);
  wait();
  await clock.advance(outputLookMs);
  expect(await woken()).toBe(3);
  wait();
  stop.abort();
  expect(await woken()).toBe(6);
  for (const seat of seats) seat.leave();
});

test("where they are told of every write they look seldom, and at once where that ends", async () => {
  const { clock, news, wait, woken } = open(3, true);
  wait();
  await clock.advance(outputToldLookMs - 1);
  expect(await woken()).toBe(0);
  await clock.advance(1);
  expect(await woken()).toBe(3);
  wait();
  news.wakeEvery();
  await clock.advance(1);
  expect(await woken()).toBe(6);
});

test("readers of a run share one watch for its end", async () => {
  const { wait, woken, watched, end, seats } = open(3);
  expect(watched).toEqual(["run"]);
  wait();
  end();
  expect(await woken()).toBe(3);
  for (const seat of seats) seat.leave();
  expect(watched).toEqual([]);
});
