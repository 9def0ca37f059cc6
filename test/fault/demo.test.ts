import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { resolve } from "node:path";
import { sql } from "../../src/kit/sql.ts";
import { storeOf } from "../cluster/load.ts";
import { until } from "../support/until.ts";
import { chanceOf } from "./faults.ts";
import { makeRepository } from "./repository.ts";
import { startWorld, type World } from "./world.ts";

const demo = resolve(import.meta.dir, "../../src/demo/main.ts");
const commits = 500;

/** What an operator's bad day brings, each while a demo of its own runs through the load balancer. */
const days: [name: string, harm: (world: World) => Promise<unknown>][] = [
  ["nothing at all", async () => {}],
  ["a node is killed", ({ nodes }) => nodes[0]!.server.kill9()],
  [
    "the node comes back and PostgreSQL restarts",
    async ({ nodes, postgres }) => {
      // Not at once: a node that finds no database at its start ends, and nobody here would start it again.
      await nodes[0]!.server.restart();
      await postgres.restart();
    },
  ],
  [
    "NATS is away for ten seconds",
    async ({ nats }) => {
      await Promise.all(nats.servers.map((server) => server.shutDown()));
      await Bun.sleep(10_000);
      await Promise.all(nats.servers.map((server) => server.restart()));
    },
  ],
  [
    "NATS is wiped",
    async ({ nats }) => {
      await Promise.all(nats.servers.map((server) => server.kill9()));
      await Promise.all(nats.servers.map((server) => server.restart({ wipe: true })));
    },
  ],
  [
    "all three nodes are replaced one after the other",
    async ({ nodes }) => {
      for (const { server } of nodes) {
        await server.terminate();
        await server.restart();
      }
    },
  ],
];

describe("the demo against a cluster behind a load balancer", () => {
  let world: World;
  beforeAll(async () => {
    // So long that the balancer looks in between, whatever holds it up.
    world = await startWorld({ drainNoticeMs: 2_000 });
    // The demo brings its own.
    await Promise.all(world.workers.splice(0).map((worker) => worker.kill9()));
  }, 120_000);
  afterAll(() => world?.stop(), 60_000);

  test.each(days)(
    "adds up while %s",
    async (name, harm) => {
      const repository = await makeRepository(name, commits);
      const env = {
        ...process.env,
        SVC_SERVER_URL: world.balancer.url,
        SVC_API_KEY: world.nodes[1]!.server.adminKey,
      };
      const child = Bun.spawn(
        [process.execPath, "run", demo, "--repo", repository.folder, "--limit", String(commits)],
        { env, stdout: "pipe", stderr: "pipe" },
      );
      const said = new Response(child.stdout).text();
      const complaints = new Response(child.stderr).text();
      const store = await storeOf(world.home);
      try {
        const taken = () => store.one<{ n: number }>(sql`SELECT count(*) AS n FROM executions`);
        await until(async () => (await taken())!.n > 0 || child.exitCode !== null, {
          about: "the demo's first runs",
          deadlineMs: 60_000,
          everyMs: 5,
        });
        await harm(world);
        const code = await child.exited;
        if (code !== 0) throw new Error(`the demo failed:\n${await said}\n${await complaints}`);
        expect(await said).toContain("It adds up");
      } finally {
        await store.close();
        await repository.remove();
      }
    },
    180_000,
  );

  test("and no request fails while all three nodes are replaced", async () => {
    const { nodes, balancer } = world;
    await until(() => balancer.ready().length === 3, {
      about: "three ready nodes",
      everyMs: 50,
    });
    const { refused } = await world.load(chanceOf(1), async (acked) => {
      for (const { server } of nodes) {
        await server.terminate();
        await server.restart();
        await until(() => balancer.ready().length === 3, {
          about: "the node",
          everyMs: 50,
        });
      }
      await until(() => acked() > 100, { about: "requests enough" });
    });
    expect(refused).toBe(0);
  }, 120_000);
});
