import { expect, test } from "bun:test";
import { breachOf, runReaders } from "./readers.ts";

/** Another one each time, so that months of runs try many; said, so that each can be had again. */
const seed = Number(process.env.SVC_TEST_SEED ?? Math.floor(Math.random() * 1e9));

// The short mode of `bun run faults:readers`.
test("fifty readers that turn from node to node have the log, whatever becomes of nodes and NATS", async () => {
  console.log(`SVC_TEST_SEED=${seed}`);
  const { breaches, events, moves, faults, acked } = await runReaders({ events: 2_000, readers: 50, seed });
  expect(breaches).toEqual([]);
  expect(events).toBeGreaterThanOrEqual(2_000);
  expect(faults).toBeGreaterThanOrEqual(8);
  expect(moves).toBeGreaterThan(100);
  expect(acked).toBeGreaterThan(events / 5);
}, 240_000);

test("a gap, a repeat, a wrong order and an end too early are each seen", () => {
  const log = [1, 2, 3, 4, 5].map((position) => ({
    log: "events" as const,
    position,
    name: "chaos.a.x",
    n: position,
  }));
  const interest = { pattern: "chaos.>", wants: ({ n }: { n: number }) => n !== 4 };
  const seen = (got: number[]) => breachOf({ about: "one", interest, got }, log);
  expect(seen([1, 2, 3, 5])).toBeUndefined();
  for (const got of [
    [1, 3, 5],
    [1, 2, 2, 3, 5],
    [1, 3, 2, 5],
    [1, 2, 3],
    [1, 2, 3, 5, 5],
    [1, 2, 3, 4, 5],
  ])
    expect(seen(got)).toStartWith("one: ");
});
