import { describe, expect, test } from "bun:test";
import { isNight } from "../support/night.ts";
import { laboratories, worldsByDay } from "../support/worlds.ts";
import { brokenBy, keptIn, plantsOf } from "./worlds.ts";

/** libSQL is asked by day by the other files. */
const worlds = worldsByDay.filter(({ engine }) => isNight || engine === "postgres");
for (const world of worlds) keptIn(world);

describe("planted faults", () => {
  test.each(isNight ? worldsByDay : worlds.slice(0, 1))("are found in the world of $name", async (world) => {
    const planted = plantsOf(world);
    expect(await brokenBy(planted, world)).toEqual(planted.flatMap(({ breaks }) => breaks));
  });

  // That each shows in its own world alone.
  test.if(isNight).each(Object.values(laboratories))("are not found in $name", async (laboratory) => {
    const worlds = worldsByDay.filter(({ engine }) => engine === laboratory.engine);
    expect(await brokenBy(worlds.flatMap(plantsOf), laboratory)).toEqual([]);
  });
});
