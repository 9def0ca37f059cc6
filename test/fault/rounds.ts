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

/** Each of them once, with one that harms another thing where one is left. */
export function pairsOf(list: readonly Fault[]): Fault[][] {
  const left = [...list];
  const rounds: Fault[][] = [];
  for (let first = left.shift(); first; first = left.shift()) {
    const other = left.find((fault) => areApart(first, fault));
    if (other) left.splice(left.indexOf(other), 1);
    rounds.push(other ? [first, other] : [first]);
  }
  return rounds;
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
