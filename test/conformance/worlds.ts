import { describe, test } from "bun:test";
import type { SvcFunction, SvcProjection } from "../../src/sdk/index.ts";
import { type Entered, enter, type Inside, type World } from "../support/worlds.ts";
import { promisesOfAccess } from "./worlds-access.ts";
import { promisesAtRest } from "./worlds-at-rest.ts";
import { functionsOfLive, promisesOfLive } from "./worlds-live.ts";
import { promisesOfLog } from "./worlds-log.ts";
import { functionsOfRuns, promisesOfRuns } from "./worlds-runs.ts";
import { functionsOfStarts, promisesOfStarts } from "./worlds-starts.ts";
import { projectionsOfState, promisesOfState } from "./worlds-state.ts";

/** One thing that a user relies on, by its sentence. It names what it makes by words of its own: all share one server. */
export type Promises = Readonly<Record<string, (inside: Inside) => Promise<void>>>;

export const promises: Promises = {
  ...promisesOfLog,
  ...promisesOfRuns,
  ...promisesOfStarts,
  ...promisesOfState,
  ...promisesOfLive,
  ...promisesOfAccess,
};

const functions: readonly SvcFunction[] = [...functionsOfRuns, ...functionsOfStarts, ...functionsOfLive];
const projections: readonly SvcProjection[] = projectionsOfState;

/** Which of these promises are broken on the server. */
export const brokenOf = async ({ inside }: Entered, names: readonly string[]): Promise<string[]> => {
  const broken = await Promise.all(
    names.map(async (name) => {
      const keep = promises[name];
      if (!keep) throw new Error(`no promise is named ${name}`);
      return keep(inside).then(
        () => [],
        () => [name],
      );
    }),
  );
  return broken.flat();
};

/** A server in that world with a worker of all functions that the promises are about. */
export async function enterWithWorker(world: World, program?: readonly string[]): Promise<Entered> {
  const entered = await enter(world, program);
  try {
    await entered.work({ functions, projections });
    return entered;
  } catch (error) {
    await entered.leave();
    throw error;
  }
}

/** The tests of one world: its promises beside each other, and then what is left when all have been kept. */
export const keptIn = (world: World): void =>
  describe(`in the world of ${world.name}`, () => {
    let entered: Promise<Entered> | undefined;
    const inside = async () => {
      entered ??= enterWithWorker(world);
      return (await entered).inside;
    };
    for (const [name, keep] of Object.entries(promises))
      test.concurrent(name, async () => keep(await inside()));
    for (const [name, keep] of Object.entries(promisesAtRest))
      test.serial(name, async () => keep(await inside()));
    test.serial("its server ends in order", async () => (await entered)?.leave());
  });
