import { describe, expect, test } from "bun:test";
import { type Plant, plantedProgram, plants } from "../support/world-plants.ts";
import { enter, laboratories, type World, worldsByDay } from "../support/worlds.ts";
import { brokenOf, keptIn } from "./worlds.ts";

for (const world of worldsByDay) keptIn(world);

describe("planted faults", () => {
  const broken = async (world: World, planted: readonly Plant[]) => {
    const entered = await enter(world, plantedProgram(planted));
    try {
      return await brokenOf(entered, [...new Set(planted.flatMap(({ breaks }) => breaks))]);
    } finally {
      await entered.leave();
    }
  };
  const ofWorld = (world: World) => plants.filter((plant) => plant.world === world.name);

  test.each(worldsByDay)("are found in the world of $name", async (world) => {
    const planted = ofWorld(world);
    expect(await broken(world, planted)).toEqual(planted.flatMap(({ breaks }) => breaks));
  });

  test.each(Object.values(laboratories))("are not found in $name", async (laboratory) => {
    const worlds = worldsByDay.filter(({ engine }) => engine === laboratory.engine);
    expect(await broken(laboratory, worlds.flatMap(ofWorld))).toEqual([]);
  });
});
