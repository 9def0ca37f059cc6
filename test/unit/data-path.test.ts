import { expect, test } from "bun:test";
import { laneFacts, laneOf, sharedLane } from "../../src/domain/engine/functions/rules.ts";
import { valueAt } from "../../src/kit/data-path.ts";

const data = { customer: { id: "a", none: null }, list: [{ n: 1 }], data: { x: 2 } };

test.each([
  ["customer.id", "a"],
  ["data.customer.id", "a"],
  ["event.data.customer.id", "a"],
  ["$.data.customer.id", "a"],
  ["$.customer.id", "a"],
  ["list.0.n", 1],
  ["data", { x: 2 }],
  ["data.data.x", 2],
  ["customer.none", undefined],
  ["customer.id.length", undefined],
  ["constructor.name", undefined],
  ["", undefined],
])("%s leads to %p", (path, value) => {
  expect(valueAt(data, path)).toEqual(value as never);
});

test("lanes differ by environment, function and value, and tell nothing of the value", () => {
  const record = (id: string, environmentId: string) =>
    ({ environmentId, definition: { id, concurrency: { limit: 1, key: "k" } } }) as never;
  const values = ["a", "b", 1, "1", true, { a: 1 }, undefined];
  const lanes = values.flatMap((k) => [
    laneOf(record("f", "env_a"), { k }),
    laneOf(record("g", "env_a"), { k }),
    laneOf(record("f", "env_b"), { k }),
  ]);
  expect(new Set(lanes).size).toBe(3 * values.length);
  expect(laneOf(record("f", "env_a"), {})).toBe(sharedLane("env_a", "f"));
  expect(laneFacts(lanes[0]!)).toEqual({ scope: "key", scalarType: "string" });
  expect(laneFacts(sharedLane("env_a", "f"))).toEqual({ scope: "function", scalarType: "" });
});
