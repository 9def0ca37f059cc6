import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { sql } from "../../src/kit/sql.ts";
import { pullWorker } from "../support/pull-worker.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";
import { keptLog } from "../support/who.ts";

interface Asked {
  path: string;
  headers: Headers;
  body: Record<string, never> & { attempt: number; run_id: string; steps: unknown[] };
}

describe.each(engines)("push mode and secrets on %s", (engine) => {
  let server: TestServer;
  const kept = keptLog();
  const asked: Asked[] = [];
  let answer: (asked: Asked) => Response | Promise<Response> = () => Response.json({ status: "completed" });
  const endpoint = Bun.serve({
    port: 0,
    hostname: "127.0.0.1",
    async fetch(request) {
      const one: Asked = {
        path: new URL(request.url).pathname,
        headers: request.headers,
        body: (await request.json()) as never,
      };
      asked.push(one);
      return answer(one);
    },
  });
  const url = (path: string) => `http://127.0.0.1:${endpoint.port}${path}`;

  beforeAll(async () => {
    server = await startTestServer({
      engine,
      log: kept.log,
      settings: { pushAllowPrivate: ["127.0.0.0/8"], signingKey: "k".repeat(40) },
    });
  });
  afterAll(async () => {
    await server.stop();
    endpoint.stop(true);
  });

  const rpc = async (method: string, body: unknown) => (await server.rpc("SvcService", method, body)).body;
  const run = (id: string) => rpc("GetRun", { id });
  const ended = (id: string) =>
    until(
      async () => {
        const found = await run(id);
        return /COMPLETED|FAILED|CANCELLED/.test(found.status) && found;
      },
      { about: `the end of ${id}` },
    );
  const register = async (id: string, path: string, more: object = {}) => {
    await rpc("RegisterFunction", {
      id,
      endpointUrl: url(path),
      triggers: [{ event: `${id}.asked` }],
      ...more,
    });
    await server.running.tick("push.look");
  };
  const start = async (id: string, data: unknown = {}) =>
    (await rpc("Emit", { event: `${id}.asked`, data, metadata: { by: "test" } })).runIds[0] as string;
  const ofRun = (runId: string) => asked.filter((one) => one.body.run_id === runId);

  test("an endpoint is called with the event, signed, and its result is the run's output", async () => {
    answer = () => Response.json({ status: "completed", steps: [], result: { fine: true } });
    await register("pushed", "/pushed");
    const runId = await start("pushed", { n: 1 });
    expect(await ended(runId)).toMatchObject({ status: "RUN_STATUS_COMPLETED", output: { fine: true } });
    const [call] = ofRun(runId);
    expect(call!.path).toBe("/pushed");
    expect(call!.body).toMatchObject({
      function_id: "pushed",
      attempt: 1,
      event: { name: "pushed.asked", data: { n: 1 }, version: 1, metadata: { by: "test" } },
      steps: [],
    });
    expect(call!.headers.get("content-type")).toBe("application/json");
    expect(call!.headers.get("x-svc-signature")).toMatch(/^sha256=[0-9a-f]{64},t=\d+,v1=[0-9a-f]{64}$/);
  });

  test("a sleep is over before the next call, which has its step", async () => {
    answer = ({ body }) =>
      body.steps.length === 0
        ? Response.json({
            status: "yielded",
            steps: [],
            yield: {
              step_id: `${body.run_id}:nap:0`,
              type: "sleep",
              until: new Date(Date.now() + 30).toISOString(),
            },
          })
        : Response.json({ status: "completed", steps: [], result: body.steps });
    await register("naps", "/naps");
    const runId = await start("naps");
    await ended(runId);
    expect(ofRun(runId)[1]!.body.steps).toEqual([
      { id: `${runId}:nap:0`, name: "nap", status: "completed", output: null },
    ]);
    expect(ofRun(runId)[0]!.body).not.toHaveProperty("resume");
    expect(ofRun(runId)[1]!.body).toMatchObject({
      resume: { step_id: `${runId}:nap:0`, type: "sleep", data: null },
    });
  });

  test("steps are stored, and what the endpoint says of a failure is obeyed", async () => {
    answer = ({ body }) =>
      Response.json({
        status: "failed",
        steps: [
          { id: `${body.run_id}:a:0`, name: "a", status: "completed", output: 1 },
          { id: `${body.run_id}:b:0`, name: "b", status: "failed", error: '{"message":"no"}' },
        ],
        error: { message: "no", code: "STEP_FAILED", retryable: false },
      });
    await register("fails", "/fails");
    const runId = await start("fails");
    expect(await ended(runId)).toMatchObject({ status: "RUN_STATUS_FAILED", error: { code: "STEP_FAILED" } });
    const { steps } = await rpc("GetRunSteps", { runId });
    expect(steps.map((step: { status: string }) => step.status)).toEqual([
      "STEP_STATUS_COMPLETED",
      "STEP_STATUS_FAILED",
    ]);
    expect(ofRun(runId)).toHaveLength(1);
  });

  test("a pull worker gets nothing of a push function", async () => {
    answer = () => new Response(null, { status: 500 });
    await register("not-yours", "/not-yours", { retry: { maxAttempts: 1 } });
    const worker = pullWorker(server, "w-not-yours");
    await worker.register("not-yours");
    const runId = await start("not-yours");
    expect(await worker.poll()).toEqual([]);
    await ended(runId);
  });

  test("transport failures are retried, open the breaker, and a trial closes it", async () => {
    answer = () => new Response(null, { status: 500 });
    const retry = { maxAttempts: 10, initialDelayMs: 1, backoffFactor: 1, maxDelayMs: 1 };
    await register("breaks", "/breaks", { retry });
    const runId = await start("breaks");
    const listed = async () => {
      const { body } = await server.api("/api/v1/circuit-breakers");
      return body.find((one: { function_id: string }) => one.function_id === "breaks");
    };
    await until(async () => (await listed())?.state === "open", { about: "the open breaker" });
    expect(await listed()).toMatchObject({
      key: `breaks|${url("/breaks")}`,
      endpoint: url("/breaks"),
      consecutive_fails: 5,
      last_failure: expect.any(String),
    });
    await until(async () => (await run(runId)).status === "RUN_STATUS_WAITING_FOR_CAPACITY", {
      about: "the run to wait for the breaker",
    });
    expect(ofRun(runId)).toHaveLength(5);
    // Half a minute later one call is tried.
    answer = () => Response.json({ status: "completed", result: "at last" });
    await server.running.domain.store.write((session) =>
      session.run(sql`UPDATE breakers SET opened_at = opened_at - 31000`),
    );
    await server.running.tick("breakers.look");
    expect((await ended(runId)).outputValue).toBe("at last");
    expect(await listed()).toBeUndefined();
  });

  test("a breaker is reset by its key, and bad keys are refused", async () => {
    answer = () => new Response(null, { status: 503 });
    await register("resets", "/resets", { retry: { maxAttempts: 20, initialDelayMs: 1, maxDelayMs: 1 } });
    const runId = await start("resets");
    const key = Buffer.from(`resets|${url("/resets")}`).toString("base64url");
    await until(
      async () =>
        (await server.api("/api/v1/circuit-breakers")).body.some(
          (one: { function_id: string; state: string }) =>
            one.function_id === "resets" && one.state === "open",
        ),
      { about: "the open breaker" },
    );
    answer = () => Response.json({ status: "completed" });
    const reset = await server.api(`/api/v1/circuit-breakers/${key}/reset`, { method: "POST" });
    expect(reset).toMatchObject({ status: 200, body: { state: "closed", function_id: "resets" } });
    await server.running.tick("breakers.look");
    await ended(runId);
    for (const bad of ["%21", "abc=", "bm9iYXI"]) {
      const answered = await server.api(`/api/v1/circuit-breakers/${bad}/reset`, { method: "POST" });
      expect(answered.status).toBe(400);
    }
  });

  test("illegal and private endpoints are refused at registration, names are not resolved", async () => {
    for (const endpointUrl of ["http://10.1.2.3/", "http://[fd00::1]:80/", "http://167838211/"]) {
      const { status, body } = await server.rpc("SvcService", "RegisterFunction", { id: "bad", endpointUrl });
      expect(status).toBe(400);
      expect(body.message).toBe(
        "endpointUrl: its address is in a network that must not be called (see SVC_PUSH_ALLOW_PRIVATE)",
      );
    }
    await rpc("RegisterFunction", { id: "named", endpointUrl: "http://unknown.invalid/" });
    for (const endpointUrl of ["ftp://x/", "nowhere", "http://user:pass@example.com/"]) {
      const { status, body } = await server.rpc("SvcService", "RegisterFunction", { id: "bad", endpointUrl });
      expect(status).toBe(400);
      expect(body.message).toStartWith("endpointUrl: ");
    }
  });

  describe("secrets", () => {
    const marker = "hunter2-marker-value";

    test("are made, listed, changed and deleted, and no read answers a value", async () => {
      const created = await server.api("/api/v1/secrets", {
        body: { name: "STRIPE", value: marker, description: "payments" },
      });
      expect(created.status).toBe(201);
      expect(created.body).toMatchObject({ name: "STRIPE", revision: 1, description: "payments" });
      expect((await server.api("/api/v1/secrets", { body: { name: "STRIPE", value: "x" } })).status).toBe(
        409,
      );
      const put = await server.api("/api/v1/secrets/STRIPE", {
        method: "PUT",
        body: { value: `${marker}2` },
      });
      expect(put.body).toMatchObject({ revision: 2, description: "payments" });
      const patch = await server.api("/api/v1/secrets/STRIPE", {
        method: "PATCH",
        body: { name: "STRIPE_KEY", description: "new" },
      });
      expect(patch.body).toMatchObject({ name: "STRIPE_KEY", revision: 2, description: "new" });
      const { body: list } = await server.api("/api/v1/secrets");
      expect(list.map((one: { name: string }) => one.name)).toEqual(["STRIPE_KEY"]);
      expect((await server.api("/api/v1/secrets/STRIPE")).status).toBe(404);
      expect((await server.api("/api/v1/secrets/STRIPE", { method: "DELETE" })).status).toBe(404);
    });

    test("bad ones are refused by field", async () => {
      for (const [body, field] of [
        [{ name: "a b", value: "x" }, "name"],
        [{ name: "", value: "x" }, "name"],
        [{ name: "a", value: "" }, "value"],
        [{ name: "a", value: "x".repeat(70_000) }, "value"],
        [{ name: "a" }, "value"],
        [{ name: "a", value: "x", other: 1 }, "other"],
      ] as const) {
        const refused = await server.api("/api/v1/secrets", { body });
        expect(refused.status).toBe(400);
        expect(refused.body.error).toStartWith(field);
        expect(JSON.stringify(refused.body)).not.toContain("xxxx");
      }
    });

    test("reach handlers that declare them, pulled and pushed, and nobody else", async () => {
      answer = ({ body }) => Response.json({ status: "completed", result: Object.keys(body) });
      await register("with-secret", "/with-secret", { secrets: ["STRIPE_KEY", "MISSING"] });
      const pushed = await start("with-secret");
      await ended(pushed);
      expect(ofRun(pushed)[0]!.body).toMatchObject({ secrets: { STRIPE_KEY: `${marker}2` } });
      await rpc("RegisterFunction", {
        id: "pulls",
        triggers: [{ event: "pulls.asked" }],
        secrets: ["STRIPE_KEY"],
      });
      const worker = pullWorker(server, "w-pulls");
      await worker.register("pulls");
      await rpc("Emit", { event: "pulls.asked" });
      const [job] = await worker.poll();
      expect((job as unknown as { context: unknown }).context).toEqual({
        secrets: { STRIPE_KEY: `${marker}2` },
      });
      await worker.complete(job!);
      await rpc("RegisterFunction", { id: "without", triggers: [{ event: "without.asked" }] });
      await worker.register("without");
      await rpc("Emit", { event: "without.asked" });
      const [plain] = await worker.poll();
      expect((plain as unknown as { context: unknown }).context).toBeUndefined();
      await worker.complete(plain!);
      expect(kept.of("job.secrets_missing")[0]!.fields).toMatchObject({ names: ["MISSING"] });
    });

    test("survive a rotation of the master key", async () => {
      const rotated = await server.api("/api/v1/cluster/rotate-token", {
        body: { kind: "master_key", new_value: "7a".repeat(32) },
      });
      expect(rotated.status).toBe(200);
      const rows = await server.running.domain.store.all<{ sealed: string }>(sql`SELECT sealed FROM secrets`);
      expect(rows.every((row) => row.sealed.startsWith("2."))).toBe(true);
      answer = () => Response.json({ status: "completed" });
      await until(
        async () => {
          const runId = await start("with-secret");
          await ended(runId);
          return JSON.stringify(ofRun(runId)[0]!.body).includes(`${marker}2`);
        },
        { about: "the value after the rotation" },
      );
    }, 120_000);

    test("stand nowhere in what the server wrote", async () => {
      const { store } = server.running.domain;
      for (const table of ["secrets", "events", "runs", "steps", "run_history", "executions", "functions"]) {
        const rows = await store.all(sql`SELECT * FROM ${sql.raw(table)}`);
        expect(JSON.stringify(rows)).not.toContain(marker);
      }
      expect(
        JSON.stringify(kept.lines, (_, value) => (value instanceof Error ? String(value.stack) : value)),
      ).not.toContain(marker);
    });

    test("viewers only read; another environment's look like none", async () => {
      const { keys, tenancy } = server.running.domain;
      const elsewhere = await tenancy.createEnvironment({ orgId: "org_default", name: `se-${engine}` });
      const keyOf = async (role: string, environmentId: string) =>
        (await keys.create({ orgId: "org_default", environmentId, name: "t", roleIds: [role] })).key;
      const viewer = await keyOf("role_viewer", "env_default");
      const stranger = await keyOf("role_admin", elsewhere.id);
      expect((await server.api("/api/v1/secrets", { key: viewer })).status).toBe(200);
      expect((await server.api("/api/v1/secrets/STRIPE_KEY", { method: "DELETE", key: viewer })).status).toBe(
        403,
      );
      expect((await server.api("/api/v1/secrets", { key: stranger })).body).toEqual([]);
      expect((await server.api("/api/v1/secrets/STRIPE_KEY", { key: stranger })).status).toBe(404);
    });
  });
});
