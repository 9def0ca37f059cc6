import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { sql } from "../../src/kit/sql.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";

interface AuditEvent {
  id: string;
  event_type: string;
  environment_id: string;
  payload: Record<string, unknown>;
  metadata: Record<string, string>;
}

describe.each(engines)("the audit of calls on %s", (engine) => {
  let server: TestServer;
  beforeAll(async () => {
    server = await startTestServer({ engine, settings: { auditRedactFields: "nickName" } });
  });
  afterAll(() => server.stop());

  const keyWith = async (roleIds: string[], orgId = "org_default") =>
    (
      await server.running.domain.keys.create({
        orgId,
        environmentId: "env_default",
        name: "test",
        roleIds,
      })
    ).key;
  const flush = () => server.running.tick("audit.flush");
  const trail = async (query: object = {}, key = server.adminKey): Promise<AuditEvent[]> => {
    await flush();
    const answer = await server.rpc("AuditService", "GetAuthAuditTrail", query, { key });
    expect(answer.status).toBe(200);
    return answer.body.events;
  };

  test("a denial is there with the rule, an excluded call is not", async () => {
    const key = await keyWith(["role_viewer"]);
    expect((await server.rpc("SvcService", "Emit", { event: "a" }, { key })).status).toBe(403);
    expect((await server.rpc("SvcService", "Emit", { event: "a" })).status).toBe(200);
    const found = await trail({ action: "events:emit" });
    expect(found.map((event) => event.event_type)).toEqual(["authz.denied"]);
    expect(found[0]).toMatchObject({
      environment_id: "env_default",
      payload: { operation: "events.emit", decision: "denied", rule: "role", outcome: "permission_denied" },
    });
  });

  test("a change is there with its input, without secrets and named fields", async () => {
    const made = await server.api("/api/v1/users", {
      body: { email: "ann@example.test", name: "Ann", password: "correct horse 7" },
    });
    expect(made.status).toBe(201);
    const [created] = await trail({ action: "users.create" });
    expect(created).toMatchObject({
      event_type: "users.create",
      payload: { input: { email: "ann@example.test", name: "Ann" }, outcome: "ok" },
      metadata: { audit_redacted_fields: "password" },
    });
    expect(JSON.stringify(created)).not.toContain("horse");
  });
});
