import { expect, test } from "bun:test";
import { breachOf, runReaders } from "./readers.ts";

/** Another one each time, so that months of runs try many; said, so that each can be had again. */
const seed = Number(process.env.SVC_TEST_SEED ?? Math.floor(Math.random() * 1e9));

// The short mode of `bun run faults:readers`.
test("fifty readers that turn from node to node have the log, whatever becomes of nodes and NATS", async () => {
  console.log(`SVC_TEST_SEED=${seed}`);
  const found = await runReaders({ events: 1_600, topics: 400, readers: 50, seed, harm: "short" });
  expect(found.breaches).toEqual([]);
  // And that there was something to be found in.
  expect(found).toMatchObject({ nodesKilled: 3, natsKilled: 3, natsWiped: 1, nodesReplaced: 1 });
  expect(found.events).toBeGreaterThanOrEqual(1_600);
  expect(found.topics).toBeGreaterThanOrEqual(400);
  expect(found.resumes).toBeGreaterThan(100);
  expect(found.missed).toBeGreaterThan(100);
  for (const { name, messages, again, acked } of found.groups)
    expect([name, again > 10, acked > messages / 2]).toEqual([name, true, true]);
}, 240_000);

test("planted defects are seen: a lost frame, a repeated one, a forgotten acknowledgement, a message passed over", async () => {
  const calm = { events: 800, topics: 200, readers: 16, seed, harm: "none", settleMs: 8_000 } as const;
  const lost = await runReaders({ ...calm, plants: ["gap", "forgotten"] });
  expect(lost.breaches).toContainEqual(expect.stringMatching(/^(bare socket|SDK).*: \d+ of \d+, at/));
  expect(lost.breaches).toContainEqual(expect.stringContaining("after it was acknowledged"));
  const more = await runReaders({ ...calm, plants: ["repeat", "skipped"] });
  expect(more.breaches).toContainEqual(expect.stringMatching(/^(bare socket|SDK).*: \d+ of \d+, at/));
  expect(more.breaches).toContainEqual(expect.stringContaining("was never given"));
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
