import { expect, test } from "bun:test";
import { isNight } from "../support/night.ts";
import { isSoak, seed } from "../support/soak.ts";
import { breachOf, runReaders } from "./readers.ts";

const readers = isNight || isSoak ? 50 : 24;

// The short mode of `bun run faults:readers`; as a soak its long one, with frozen nodes and rounds of harm until all is sent.
test(
  `${readers} readers that turn from node to node have the log, whatever becomes of nodes and NATS`,
  async () => {
    const { events, topics, harm } = isSoak
      ? ({ events: 20_000, topics: 5_000, harm: "long" } as const)
      : ({ events: isNight ? 1_600 : 800, topics: isNight ? 400 : 200, harm: "short" } as const);
    const found = await runReaders({ events, topics, readers, seed, harm });
    expect(found.breaches).toEqual([]);
    // And that there was something to be found in.
    const { nodesKilled, natsKilled, natsWiped, nodesReplaced } = found;
    const rounds = isSoak ? nodesReplaced : 1;
    expect([nodesKilled, natsKilled, natsWiped, nodesReplaced]).toEqual([3 * rounds, 3 * rounds, 1, rounds]);
    expect(found.events).toBeGreaterThanOrEqual(events);
    expect(found.topics).toBeGreaterThanOrEqual(topics);
    expect(found.resumes).toBeGreaterThan(100);
    expect(found.missed).toBeGreaterThan(100);
    for (const { name, messages, again, acked } of found.groups)
      expect([name, again > 10, acked > messages / 2]).toEqual([name, true, true]);
  },
  isSoak ? 1_800_000 : 240_000,
);

if (isNight)
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
