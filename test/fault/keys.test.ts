import { expect, test } from "bun:test";
import { isSoak, seed } from "../support/soak.ts";
import { breachOf, runKeys } from "./keys.ts";

// The short mode of `bun run faults:kv`; as a soak its long one.
test(
  "watchers are told every revision in order, whatever becomes of nodes and NATS",
  async () => {
    const found = await runKeys(
      isSoak
        ? { watchers: 1_000, puts: 8_000, seed, harm: "long" }
        : { watchers: 30, puts: 300, seed, harm: "short" },
    );
    expect(found.breaches).toEqual([]);
    // And that there was something to be found in.
    expect(found.nodesKilled).toBeGreaterThanOrEqual(1);
    expect(found.natsWiped).toBe(1);
    expect(found.resumes).toBeGreaterThan(10);
    expect(found.told).toBeGreaterThan(3_000);
  },
  isSoak ? 1_800_000 : 120_000,
);

test("a missed revision, a repeat, a wrong order and another value are each seen", () => {
  const changes = [1, 2, 3, 4].map((revision) => ({ revision, key: "a", text: `${revision}` }));
  const [one, two, three, four] = changes as [KeyOf, KeyOf, KeyOf, KeyOf];
  const interest = { bucket: "b", key: undefined, wants: () => true };
  const seen = (got: KeyOf[]) => breachOf({ about: "one", interest, got }, changes);
  expect(seen(changes)).toBeUndefined();
  for (const got of [
    [one, two, four],
    [one, two, two, three, four],
    [one, three, two, four],
    [one, two, three],
    [one, two, three, { ...four, text: "x" }],
  ])
    expect(seen(got)).toStartWith("one: ");
});

type KeyOf = { revision: number; key: string; text: string };
