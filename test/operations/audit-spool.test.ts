import { describe, expect, test } from "bun:test";
import { readdir, utimes } from "node:fs/promises";
import { sql } from "../../src/kit/sql.ts";
import { engines, makeHome, spawnServer, startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

const trail = async (server: Pick<TestServer, "rpc">, action: string, limit = 200) =>
  (await server.rpc("AuditService", "GetAuthAuditTrail", { action, limit })).body.events;
const verify = async (server: Pick<TestServer, "api">) => (await server.api("/api/v1/audit/verify")).body;
const change = (server: Pick<TestServer, "api">, name: string) =>
  server.api("/api/v1/roles", { body: { name } });

describe.each(engines)("audit rows that wait, on %s", (engine) => {
  test("survive a store that takes none, and come in their order, once", async () => {
    const home = await makeHome(engine);
    const server = await startTestServer({ engine, home, settings: { auditSpool: `${home.folder}/spool` } });
    const { store } = server.running.domain;
    const rename = (from: string, to: string) =>
      store.write((session) => session.run(sql`ALTER TABLE ${sql.raw(from)} RENAME TO ${sql.raw(to)}`));
    await change(server, "before");
    await server.running.tick("audit.flush");
    await rename("auth_audit", "auth_audit_away");
    await change(server, "one");
    await change(server, "two");
    await expect(server.running.tick("audit.flush")).rejects.toThrow();
    const { body } = await server.api("/api/v1/audit/settings");
    expect(body.delivery_healthy).toBe(false);
    expect(body.delivery_failure_count).toBeGreaterThan(0);
    expect((await readdir(`${home.folder}/spool`)).length).toBeGreaterThan(0);
    await rename("auth_audit_away", "auth_audit");
    await server.running.tick("audit.flush");
    const names = (await trail(server, "roles.create")).map(
      (event: { payload: { input: { name: string } } }) => event.payload.input.name,
    );
    expect(names).toEqual(["two", "one", "before"]);
    expect(await verify(server)).toMatchObject({ valid: true });
    expect((await server.api("/api/v1/audit/settings")).body.delivery_healthy).toBe(true);
    expect(await readdir(`${home.folder}/spool`)).toEqual([]);
    await server.stop();
    await home.remove();
  });

  test("many calls at once on two nodes make one whole chain", async () => {
    const server = await startTestServer({ engine });
    // The database file has one process; a second server in it stands for the other node.
    const other = engine === "postgres" ? await startTestServer({ engine, home: server.home }) : server;
    const names = Array.from({ length: 40 }, (_, n) => `role-${n}`);
    await Promise.all(names.map((name, n) => change(n % 2 ? server : other, name)));
    await Promise.all([server.running.tick("audit.flush"), other.running.tick("audit.flush")]);
    expect((await trail(server, "roles.create")).length).toBe(40);
    expect(await verify(server)).toMatchObject({ valid: true, head_sequence: 40, checked: 40 });
    if (other !== server) await other.stop();
    await server.stop();
  });
});

test("a killed server's audit rows are taken over by the next", async () => {
  const home = await makeHome("libsql");
  const spool = `${home.folder}/spool`;
  const server = await spawnServer({ engine: "libsql", home, settings: { auditSpool: spool } });
  const names = Array.from({ length: 20 }, (_, n) => `role-${n}`);
  await Promise.all(names.map((name) => change(server, name)));
  await server.kill9();
  const left = await readdir(spool);
  // As if it had been dead for a while: only what nobody touches is taken over.
  for (const name of left) await utimes(`${spool}/${name}`, 1, 1);
  await server.restart();
  const found = await until(
    async () => {
      const events = await trail(server, "roles.create");
      return events.length >= names.length ? events : undefined;
    },
    { about: "the audit rows" },
  );
  expect(
    found.map((event: { payload: { input: { name: string } } }) => event.payload.input.name).sort(),
  ).toEqual(names.sort());
  expect(await verify(server)).toMatchObject({ valid: true });
  await server.stop();
  await home.remove();
}, 120_000);
