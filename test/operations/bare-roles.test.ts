import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { engines, startTestServer, type TestServer } from "../support/server.ts";

describe.each(engines)("roles of an org's own on %s", (engine) => {
  let server: TestServer;
  beforeAll(async () => {
    server = await startTestServer({ engine });
  });
  afterAll(() => server.stop());

  const keyWith = async (body: object) => {
    const { status, body: role } = await server.api("/api/v1/roles", { body });
    expect(status).toBe(201);
    const { keys } = server.running.domain;
    const made = { orgId: "org_default", environmentId: server.env, name: role.name, roleIds: [role.id] };
    return { role, key: (await keys.create(made)).key };
  };

  test("grant nothing by themselves; with a base what that grants", async () => {
    const bare = await keyWith({ name: "bare" });
    expect(bare.role).not.toHaveProperty("base");
    for (const path of ["/api/v1/events", "/api/v1/workers"])
      expect(await server.api(path, { key: bare.key })).toMatchObject({
        status: 403,
        body: {
          error: expect.stringMatching(/^Insufficient permissions: \S+ is granted by admin, developer/),
        },
      });
    const based = await keyWith({ name: "based", base: "viewer" });
    expect((await server.api("/api/v1/events", { key: based.key })).status).toBe(200);
  });
});
