import { expect, test } from "bun:test";
import { faults } from "../fault/faults.ts";
import { choose, pairsOf } from "../fault/rounds.ts";

const quick = faults.filter((fault) => !fault.slow);
const harms = (name: string) => /PostgreSQL|NATS|worker|node/.exec(name)?.[0];

test("each fault has its round, and two in one harm different things", () => {
  const rounds = pairsOf(quick);
  expect(new Set(rounds.flat())).toEqual(new Set(quick));
  expect(rounds.flat()).toHaveLength(quick.length);
  // Pairs as far as there are any, but of those that go alone.
  const single = rounds.filter((round) => round.length === 1).flat();
  expect(single.filter((fault) => !fault.alone).length).toBeLessThanOrEqual(1);
  for (const fault of quick) if (fault.alone) expect(single).toContain(fault);
  for (const [first, second] of rounds) if (second) expect(harms(first!.name)).not.toBe(harms(second.name));
});

test("a seed's faults harm different things too", () => {
  for (let seed = 0; seed < 300; seed++) {
    const [first, second] = choose(seed).chosen;
    if (second) expect(harms(first!.name)).not.toBe(harms(second.name));
  }
});
