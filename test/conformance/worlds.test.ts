import { describe, expect, test } from "bun:test";
import { isNight } from "../support/night.ts";
import { laboratories, worldsByDay } from "../support/worlds.ts";
import { brokenBy, keptIn, plantsOf } from "./worlds.ts";

for (const world of worldsByDay) keptIn(world);

describe("planted faults", () => {
  test.each(isNight ? worldsByDay : worldsByDay.slice(0, 2))(
    "are found in the world of $name",
    async (world) => {
      const planted = plantsOf(world);
      expect(await brokenBy(planted, world)).toEqual(planted.flatMap(({ breaks }) => breaks));
    },
  );

  // That each shows in its own world alone.
  test.if(isNight).each(Object.values(laboratories))("are not found in $name", async (laboratory) => {
    const worlds = worldsByDay.filter(({ engine }) => engine === laboratory.engine);
    expect(await brokenBy(worlds.flatMap(plantsOf), laboratory)).toEqual([]);
  });
});
