import { expect, test } from "bun:test";
import { gatherings, openPublishPace } from "../../src/edge/publish-pace.ts";
import { testClock } from "../../src/kit/clock.ts";

function paced(readers: Record<string, number>) {
  const clock = testClock();
  const sent: string[] = [];
  const pace = openPublishPace({
    clock,
    send: (channelId, text) => void sent.push(`${channelId}:${text}`),
    readersOf: (channelId) => readers[channelId] ?? 0,
  });
  return { clock, sent, pace };
}

test("the first text goes at once; those behind it gather, longer the more connections read", async () => {
  const { clock, sent, pace } = paced({ a: 200 });
  pace.publish("a", "1", "data");
  expect(sent).toEqual(["a:1"]);
  pace.publish("a", "2", "data");
  await clock.advance(19);
  pace.publish("a", "3", "data");
  expect(sent).toEqual(["a:1"]);
  await clock.advance(1);
  expect(sent).toEqual(["a:1", "a:2", "a:3"]);
  await clock.advance(20);
  pace.publish("a", "4", "data");
  expect(sent).toHaveLength(4);
});

test("hints gather for longer than data, which takes along what has gathered", async () => {
  const { clock, sent, pace } = paced({ a: 150, b: 1 });
  pace.publish("a", "1", "hints");
  pace.publish("a", "2", "hints");
  await clock.advance(99);
  expect(sent).toEqual(["a:1"]);
  await clock.advance(1);
  expect(sent).toEqual(["a:1", "a:2"]);
  pace.publish("a", "3", "hints");
  pace.publish("b", "4", "data");
  await clock.advance(15);
  expect(sent.slice(2)).toEqual(["a:3", "b:4"]);
});

test("texts for few connections never wait", () => {
  const { sent, pace } = paced({ a: 9 });
  for (const text of ["1", "2", "3"]) pace.publish("a", text, "data");
  expect(sent).toEqual(["a:1", "a:2", "a:3"]);
});

test("no text waits longer than the bound, and texts keep their order over all channels", async () => {
  const { clock, sent, pace } = paced({ a: 100_000, b: 1 });
  pace.publish("a", "1", "data");
  pace.publish("b", "2", "data");
  pace.publish("a", "3", "data");
  await clock.advance(gatherings.data.msMax - 1);
  expect(sent).toEqual(["a:1"]);
  await clock.advance(1);
  expect(sent).toEqual(["a:1", "b:2", "a:3"]);
});

test("what has gathered is sent when it is asked for, and once", async () => {
  const { clock, sent, pace } = paced({ a: 200 });
  for (const text of ["1", "2"]) pace.publish("a", text, "data");
  pace.flush();
  expect(sent).toEqual(["a:1", "a:2"]);
  await clock.advance(1_000);
  expect(sent).toEqual(["a:1", "a:2"]);
});

test("much text is not held back", () => {
  const { sent, pace } = paced({ a: 1_000 });
  pace.publish("a", "1", "data");
  for (let at = 0; at < 4; at++) pace.publish("a", "x".repeat(100_000), "data");
  expect(sent.length).toBe(4);
});
