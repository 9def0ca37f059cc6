import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { sql } from "../../src/kit/sql.ts";
import { sharedNats } from "../support/nats.ts";
import { type Home, makeHome, startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

const runsCount = 400;
const workersEach = 6;
const definitions = [
  { id: "one", limit: 1, key: "k", keys: 4 },
  { id: "three", limit: 3, key: "k", keys: 3 },
  { id: "whole", limit: 5, key: undefined, keys: 1 },
];

interface Job {
  job_id: string;
  run_id: string;
  function_id: string;
  execution_seq: number;
  lease_token: string;
  event: { data: { k: number } };
}

describe.each([true, false])("two nodes on one database (bus: %p)", (withBus) => {
  let home: Home;
  let nodes: TestServer[] = [];

  beforeAll(async () => {
    home = await makeHome("postgres");
    const nats = withBus ? { nats: (await sharedNats()).url } : {};
    for (const _ of [1, 2])
      nodes.push(await startTestServer({ engine: "postgres", home, ...nats, settings: { pollHoldMs: 100 } }));
  }, 120_000);
  afterAll(async () => {
    await Promise.all(nodes.map((node) => node.stop()));
    nodes = [];
    await home?.remove();
  }, 120_000);

  test("never lease more runs of a lane than its limit, and finish them all", async () => {
    const [first] = nodes as [TestServer];
    for (const { id, limit, key } of definitions)
      await first.rpc("SvcService", "RegisterFunction", {
        id,
        triggers: [{ event: id }],
        concurrency: { limit, ...(key && { key }) },
      });
    const limitOf = new Map(definitions.map(({ id, limit }) => [id, limit]));
    const held = new Map<string, number>();
    /** Lanes that were seen full. */
    const reached = new Set<string>();
    const done = new Set<string>();
    const breaches: string[] = [];

    /** What workers hold at one instant, by lane: given up before it is reported, so never too much is counted. */
    const hold = (job: Job, change: number) => {
      const { keys } = definitions.find(({ id }) => id === job.function_id)!;
      const lane = keys === 1 ? job.function_id : `${job.function_id}:${job.event.data.k}`;
      const count = (held.get(lane) ?? 0) + change;
      held.set(lane, count);
      if (count > limitOf.get(job.function_id)!) breaches.push(`workers hold ${count} of ${lane}`);
    };
    const work = async (node: TestServer, name: string) => {
      await node.api(`/api/v1/workers/${name}/register`, { body: { function_ids: [...limitOf.keys()] } });
      while (done.size < runsCount) {
        const { status, body } = await node.api(`/api/v1/workers/${name}/jobs?available=3`);
        for (const job of status === 200 ? (body.jobs as Job[]) : []) {
          hold(job, 1);
          await Bun.sleep(3 + job.event.data.k);
          hold(job, -1);
          const answer = await node.api(`/api/v1/workers/${name}/jobs/${job.job_id}`, {
            method: "PUT",
            body: {
              execution_seq: job.execution_seq,
              lease_token: job.lease_token,
              status: "completed",
              output: null,
            },
          });
          if (answer.status === 200) done.add(job.run_id);
        }
      }
    };
    const check = async () => {
      const { store } = first.running.domain;
      while (done.size < runsCount) {
        const rows = await store.all<{ function_id: string; lane_id: string; count: number }>(sql`SELECT
          function_id, lane_id, count(*) AS count FROM executions WHERE state = 'leased' GROUP BY function_id, lane_id`);
        for (const row of rows) {
          const limit = limitOf.get(row.function_id)!;
          if (row.count === limit) reached.add(row.lane_id);
          if (row.count > limit) breaches.push(`the store leases ${row.count} of ${row.lane_id}`);
        }
        await Bun.sleep(1);
      }
    };
    const emit = async (from: number, to: number) => {
      for (let n = from; n < to; n++) {
        const { id, keys } = definitions[n % definitions.length]!;
        await nodes[n % 2]!.rpc("SvcService", "Emit", { event: id, data: { k: Math.floor(n / 3) % keys } });
      }
    };
    await emit(0, runsCount / 2);
    const workers = nodes.flatMap((node, at) =>
      Array.from({ length: workersEach }, (_, n) => work(node, `w${at}-${n}`)),
    );
    await Promise.all([emit(runsCount / 2, runsCount), check(), ...workers]);
    expect(done.size).toBe(runsCount);
    expect(breaches).toEqual([]);
    // Limits that are never reached would prove nothing.
    expect(reached.size).toBeGreaterThan(3);
  }, 120_000);

  test("a node shows the workers of both, when it can ask the other", async () => {
    const [first, second] = nodes as [TestServer, TestServer];
    const { key } = await first.running.domain.keys.create({
      orgId: "org_platform",
      environmentId: null,
      name: "p",
      isPlatform: true,
      roleIds: ["role_platform_viewer"],
    });
    // A node forgets a worker that stays away: both keep asking for as long as they are looked for.
    let looking = true;
    const work = async (node: TestServer, name: string) => {
      await node.api(`/api/v1/workers/${name}/register`, { body: { function_ids: ["shown"] } });
      while (looking) await node.api(`/api/v1/workers/${name}/jobs?available=2`);
    };
    const workers = [work(first, "here"), work(second, "there")];
    try {
      const sessions = async (): Promise<{ worker_id: string; engine_node_id: string }[]> =>
        (await first.api("/api/v1/capacity/sessions?function=shown", { key })).body;
      const wanted = withBus ? 2 : 1;
      const listed = await until(
        async () => {
          const now = await sessions();
          return now.length === wanted && now;
        },
        { everyMs: 50, about: `${wanted} sessions` },
      );
      const found = listed.map(({ worker_id, engine_node_id }) => [worker_id, engine_node_id]);
      expect(found).toContainEqual(["here", first.running.nodeId]);
      if (withBus) expect(found).toContainEqual(["there", second.running.nodeId]);
    } finally {
      looking = false;
      await Promise.all(workers);
    }
  });
});
