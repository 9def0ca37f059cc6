import { expect, test } from "bun:test";
import { Type } from "@sinclair/typebox";
import { channel, hasOthers } from "../../src/bus/channel.ts";
import { localNetwork } from "../../src/bus/local.ts";
import { systemClock } from "../../src/kit/clock.ts";

const Queued = Type.Object({ from: Type.String(), count: Type.Optional(Type.Integer()) });

function open() {
  const errors: string[] = [];
  const bus = localNetwork()({
    clock: systemClock(),
    nodeId: "a",
    onError: (subject, error) => errors.push(`${subject}: ${(error as Error).message}`),
  });
  const got: object[] = [];
  channel(bus, "queued", Queued).listen((message) => got.push(message));
  return { bus, errors, got };
}

/** Hints are delivered in microtasks. */
const delivered = () => new Promise<void>((done) => setImmediate(done));

test("a message comes as it was sent, with fields that a newer node adds", async () => {
  const { bus, errors, got } = open();
  channel(bus, "queued", Queued).publish({ from: "a", count: 2 });
  bus.hint("queued", JSON.stringify({ from: "b", later: true }));
  await delivered();
  expect(got).toEqual([
    { from: "a", count: 2 },
    { from: "b", later: true },
  ]);
  expect(errors).toEqual([]);
});

test.each([
  ["no JSON", "{"],
  ["another type", JSON.stringify({ from: 1 })],
  ["a missing field", JSON.stringify({ count: 1 })],
  ["no object", "null"],
])("%s reaches no handler and is told to the bus", async (_, payload) => {
  const { bus, errors, got } = open();
  bus.hint("queued", payload);
  await delivered();
  expect(got).toEqual([]);
  expect(errors).toHaveLength(1);
  expect(errors[0]).toStartWith("queued: ");
});

test("a node that is alone has no others", () => {
  expect(hasOthers(open().bus)).toBe(false);
});
