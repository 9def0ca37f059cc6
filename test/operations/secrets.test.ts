import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { sql } from "../../src/kit/sql.ts";
import { expectFault } from "../support/kv.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";

describe.each(engines)("what is known of secrets on %s", (engine) => {
  let server: TestServer;
  beforeAll(async () => {
    server = await startTestServer({ engine });
  }, 120_000);
  afterAll(() => server.stop());
  const secret = (path: string, method?: string, body?: object) =>
    server.api(`/api/v1/secrets${path}`, { ...(method && { method }), ...(body && { body }) });

  test("earlier values leave what was known of them, without the value", async () => {
    await secret("", "POST", { name: "KEPT", value: "not-shown-1", description: "first" });
    await secret("/KEPT", "PUT", { value: "not-shown-2", description: "second" });
    await secret("/KEPT", "PATCH", { description: "described anew" });
    const now = await secret("/KEPT");
    expect(now.body).toMatchObject({ revision: 2, description: "described anew" });
    expect(await secret("/KEPT?revision=2")).toMatchObject({ status: 200, body: now.body });
    const first = await secret("/KEPT?revision=1");
    expect(first.body).toEqual({
      name: "KEPT",
      revision: 1,
      description: "first",
      created_at: now.body.created_at,
      updated_at: now.body.created_at,
    });
    expectFault(await secret("/KEPT?revision=3"), 404, { message: "revision 3 of secret KEPT not found" });
    expectFault(await secret("/KEPT?revision=0"), 400, { field: "revision" });
    for (let revision = 3; revision <= 66; revision++)
      await secret("/KEPT", "PUT", { value: `v${revision}` });
    expect((await secret("/KEPT?revision=2")).status).toBe(404);
    expect((await secret("/KEPT?revision=3")).status).toBe(200);
    const { store } = server.running.domain;
    const kept = () => store.all<{ revision: number }>(sql`SELECT * FROM secret_revisions`);
    expect(await kept()).toHaveLength(64);
    expect(JSON.stringify(await kept())).not.toContain("not-shown");
    expect((await secret("/KEPT", "DELETE")).status).toBe(204);
    expect(await kept()).toEqual([]);
    expectFault(await secret("/KEPT", "DELETE"), 404, {});
  });

  test("functions that declare one are named to who may read them", async () => {
    await secret("", "POST", { name: "USED", value: "v" });
    for (const id of ["second", "first", "hidden"])
      await server.rpc("SvcService", "RegisterFunction", { id, secrets: ["USED"] });
    await server.rpc("SvcService", "RegisterFunction", { id: "other", secrets: ["ELSE"] });
    const idsOf = ({ body }: { body: { functions: { id: string }[] } }) => body.functions.map(({ id }) => id);
    const all = await secret("/USED/functions");
    expect(idsOf(all)).toEqual(["first", "hidden", "second"]);
    expect(all.body.functions[0]).toEqual({ id: "first", version: 1, status: "active" });
    expectFault(await secret("/NONE/functions"), 404, { message: "secret NONE not found" });
    const role = (await server.api("/api/v1/roles", { body: { name: "uses", base: "viewer" } })).body;
    const policy = { name: "uses", effect: "deny", actions: "*", resources: "irn:svc:*:*:function:*:hidden" };
    const { id } = (await server.api("/api/v1/policies", { body: policy })).body;
    await server.api(`/api/v1/roles/${role.id}/policies`, { body: { policy_id: id } });
    const { key } = (await server.api("/api/v1/apikeys", { body: { name: "uses", role_ids: [role.id] } }))
      .body;
    expect(idsOf(await server.api("/api/v1/secrets/USED/functions", { key }))).toEqual(["first", "second"]);
  });
});
