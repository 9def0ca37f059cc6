import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

describe.each(engines)("calls to push endpoints on %s", (engine) => {
  let server: TestServer;
  let release = () => {};
  const released = new Promise<void>((resolve) => {
    release = resolve;
  });
  const underWay = { slow: 0, quick: 0 };
  let most = 0;
  const endpoint = Bun.serve({
    port: 0,
    hostname: "127.0.0.1",
    idleTimeout: 0,
    async fetch(request) {
      const name = new URL(request.url).pathname.slice(1) as "slow" | "quick";
      underWay[name]++;
      most = Math.max(most, underWay.slow);
      if (name === "slow") await released;
      return Response.json({ status: "completed" });
    },
  });

  beforeAll(async () => {
    server = await startTestServer({ engine, settings: { pushAllowPrivate: "all" } });
  });
  afterAll(async () => {
    release();
    await server.stop();
    endpoint.stop(true);
  });

  test("are bounded at a node, and one environment leaves places to others", async () => {
    const { keys, tenancy } = server.running.domain;
    const { id: environmentId } = await tenancy.createEnvironment({ orgId: "org_default", name: "other" });
    const made = { orgId: "org_default", environmentId, name: "other", roleIds: ["role_admin"] };
    const { key: other } = await keys.create(made);
    const rpc = async (key: string, method: string, asked: unknown) => {
      const answer = await server.rpc("SvcService", method, asked, { key });
      expect(answer.body).not.toHaveProperty("code");
      return answer.body;
    };
    const register = (key: string, id: string, path: string) =>
      rpc(key, "RegisterFunction", {
        id,
        endpointUrl: `http://127.0.0.1:${endpoint.port}/${path}`,
        triggers: [{ event: "go" }],
      });
    for (let n = 0; n < 12; n++) await register(server.adminKey, `slow${n}`, "slow");
    for (let n = 0; n < 60; n++) await rpc(server.adminKey, "Emit", { event: "go", data: {} });
    await server.running.tick("push.look");
    await until(() => underWay.slow >= 60, { about: "slow calls" });
    await register(other, "quick", "quick");
    await server.running.tick("push.look");
    await rpc(other, "Emit", { event: "go", data: {} });
    await until(() => underWay.quick === 1, {
      about: "the call of the other environment",
      deadlineMs: 10_000,
    });
    expect(most).toBeLessThanOrEqual(93);
    release();
    await until(() => underWay.slow === 12 * 60, { about: "the end of all" });
  }, 60_000);
});
