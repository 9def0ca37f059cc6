import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { createHash } from "node:crypto";
import { request as httpRequest } from "node:http";
import { sql } from "../../src/kit/sql.ts";
import { exportedTables, exportSections } from "../../src/store/exported-tables.ts";
import { tables } from "../../src/store/tables/index.ts";
import { askExport, exportOf, exportPath } from "../support/exports.ts";
import { type FurnishedOrg, furnishOrg } from "../support/furnished-org.ts";
import { startNats } from "../support/nats.ts";
import { engines, makeHome, startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

/** Asks for an export and reads none of it, so that it stays under way. */
function hold(url: string, key: string) {
  const asked = httpRequest(`${url}${exportPath}`, { headers: { authorization: `Bearer ${key}` } });
  const answered = new Promise<number>((resolve, reject) => {
    asked.on("error", reject);
    asked.on("response", (response) => {
      response.pause();
      response.on("error", () => {});
      resolve(response.statusCode ?? 0);
    });
  });
  asked.end();
  return { answered, leave: () => asked.destroy() };
}

describe.each(engines)("exports on %s", (engine) => {
  let server: TestServer;
  let org: FurnishedOrg;
  let other: FurnishedOrg;
  beforeAll(async () => {
    server = await startTestServer({ engine });
    org = await furnishOrg(server, "leaves");
    other = await furnishOrg(server, "stays");
  }, 120_000);
  afterAll(() => server.stop());

  const setLease = (untilAt: number) =>
    server.running.domain.store.write((session) =>
      session.run(sql`INSERT INTO exports (org_id, holder, lease_until) VALUES (${org.orgId}, 'other', ${untilAt})
        ON CONFLICT (org_id) DO UPDATE SET holder = excluded.holder, lease_until = excluded.lease_until`),
    );
  const leases = async () =>
    (await server.running.domain.store.all(sql`SELECT holder FROM exports WHERE org_id = ${org.orgId}`))
      .length;

  test("every column of every table leaves, or is said to stay", async () => {
    const { store } = server.running.domain;
    const named = new Set(exportedTables.map(({ table }) => table));
    const staying = Object.entries(tables).filter(([, { exported }]) => typeof exported === "string");
    expect([...named, ...staying.map(([name]) => name)].sort()).toEqual(Object.keys(tables).sort());
    const ownersOf = { org: "org_id", environment: "environment_id", runs: "environment_id" };
    for (const { table, of, columns, left } of exportedTables) {
      const found =
        engine === "libsql"
          ? await store.all<{ name: string }>(sql`SELECT name FROM pragma_table_info(${table})`)
          : await store.all<{ name: string }>(sql`SELECT attname AS name FROM pg_attribute
              WHERE attrelid = CAST(${table} AS regclass) AND attnum > 0 AND NOT attisdropped`);
      const names = [ownersOf[of], ...Object.keys(columns), ...left];
      expect(names.sort(), table).toEqual(found.map(({ name }) => name).sort());
    }
  });

  test("it holds all of the org, nothing of another one, and no secret", async () => {
    const file = await exportOf(server.url, org.key);
    expect(file.meta).toMatchObject({
      ...{ section: "meta", format: "svc-export", format_version: 1, whole: true },
      org: { id: org.orgId, name: `same ${org.marker}` },
      sections: [...exportSections],
    });
    const [environment] = file.meta.environments;
    const events = file.rowsOf("events");
    expect(environment).toMatchObject({ id: org.environmentId, position: events.length });
    expect(events.map(({ position }) => position)).toEqual(events.map((_, at) => at + 1));
    expect(events.find(({ name }) => name === "same.event")).toMatchObject({ data: { marker: org.marker } });
    for (const section of exportSections) {
      const count = file.lines.filter((line) => line.kind !== undefined && line.section === section).length;
      expect(file.end.counts[section], section).toBe(count);
      expect(count, section).toBeGreaterThan(0);
    }
    const body = file.text.slice(0, file.text.lastIndexOf("\n", file.text.length - 2) + 1);
    expect(file.end.sha256).toBe(createHash("sha256").update(body).digest("hex"));
    expect(file.text).not.toContain(other.marker);
    expect(file.text).not.toContain(`${org.marker}-SECRET`);
    const hidden = await server.running.domain.store.all<{
      hidden: string | null;
    }>(sql`SELECT password_hash AS hidden
      FROM users UNION ALL SELECT key_hash FROM api_keys UNION ALL SELECT sealed FROM secrets
      UNION ALL SELECT sealed FROM webhook_endpoints UNION ALL SELECT token_hash FROM webhook_sources
      UNION ALL SELECT sealed FROM webhook_sources UNION ALL SELECT lease_hash FROM runs`);
    expect(hidden.length).toBeGreaterThan(5);
    for (const { hidden: text } of hidden) if (text !== null) expect(file.text).not.toContain(text);
    expect(await leases()).toBe(0);
    await server.running.tick("audit.flush");
    const trail = (await exportOf(server.url, org.key, "?include=audit")).rowsOf("auth_audit");
    expect(trail.at(-1)).toMatchObject({ operation: "orgs.export", allowed: 1, outcome: "ok" });
  });

  test("sections and times can be chosen; what cannot be read is refused", async () => {
    const part = await exportOf(server.url, org.key, "?include=events,kv");
    expect(part.meta).toMatchObject({ whole: false, sections: ["events", "kv"] });
    expect(Object.keys(part.end.counts)).toEqual(["events", "kv"]);
    const events = part.rowsOf("events");
    const at = new Date(events[3]!.at as number).toISOString();
    const late = (await exportOf(server.url, org.key, `?include=events&from=${at}`)).rowsOf("events");
    const early = (await exportOf(server.url, org.key, `?include=events&to=${at}`)).rowsOf("events");
    expect([...early, ...late]).toEqual(events);
    for (const [query, field] of [
      ["?include=events,passwords", "include"],
      ["?from=yesterday", "from"],
      ["?to=2026", "to"],
      [`?from=${at}&to=${at}`, "to"],
    ] as const) {
      const { status, refusal } = await askExport(server.url, org.key, query);
      expect({ status, field: refusal.field }, query).toEqual({ status: 400, field });
    }
  });

  test("only an admin may have it", async () => {
    for (const name of ["viewer", "developer"] as const) {
      const { status } = await fetch(`${server.url}${exportPath}`, { headers: org.visitors[name]!.headers });
      expect(status, name).toBe(403);
    }
    expect((await askExport(server.url, null)).status).toBe(401);
  });

  test("a second one of an org is refused while the first has the lease", async () => {
    await setLease(Date.now() + 3_600_000);
    const { status, headers, refusal } = await askExport(server.url, org.key);
    expect({ status, message: refusal.message }).toEqual({
      status: 429,
      message: "the org is exported already: try again when it is over",
    });
    expect(Number(headers.get("retry-after"))).toBeGreaterThan(0);
    expect((await askExport(server.url, other.key)).status).toBe(200);
    // What a dead node left is taken over.
    await setLease(Date.now() - 1);
    expect((await askExport(server.url, org.key)).status).toBe(200);
    expect(await leases()).toBe(0);
  });

  test("a client that takes nothing keeps out its own org alone, and gives its place back when it leaves", async () => {
    const body = "x".repeat(600_000);
    for (let count = 0; count < 20; count++)
      await org.api("/svc.v1.SvcService/Emit", { body: { event: "big.one", data: { body } } });
    const held = hold(server.url, org.key);
    expect(await held.answered).toBe(200);
    const { status, headers } = await askExport(server.url, org.key);
    expect({ status, again: headers.get("retry-after") }).toEqual({ status: 429, again: "30" });
    expect((await askExport(server.url, other.key)).status).toBe(200);
    held.leave();
    await until(async () => (await askExport(server.url, org.key)).status === 200, {
      about: "an export after the one that was cut",
    });
    expect(await leases()).toBe(0);
  });

  test("a key that is deleted meanwhile gets no more of it", async () => {
    const made = {
      orgId: org.orgId,
      environmentId: org.environmentId,
      name: "gone",
      roleIds: ["role_admin"],
    };
    const { id, key } = await server.running.domain.keys.create(made);
    const { body } = await fetch(`${server.url}${exportPath}`, {
      headers: { authorization: `Bearer ${key}` },
    });
    const reader = body!.getReader();
    let text = new TextDecoder().decode((await reader.read()).value);
    expect((await server.api(`/api/v1/apikeys/${id}`, { key: org.key, method: "DELETE" })).status).toBe(204);
    await server.running.tick("edge.standing");
    await server.running.tick("edge.standing");
    try {
      for (let piece = await reader.read(); !piece.done; piece = await reader.read())
        text += new TextDecoder().decode(piece.value);
    } catch {
      // The connection was cut.
    }
    expect(text).toContain('"section":"meta"');
    expect(text).not.toContain('"section":"end"');
    await until(async () => (await leases()) === 0, { about: "the lease of the export that was cut" });
  });
});

test("another node refuses a second export too, and gives the captured requests of both", async () => {
  const bus = await startNats();
  const home = await makeHome("postgres");
  const nodes: TestServer[] = [];
  try {
    for (let number = 0; number < 2; number++)
      nodes.push(await startTestServer({ engine: "postgres", nats: bus.url, home }));
    const [one, two] = nodes as [TestServer, TestServer];
    const body = "x".repeat(600_000);
    for (let count = 0; count < 20; count++)
      await one.rpc("SvcService", "Emit", { event: "big.one", data: { body } });
    const held = hold(one.url, one.adminKey);
    expect(await held.answered).toBe(200);
    expect((await askExport(two.url, two.adminKey)).status).toBe(429);
    held.leave();
    await until(async () => (await askExport(two.url, two.adminKey)).status === 200, {
      about: "an export elsewhere",
    });

    const captured = async (node: TestServer) => (await node.api("/api/v1/debug/requests")).body;
    await until(async () => one.running.loops.length > 0 && (await captured(one)).requests !== undefined, {
      about: "capturing",
    });
    await one.rpc("SvcService", "Emit", { event: "seen.here", data: { password: "hunter2", plain: 1 } });
    await two.api("/api/v1/secrets", {
      body: { name: "seen", value: "hunter3" },
      headers: { cookie: "a=hunter4" },
    });
    await two.api("/api/v1/events?token=hunter5&limit=1");
    const seen = await until(
      async () => {
        const { requests } = await captured(two);
        return requests.length >= 3 ? requests : undefined;
      },
      { about: "requests of both nodes" },
    );
    const of = (name: string) => seen.find(({ operation }: { operation: string }) => operation === name);
    expect(of("events.emit")).toMatchObject({
      ...{ method: "POST", status: 200, outcome: "ok", node_id: one.running.nodeId },
      body: { data: { plain: 1 } },
      removed_fields: ["password"],
      headers: { authorization: "[REDACTED]" },
    });
    expect(of("secrets.create")).toMatchObject({ node_id: two.running.nodeId, body: { name: "seen" } });
    expect(of("events.list")).toMatchObject({ query: { limit: "1" }, removed_fields: ["token"] });
    expect(JSON.stringify(seen)).not.toMatch(/hunter\d|ifkey_[0-9a-f]/);

    expect((await two.api("/api/v1/debug/requests", { method: "DELETE" })).status).toBe(204);
    expect((await captured(one)).requests).toEqual([]);
    for (let count = 0; count < 110; count++) await one.api("/api/v1/events/names");
    const { requests, count } = await captured(two);
    expect({ length: requests.length, count }).toEqual({ length: 100, count: 100 });
  } finally {
    for (const node of nodes.toReversed()) await node.stop();
    await bus.stop();
    await home.remove();
  }
}, 120_000);
