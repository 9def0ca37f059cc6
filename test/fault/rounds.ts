import { type Chance, chanceOf, type Fault, faults } from "./faults.ts";
import type { World } from "./world.ts";

export interface Round {
  names: string[];
  acked: number;
  refused: number;
  seconds: number;
  breaches: string[];
}

/** Callers go on for so long before the first fault and after the last. */
const calmMs = 500;

/** Load, the faults one after the other or at once, calm, and then the checkers. */
export async function runRound(
  world: World,
  chosen: readonly Fault[],
  chance: Chance,
  atOnce: boolean,
): Promise<Round> {
  const startedAt = performance.now();
  const { acked, refused } = await world.load(chanceOf(Math.floor(chance() * 2 ** 32)), async () => {
    await Bun.sleep(calmMs);
    if (atOnce) await Promise.all(chosen.map((fault) => fault.run(world, chance)));
    else for (const fault of chosen) await fault.run(world, chance);
    await Bun.sleep(calmMs);
  });
  const breaches = await world.check();
  const names = chosen.map((fault) => fault.name);
  return { names, acked, refused, seconds: (performance.now() - startedAt) / 1000, breaches };
}

/** Faults that harm the same thing do not go together: one would undo the other. */
const aboutOf = (fault: Fault) => /PostgreSQL|NATS|worker|node/.exec(fault.name)?.[0];
const areApart = (one: Fault, other: Fault) => aboutOf(one) !== aboutOf(other);

/**
 * Each of them once, with one that harms another thing as long as there is one: first of what most of those left harm; then
 * those that go alone.
 */
export function pairsOf(list: readonly Fault[]): Fault[][] {
  const left = list.filter((fault) => !fault.alone);
  const alike = (fault: Fault) => left.filter((other) => !areApart(fault, other)).length;
  const take = (among: readonly Fault[]): Fault | undefined => {
    const found = among.toSorted((one, other) => alike(other) - alike(one))[0];
    return found && left.splice(left.indexOf(found), 1)[0];
  };
  const rounds: Fault[][] = [];
  for (let first = take(left); first; first = take(left)) {
    const one = first;
    const other = take(left.filter((fault) => areApart(one, fault)));
    rounds.push(other ? [one, other] : [one]);
  }
  return [...rounds, ...list.filter((fault) => fault.alone).map((fault) => [fault])];
}

/** One or two faults for a round of the long mode. */
export function choose(seed: number): { chosen: Fault[]; chance: Chance; atOnce: boolean } {
  const chance = chanceOf(seed);
  const pick = () => faults[Math.floor(chance() * faults.length)]!;
  const first = pick();
  const second = chance() < 0.4 ? pick() : undefined;
  const both = second && areApart(first, second);
  return { chosen: both ? [first, second] : [first], chance, atOnce: chance() < 0.5 };
}
