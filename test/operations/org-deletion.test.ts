import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { orgOutlivedBy, tablesOfOrg } from "../../src/domain/access/tenancy/deletion-rows.ts";
import { sql } from "../../src/kit/sql.ts";
import { type FurnishedOrg, furnishOrg } from "../support/furnished-org.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";

describe.each(engines)("a deleted org on %s", (engine) => {
  let server: TestServer;
  let gone: FurnishedOrg;
  let other: FurnishedOrg;
  let platformKey: string;

  beforeAll(async () => {
    server = await startTestServer({ engine, settings: { pollHoldMs: 1 } });
    gone = await furnishOrg(server, "gone");
    other = await furnishOrg(server, "other");
    const platform = { orgId: "org_platform", environmentId: null, isPlatform: true };
    const roleIds = ["role_platform_viewer"];
    for (const { orgId } of [gone, other])
      await server.running.domain.store.write(async (session) => {
        await session.run(
          sql`INSERT INTO exports (org_id, holder, lease_until) VALUES (${orgId}, 'node', 1)`,
        );
        await session.run(sql`INSERT INTO imports (org_id, sum, line_count, environment_ids, started_at)
          VALUES (${orgId}, 'sum', 1, ${JSON.stringify([`env_half_${orgId}`])}, 1)`);
      });
    platformKey = (await server.running.domain.keys.create({ ...platform, name: "p", roleIds })).key;
  }, 120_000);
  afterAll(() => server.stop());

  const rowsOf = async (table: string, orgId: string) =>
    (await server.running.domain.store.one<{ count: number }>(
      sql`SELECT count(*) AS count FROM ${sql.raw(table)} WHERE org_id = ${orgId}`,
    ))!.count;

  test("takes along everything of its own, and nothing of its neighbour's", async () => {
    // What is not there could not be missed.
    const before = new Map<string, number>();
    for (const table of tablesOfOrg) {
      expect([table, Number(await rowsOf(table, gone.orgId)) > 0]).toEqual([table, true]);
      before.set(table, await rowsOf(table, other.orgId));
    }
    const path = `/api/v1/orgs/${gone.orgId}`;
    expect((await server.api(path, { key: gone.key, method: "DELETE" })).status).toBe(204);
    for (const table of tablesOfOrg) {
      expect([table, Number(await rowsOf(table, gone.orgId))]).toEqual([table, 0]);
      expect([table, await rowsOf(table, other.orgId)]).toEqual([table, before.get(table)!]);
    }
    // The rows of an import that was not finished go with the purge.
    const buried = sql`SELECT id FROM deleted_environments WHERE id LIKE 'env_half%'`;
    expect(await server.running.domain.store.all(buried)).toEqual([{ id: `env_half_${gone.orgId}` }]);
    for (const [name, { headers, query = "" }] of Object.entries(gone.visitors))
      expect([name, (await server.api(`/api/v1/events${query}`, { key: null, headers })).status]).toEqual([
        name,
        401,
      ]);
    expect((await server.api("/api/v1/events", { key: other.key })).status).toBe(200);
  });

  test("leaves its audit, its deletion included: for the platform, to read and to verify", async () => {
    await server.running.tick("audit.flush");
    const trail = (key: string) =>
      server.rpc("AuditService", "GetAuthAuditTrail", { orgId: gone.orgId, limit: 200 }, { key });
    const { status, body } = await trail(platformKey);
    expect(status).toBe(200);
    expect(JSON.stringify(body)).toContain("orgs.delete");
    const verify = (key: string) => server.api(`/api/v1/audit/verify?org_id=${gone.orgId}`, { key });
    expect((await verify(platformKey)).body).toMatchObject({ valid: true, broken: null });
    expect(Number((await verify(platformKey)).body.head_sequence)).toBeGreaterThan(0);
    for (const table of Object.keys(orgOutlivedBy).filter((name) => name.startsWith("auth_audit")))
      expect([table, Number(await rowsOf(table, gone.orgId)) > 0]).toEqual([table, true]);
    // For everybody else it is an org that never was.
    const never = (text: string) => text.replaceAll(gone.orgId, "ID").replaceAll("org_none", "ID");
    expect((await trail(other.key)).status).toBe(404);
    expect((await verify(other.key)).status).toBe(404);
    const theirs = await server.api(`/api/v1/orgs/${gone.orgId}`, { key: other.key });
    const none = await server.api("/api/v1/orgs/org_none", { key: other.key });
    expect(never(JSON.stringify(theirs.body))).toBe(never(JSON.stringify(none.body)));
  });
});
