import { describe, test } from "bun:test";
import type { SvcFunction, SvcProjection } from "../../src/sdk/index.ts";
import { type Plant, plantedProgram, plants } from "../support/world-plants.ts";
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

/** A server in that world with a worker of all functions that the promises are about. */
async function enterWithWorker(world: World, program?: readonly string[]): Promise<Entered> {
  const entered = await enter(world, program);
  try {
    await entered.work({ functions, projections });
    return entered;
  } catch (error) {
    await entered.leave();
    throw error;
  }
}

export const plantsOf = (world: { name: string }): Plant[] =>
  plants.filter((plant) => plant.world === world.name);

/** Which promises the server of that world breaks with these plants, of those that they are to break. */
export async function brokenBy(planted: readonly Plant[], world: World): Promise<string[]> {
  const names = [...new Set(planted.flatMap(({ breaks }) => breaks))];
  const entered = await enterWithWorker(world, plantedProgram(planted)).catch(() => undefined);
  // A server that does not start keeps none.
  if (!entered) return names;
  try {
    const isKept = async (name: string) => {
      const keep = promises[name];
      if (!keep) throw new Error(`no promise is named ${name}`);
      return keep(entered.inside).then(
        () => true,
        () => false,
      );
    };
    const kept = await Promise.all(names.map(isKept));
    return names.filter((_, at) => !kept[at]);
  } finally {
    await entered.leave();
  }
}

/** The tests of one world: its promises beside each other, and then what is left when all have been kept. */
export const keptIn = (world: World, atRest: Promises = promisesAtRest): void =>
  describe(`in the world of ${world.name}`, () => {
    let entered: Promise<Entered> | undefined;
    const inside = async () => {
      entered ??= enterWithWorker(world);
      return (await entered).inside;
    };
    for (const [name, keep] of Object.entries(promises))
      test.concurrent(name, async () => keep(await inside()));
    for (const [name, keep] of Object.entries(atRest)) test.serial(name, async () => keep(await inside()));
    test.serial("its server ends in order", async () => (await entered)?.leave());
  });
