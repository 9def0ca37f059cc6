import { expect, test } from "bun:test";
import { Delivery } from "../../src/domain/realtime/pubsub/delivery.ts";
import { CelBudget, compileCel } from "../../src/kit/cel/cel.ts";
import { until } from "../support/until.ts";

test("a delivery keeps its payload as text, and is charged for parsing it once", async () => {
  const data = JSON.stringify({ list: Array.from({ length: 1_000 }, (_, at) => ({ at })) });
  const facts = { topic: "events:a", eventId: "evt_1", custom: null, at: 1, sequence: 1 };
  const delivery = new Delivery({ ...facts, data, source: "user" });
  const budget = new CelBudget(10_000);
  const filter = compileCel("data.list.size() == 1000", { variables: ["data"], result: "bool" });
  expect(delivery.passes(filter, budget)).toBe(true);
  const seen = new WeakRef(delivery.read(budget));
  const spent = 10_000 - budget.left;
  expect(spent).toBeGreaterThan(0);
  const isGone = async () => {
    Bun.gc(true);
    return seen.deref() === undefined ? true : undefined;
  };
  await until(isGone, { about: "the end of the parsed payload", deadlineMs: 15_000 });
  const again = new CelBudget(10_000);
  expect(delivery.passes(filter, again)).toBe(true);
  expect(10_000 - again.left).toBeLessThan(spent);
});
