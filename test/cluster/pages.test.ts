import { afterAll, beforeAll, expect, test } from "bun:test";
import { nameOf, playIn, scenes } from "../dashboard/play.ts";
import type { Scene } from "../dashboard/scenes.ts";
import { type Balancer, openBalancer } from "../support/proxy.ts";
import { startTestCluster, type TestServer } from "../support/server.ts";

/** What the API made is seen in the page within this. */
const seenMsMax = 1_000;

let cluster: Awaited<ReturnType<typeof startTestCluster>>;
let balancer: Balancer;
let server: TestServer;
beforeAll(async () => {
  cluster = await startTestCluster({ engine: "postgres" }, 3);
  balancer = await openBalancer(() => cluster.nodes.map(({ running }) => running.port));
  // What a page and the API ask goes to any of the three.
  server = { ...cluster, url: balancer.url };
}, 90_000);
afterAll(async () => {
  await balancer?.stop();
  await cluster?.stop();
}, 60_000);

test.each(Object.entries(scenes))(
  "pages show within a second what any of three nodes made, and any of them has what is done there: %s",
  async (_, list) => {
    const lateOf = async (played: readonly Scene[]) =>
      Object.entries(await playIn(played, { server })).filter(([, ms]) => ms > seenMsMax);
    const late = await lateOf(list);
    // Lived time knows nothing of a browser that stood still. A page that is late by itself is late again.
    const again = list.filter((scene) => late.some(([name]) => name === nameOf(scene)));
    if (again.length > 0) console.log("late, and played once more:", late);
    expect(again.length > 0 ? await lateOf(again) : []).toEqual([]);
  },
  400_000,
);
