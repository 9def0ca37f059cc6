import { describe, expect, test } from "bun:test";
import { plantOfPooler, plants } from "../support/world-plants.ts";
import { enter, laboratories, worldsByDay } from "../support/worlds.ts";
import { poolerThat, settingsOfSessions, worldsByNight } from "../support/worlds-by-night.ts";
import { brokenBy, keptIn, plantsOf } from "./worlds.ts";

for (const world of worldsByNight) keptIn(world);

describe("planted faults", () => {
  test.each(worldsByNight.flatMap((world) => plantsOf(world).map((plant) => ({ world, plant }))))(
    "$plant.name: found in the world of $world.name, and in no laboratory",
    async ({ world, plant }) => {
      expect(await brokenBy([plant], world)).toEqual([...plant.breaks]);
      expect(await brokenBy([plant], laboratories[world.engine])).toEqual([]);
    },
  );
});

describe("PgBouncer in transaction mode", () => {
  test.each([
    { about: "as its package has it", passedOver: [] },
    { about: "told to pass over every setting", passedOver: settingsOfSessions },
  ])("$about: a server refuses to start, and says what to do", async ({ passedOver }) => {
    const refused = enter(poolerThat(passedOver)).then(
      async ({ leave }) => leave(),
      (error) => String(error),
    );
    expect(await refused).toContain("a pooler stands before PostgreSQL");
  });

  test("a server that does not look starts, and breaks promises", async () => {
    expect(await brokenBy([plantOfPooler], poolerThat(settingsOfSessions))).toEqual([
      ...plantOfPooler.breaks,
    ]);
    expect(await brokenBy([plantOfPooler], laboratories.postgres)).toEqual([]);
  });
});

test("each world that a plant names is there", () => {
  const known = new Set([...worldsByDay, ...worldsByNight].map(({ name }) => name));
  expect(plants.filter(({ world }) => !known.has(world))).toEqual([]);
});
