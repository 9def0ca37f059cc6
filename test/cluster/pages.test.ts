import { afterAll, beforeAll, expect, test } from "bun:test";
import { playIn, scenes } from "../dashboard/play.ts";
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
}, 120_000);

test.each(Object.entries(scenes))(
  "pages show within a second what any of three nodes made, and any of them has what is done there: %s",
  async (_, list) => {
    const seen = await playIn(list, { server });
    const late = Object.entries(seen).filter(([, ms]) => ms > seenMsMax);
    expect(late).toEqual([]);
  },
  400_000,
);
