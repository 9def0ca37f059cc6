import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { inChrome } from "../support/chrome.ts";
import { isNight } from "../support/night.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { offeredPaths, playIn, scenes } from "./play.ts";
import type { Scene } from "./scenes.ts";

/** By day every third scene of each list. */
const byDay = (list: readonly Scene[]) => list.filter((_, at) => isNight || at % 3 === 0);

describe.each(engines)("each page of the dashboard at one node on %s", (engine) => {
  let server: TestServer;
  beforeAll(async () => {
    server = await startTestServer({ engine });
  });
  afterAll(() => server.stop());

  // Each with the hands that the other has not: all that is done is done by keys alone, and by the mouse.
  const byKeyboard = engine === "libsql";
  test.each(Object.entries(scenes))(
    "shows what the API made as it comes, and the API has what is done there: %s",
    async (_, list) => {
      await playIn(byDay(list), { server, byKeyboard });
    },
    900_000,
  );

  test.each([undefined, "platform"] as const)("has a scene, of area %s", async (wanted) => {
    const offered = await inChrome((browser) => offeredPaths(browser, server, wanted));
    const played = Object.values(scenes)
      .flat()
      .filter(({ area }) => area === wanted)
      .map(({ path }) => path.replace(/\?.*/, ""));
    expect(played.sort()).toEqual(offered.sort());
  });
});
