import { expect, test } from "bun:test";
import { Type } from "@sinclair/typebox";
import { hasOthers } from "../../src/bus/bus.ts";
import { busOver } from "../../src/bus/channel.ts";
import { localNetwork } from "../../src/bus/local.ts";
import { systemClock } from "../../src/kit/clock.ts";
import { loggedLines } from "../support/logged.ts";

const Queued = Type.Object({ from: Type.String(), lanes: Type.Array(Type.Object({ id: Type.String() })) });

function open() {
  const errors: unknown[] = [];
  const onError = (_subject: string, error: unknown) => void errors.push(error);
  const transport = localNetwork()({ clock: systemClock(), nodeId: "a", onError });
  const { log, lines } = loggedLines();
  return { transport, bus: busOver(transport, log), lines, errors };
}

/** Hints are delivered in microtasks. */
const delivered = () => new Promise<void>((done) => setImmediate(done));

test.each([
  ["no JSON", '{ "secret', "", "Expected object"],
  ["another type", '{"from":"secret","lanes":[{"id":"secret"},{"id":7}]}', "/lanes/1/id", "Expected string"],
  ["a missing field", '{"lanes":[],"secret":"secret"}', "/from", "Expected required property"],
])("of %s the log says where it is wrong, and nothing of its content", async (_, payload, path, reason) => {
  const { transport, bus, lines, errors } = open();
  const got: object[] = [];
  bus.channel("queued", Queued).listen((message) => got.push(message));
  transport.hint("queued", payload);
  await delivered();
  expect(lines).toEqual([
    { severity: "warn", event: "bus.malformed_message", fields: { subject: "queued", path, reason } },
  ]);
  expect({ got, errors }).toEqual({ got: [], errors: [] });
});

test("an error of a handler is the handler's, not a malformed message", async () => {
  const { bus, lines, errors } = open();
  const queued = bus.channel("queued", Queued);
  queued.listen(() => {
    throw new Error("mine");
  });
  queued.publish({ from: "a", lanes: [] });
  await delivered();
  expect(errors).toEqual([new Error("mine")]);
  expect(lines).toEqual([]);
});

test("a node that is alone has no others", () => {
  expect(hasOthers(open().bus)).toBe(false);
});
