import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { createHash } from "node:crypto";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

const views = ["lanes", "queue", "leases", "buckets", "sessions", "credits", "stats"] as const;

interface Job {
  job_id: string;
  run_id: string;
  execution_seq: number;
  lease_token: string;
}

describe.each(engines)("capacity on %s", (engine) => {
  let server: TestServer;
  let platform: string;
  let jobs: Job[] = [];
  let other: { id: string; key: string };

  const rpc = async (method: string, body: unknown, key?: string) =>
    (await server.rpc("SvcService", method, body, key === undefined ? {} : { key })).body;
  const view = async (name: string, query = "") => {
    const { status, body } = await server.api(`/api/v1/capacity/${name}${query}`, { key: platform });
    expect(status).toBe(200);
    return body;
  };

  beforeAll(async () => {
    server = await startTestServer({ engine, settings: { pollHoldMs: 100 } });
    const { keys, tenancy } = server.running.domain;
    const wanted = { orgId: "org_platform", environmentId: null, name: "p", isPlatform: true };
    platform = (await keys.create({ ...wanted, roleIds: ["role_platform_viewer"] })).key;
    const { id } = await tenancy.createEnvironment({ orgId: "org_other", name: "theirs" });
    const scope = { orgId: "org_other", environmentId: id, name: "t", roleIds: ["role_admin"] };
    other = { id, key: (await keys.create(scope)).key };

    await rpc("RegisterFunction", {
      id: "limited",
      triggers: [{ event: "limited" }],
      concurrency: { limit: 2, key: "customer" },
    });
    await rpc("RegisterFunction", { id: "plain", triggers: [{ event: "plain" }], timeoutMs: 3_600_000 });
    await rpc("RegisterFunction", { id: "foreign", triggers: [{ event: "foreign" }] }, other.key);
    for (let n = 0; n < 3; n++)
      await rpc("Emit", { event: "limited", data: { customer: "secret-customer" } });
    await server.api("/api/v1/workers/w/register", {
      body: { function_ids: ["limited"], max_concurrent_jobs: 5, labels: { zone: "a" } },
    });
    await until(
      async () => {
        const { status, body } = await server.api("/api/v1/workers/w/jobs?available=4");
        if (status === 200) jobs = jobs.concat(body.jobs);
        return jobs.length === 2;
      },
      { about: "two jobs" },
    );
    await rpc("Emit", { event: "plain", data: {} });
    await rpc("Emit", { event: "foreign", data: {} }, other.key);
  });
  afterAll(() => server.stop());

  test("is for the platform alone", async () => {
    for (const name of views) {
      const path = `/api/v1/capacity/${name}`;
      expect((await server.api(path, { key: null })).status).toBe(401);
      const refused = await server.api(path);
      expect(refused).toMatchObject({ status: 403, body: { error: "platform credential required" } });
      expect((await server.api(path, { key: platform })).status).toBe(200);
    }
    // Elsewhere a platform key has no environment to be in.
    expect((await server.api("/api/v1/events", { key: platform })).status).toBe(403);
  });

  test("lanes and leases show digests only", async () => {
    const [lane, ...rest] = await view("lanes");
    expect(rest).toEqual([]);
    expect(lane).toEqual({
      lane_id: expect.stringMatching(/^[0-9a-f]{16}s[0-9a-f]{24}$/),
      environment_id: server.env,
      function_id: "limited",
      scope: "key",
      scalar_type: "string",
      limit: 2,
      active_reserved: 2,
      config_version: 1,
      created_at: expect.any(String),
      last_used_at: expect.any(String),
    });
    const leases = await view("leases", "?function=plain");
    expect(leases).toHaveLength(2);
    const [job] = jobs as [Job];
    expect(leases).toContainEqual({
      lease_id: expect.stringMatching(/^lease_/),
      run_id: job.run_id,
      execution_seq: 1,
      environment_id: server.env,
      function_id: "",
      lease_token_hash: createHash("sha256").update(job.lease_token).digest("hex").slice(0, 32),
      activated_at: expect.any(String),
      expires_at: expect.any(String),
      lane_id: lane.lane_id,
    });
    const all = JSON.stringify(await Promise.all(views.map((name) => view(name))));
    expect(all).not.toContain("secret-customer");
    for (const { lease_token } of jobs) expect(all).not.toContain(lease_token);
  });

  test("the queue tells why a run waits", async () => {
    const queue = await view("queue", `?env=${server.env}`);
    expect(queue).toMatchObject([
      { function_id: "limited", queue_seq: 1, blocking_reason: "concurrency_limit", function_version: 1 },
      {
        function_id: "plain",
        queue_seq: 1,
        execution_mode: "pull",
        blocking_reason: "no_worker",
        execution_seq: 0,
        timeout_ms: 3_600_000,
      },
    ]);
    expect(queue[1]).not.toHaveProperty("lane_id");
    expect(await view("queue", "?function=foreign")).toHaveLength(1);
    expect(await view("queue", `?function=foreign&env=${server.env}`)).toEqual([]);
    await rpc("UpdateFunctionStatus", { id: "plain", status: "FUNCTION_STATUS_PAUSED" });
    expect(await view("queue", "?function=plain")).toMatchObject([{ blocking_reason: "function_paused" }]);
    await rpc("UpdateFunctionStatus", { id: "plain", status: "FUNCTION_STATUS_ACTIVE" });
  });

  test("sessions, credits and buckets are what the dispatcher has", async () => {
    // A node forgets a worker that stays away: this one keeps asking for as long as it is looked for.
    let looking = true;
    const asking = (async () => {
      while (looking) await server.api("/api/v1/workers/w/jobs?available=3");
    })();
    const shown = (
      name: string,
      query: string,
      wanted: (row: { claimed?: boolean }) => boolean,
      count: number,
    ) =>
      until(
        async () => {
          const list = await view(name, query);
          return list.filter(wanted).length === count && list;
        },
        { about: `${count} of ${name}` },
      );
    const [[session, ...rest], credits] = await Promise.all([
      shown("sessions", `?env=${server.env}&function=limited`, () => true, 1),
      shown("credits", "?function=nobody", ({ claimed }) => claimed === true, jobs.length),
    ]).finally(() => {
      looking = false;
      return asking;
    });
    expect(rest).toEqual([]);
    expect(session).toMatchObject({
      session_id: expect.stringMatching(/^sess_/),
      worker_id: "w",
      environment_id: server.env,
      engine_node_id: server.running.nodeId,
      draining: false,
      labels: { zone: "a" },
    });
    expect(await view("sessions", "?function=nobody")).toEqual([]);
    const used = credits.filter((credit: { claimed: boolean }) => credit.claimed);
    expect(used.map((credit: { claimed_run_id: string }) => credit.claimed_run_id).sort()).toEqual(
      jobs.map((job) => job.run_id).sort(),
    );
    expect(new Set(credits.map((credit: { slot_ordinal: number }) => credit.slot_ordinal)).size).toBe(
      credits.length,
    );
    const [bucket] = await view("buckets", "?function=limited");
    expect(bucket).toMatchObject({
      environment_id: server.env,
      function_id: "limited",
      lane_id: expect.any(String),
      last_dispatched_at: expect.any(String),
    });
  });

  test("stats is one snapshot over all tenants, whatever is asked for", async () => {
    const rows = await view("stats", `?env=${server.env}&function=limited&limit=1`);
    expect(rows).toHaveLength(3);
    expect(rows).toContainEqual({
      environment_id: server.env,
      function_id: "limited",
      active_leases: 2,
      lane_limit: 2,
      queued: 1,
      reservations: expect.any(Number),
      oldest_queue_age_seconds: expect.any(Number),
    });
    expect(rows).toContainEqual(
      expect.objectContaining({ environment_id: other.id, function_id: "foreign", queued: 1, lane_limit: 0 }),
    );
  });

  test("limit: at least one row, at most what is asked for; below one the default; other words are refused", async () => {
    expect(await view("queue", "?limit=1")).toHaveLength(1);
    for (const limit of [0, -5, 100_000]) expect(await view("queue", `?limit=${limit}`)).toHaveLength(3);
    const { status, body } = await server.api("/api/v1/capacity/queue?limit=many", { key: platform });
    expect(status).toBe(400);
    expect(body.error).toContain("limit");
  });
});
