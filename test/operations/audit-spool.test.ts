import { describe, expect, test } from "bun:test";
import { appendFile, mkdtemp, readdir, readFile, utimes } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { AuditEntry } from "../../src/domain/record/audit/rules.ts";
import { openSpool } from "../../src/domain/record/audit/spool.ts";
import { sql } from "../../src/kit/sql.ts";
import { removeFolder } from "../support/process.ts";
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
    for (let round = 0; round < 5; round++)
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

  test("a row that the store refuses keeps no other from it", async () => {
    const server = await startTestServer({ engine });
    const { store } = server.running.domain;
    const refusal =
      engine === "postgres"
        ? sql`ALTER TABLE auth_audit ADD CHECK (operation <> 'roles.create')`
        : sql`CREATE TRIGGER refuses BEFORE INSERT ON auth_audit WHEN new.operation = 'roles.create'
            BEGIN SELECT RAISE(ABORT, 'no'); END`;
    await store.write((session) => session.run(refusal));
    await change(server, "refused");
    const policy = { name: "kept", effect: "deny", actions: "*", resources: "irn:svc:*:*:run:*:none" };
    await server.api("/api/v1/policies", { body: policy });
    // The loop itself tries meanwhile.
    for (let tries = 0; tries < 3; tries++) await server.running.tick("audit.flush").catch(() => {});
    expect(await trail(server, "policies.create")).toHaveLength(1);
    expect(await trail(server, "roles.create")).toEqual([]);
    expect(await verify(server)).toMatchObject({ valid: true });
    const { body } = await server.api("/api/v1/audit/settings");
    expect(body).toMatchObject({ delivery_healthy: true });
    expect(body.delivery_failure_count).toBeGreaterThan(0);
    await server.stop();
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

// They were passed over without a word: with a secret that is gone, whole files.
test("rows that cannot be trusted are passed over one by one, and each is told of", async () => {
  const folder = await mkdtemp(join(tmpdir(), "svc-spool-"));
  const secret = { id: "one", secret: "secret" };
  const lost: string[] = [];
  const spool = openSpool({
    ...{ folder, stamp: "node" },
    secrets: { current: () => secret, find: (id) => (id === secret.id ? secret.secret : undefined) },
    onLost: (file) => lost.push(file),
  });
  const file = spool.append({ id: "aud_1" } as AuditEntry);
  spool.append({ id: "aud_2" } as AuditEntry);
  const [, mac, text] = (await readFile(file, "utf8")).split("\n")[0]!.split(" ");
  await appendFile(file, `two ${mac} ${text}\none ${mac} {}\none ${mac}`);
  expect(spool.read(file).map(({ id }) => id)).toEqual(["aud_1", "aud_2"]);
  expect(lost).toEqual([file, file, file]);
  spool.cut();
  await removeFolder(folder);
});
