import { afterEach, describe, expect, test } from "bun:test";
import {
  chmodSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { type BootstrapOptions, bootstrap, writePending } from "../../src/domain/access/keys/bootstrap.ts";
import { keys as openKeys } from "../../src/domain/access/keys/service.ts";
import { tenancy as openTenancy } from "../../src/domain/access/tenancy/service.ts";
import { users as openUsers } from "../../src/domain/access/users/service.ts";
import { systemClock } from "../../src/kit/clock.ts";
import { systemIds } from "../../src/kit/ids.ts";
import { verifyPassword } from "../../src/kit/password.ts";
import { sql } from "../../src/kit/sql.ts";
import { openStore } from "../../src/store/open.ts";
import type { Store } from "../../src/store/store.ts";
import {
  engines,
  type Home,
  makeHome,
  patience,
  readKey,
  startTestServer,
  type testConfig,
} from "../support/server.ts";
import { keptLog, whoOperations } from "../support/who.ts";

const bootstrapId = "ak_admin_bootstrap";
const clock = systemClock();
const ids = systemIds(clock);

describe.each(engines)("first boot on %s", (engine) => {
  const cleanups: (() => Promise<unknown>)[] = [];
  afterEach(async () => {
    for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
  });

  const boot = async (home: Home, settings: Parameters<typeof testConfig>[1] = {}) => {
    const kept = keptLog();
    const server = await startTestServer({
      engine,
      home,
      settings,
      log: kept.log,
      operations: whoOperations,
    });
    return { server, kept, issued: kept.of("BOOTSTRAP_ADMIN_KEY_ISSUED") };
  };
  const endSessions = async () => {};
  const freshHome = async () => {
    const home = await makeHome(engine, { isEmpty: true });
    cleanups.push(home.remove);
    return home;
  };

  /** A migrated store and what bootstrap wants, without a server around it. */
  const fixture = async () => {
    const home = await freshHome();
    const kept = keptLog();
    const { databaseUrl, db: file } = home.place;
    const store = await openStore({ clock, log: kept.log, databaseUrl, file, poolSize: 4, limits: patience });
    cleanups.push(() => store.close());
    const tenancy = openTenancy({ store, clock, ids, log: kept.log, strictEnvironment: false });
    await tenancy.createDefaults();
    const node = (changes: Partial<BootstrapOptions> = {}): BootstrapOptions => ({
      store,
      clock,
      ids,
      log: kept.log,
      keys: openKeys({ store, clock, ids, endSessions }),
      users: openUsers({
        store,
        clock,
        ids,
        tenancy,
        rolesOf: async () => [],
        endSessions,
        dropIdentities: async () => 0,
      }),
      path: home.keyFile,
      adminKey: undefined,
      adminPassword: undefined,
      ...changes,
    });
    return { home, store, kept, node };
  };
  const rowsOf = async (store: Store) => ({
    keys: await store.all<{ id: string }>(sql`SELECT id FROM api_keys ORDER BY id`),
    users: await store.all<{ email: string }>(sql`SELECT email FROM users ORDER BY email`),
  });
  const opens = async (store: Store, key: string) =>
    (await openKeys({ store, clock, ids, endSessions }).find(key))?.caller.id === bootstrapId;

  test("the key stands in a file that only its owner may read, and works", async () => {
    const home = await freshHome();
    const { server, issued, kept } = await boot(home);
    const { store } = server.running.domain;
    try {
      expect(statSync(home.keyFile).mode & 0o777).toBe(0o400);
      const content = JSON.parse(readFileSync(home.keyFile, "utf8"));
      expect(content).toEqual({
        key: expect.stringMatching(/^ifkey_[0-9a-f]{32}$/),
        key_id: bootstrapId,
        org_id: "org_default",
        role: "admin",
        dashboard_password: expect.stringMatching(/^[0-9a-f]{24}$/),
        timestamp: expect.stringMatching(/^\d{4}-\d\d-\d\dT[\d:.]+Z$/),
      });
      expect(readdirSync(home.folder).filter((name) => name.startsWith("key.json"))).toEqual(["key.json"]);

      const who = await server.api("/test/who", { key: content.key });
      expect(who.body).toMatchObject({
        caller: { id: bootstrapId, orgId: "org_default", roles: ["role_admin"] },
        environment_id: "env_default",
      });
      const user = await store.one<{ password_hash: string }>(sql`SELECT * FROM users`);
      expect(user).toMatchObject({ email: "admin@svc.local", org_id: "org_default", roles: '["admin"]' });
      expect(user?.password_hash).toStartWith("$argon2id$v=19$m=19456,t=2,");
      expect(await verifyPassword(content.dashboard_password, user!.password_hash, "")).toBe(true);

      expect(issued.map(({ fields }) => fields)).toEqual([{ key_id: bootstrapId, file_path: home.keyFile }]);
      const logged = JSON.stringify(kept.lines);
      expect(logged).not.toContain(content.key.slice(6));
      expect(logged).not.toContain(content.dashboard_password);
      // The file has the password, so the banner does not.
      expect(server.running.bootstrapped).toEqual({ key: "issued" });
    } finally {
      await server.stop();
    }
  });

  test("the second boot issues nothing", async () => {
    const home = await freshHome();
    const first = await boot(home);
    await first.server.stop();
    const before = readFileSync(home.keyFile, "utf8");
    const second = await boot(home);
    try {
      expect(second.issued).toEqual([]);
      expect(second.server.running.bootstrapped).toEqual({ key: "existing" });
      expect(readFileSync(home.keyFile, "utf8")).toBe(before);
      expect((await second.server.api("/test/who")).status).toBe(200);
    } finally {
      await second.server.stop();
    }
  });

  test("a file that cannot be written means no key and no user; the next boot retries", async () => {
    const home = await freshHome();
    const bootstrapKeyFile = join(home.folder, "nowhere", "key.json");
    const first = await boot(home, { bootstrapKeyFile });
    expect(await rowsOf(first.server.running.domain.store)).toEqual({ keys: [], users: [] });
    expect(first.server.running.bootstrapped).toEqual({ key: "failed" });
    expect(first.issued).toHaveLength(1);
    expect(first.issued[0]).toMatchObject({
      level: "error",
      fields: { file_path_error: expect.stringContaining(bootstrapKeyFile) },
    });
    expect(first.issued[0]?.fields.file_path).toBeUndefined();
    await first.server.stop();

    mkdirSync(join(home.folder, "nowhere"));
    const second = await boot(home, { bootstrapKeyFile });
    const key = await readKey(bootstrapKeyFile);
    const answer = await second.server.api("/test/who", { key });
    await second.server.stop();
    expect(answer.body.caller.id).toBe(bootstrapId);
  });

  test("a file that cannot get its name takes its key and user back", async () => {
    const { home, store, kept, node } = await fixture();
    // A folder stands where the file should go: the content can be written beside it, the renaming fails.
    mkdirSync(home.keyFile);
    expect(await bootstrap(node())).toEqual({ key: "failed" });
    expect(await rowsOf(store)).toEqual({ keys: [], users: [] });
    expect(readdirSync(home.folder).filter((name) => name.startsWith("key.json."))).toEqual([]);
    expect(kept.of("BOOTSTRAP_ADMIN_KEY_ISSUED")[0]?.fields.file_path_error).toContain(home.keyFile);
    rmSync(home.keyFile, { recursive: true });
    expect(await bootstrap(node())).toEqual({ key: "issued" });
    expect(await opens(store, await readKey(home.keyFile))).toBe(true);
  });

  test("a boot that died before the key was valid leaves nothing that opens", async () => {
    const { home, store, node } = await fixture();
    const { key, row } = node().keys.make({ ...bootstrapKey, name: "dead" });
    writePending(home.keyFile, row.hash, "dead", { ...fileContent, key });
    expect(await bootstrap(node())).toEqual({ key: "issued" });
    expect(await opens(store, key)).toBe(false);
    expect(await opens(store, await readKey(home.keyFile))).toBe(true);
  });

  test("a boot that died after the key was valid: the next one names its file", async () => {
    const { home, store, node } = await fixture();
    const { keys, users } = node();
    const { key, row } = keys.make({ ...bootstrapKey, name: "dead" });
    writePending(home.keyFile, row.hash, "dead", { ...fileContent, key });
    await store.write((session) => keys.insert(session, row));
    const admin = {
      orgId: "org_default",
      email: "a@b.c",
      name: "A",
      password: "long enough",
      roles: [{ id: "role_admin", name: "admin" }],
    };
    const user = await users.prepare(admin);
    await store.write((session) => users.insert(session, user));
    expect(existsSync(home.keyFile)).toBe(false);
    expect(await bootstrap(node())).toEqual({ key: "issued" });
    expect(await readKey(home.keyFile)).toBe(key);
    expect(await opens(store, key)).toBe(true);
    expect(await bootstrap(node())).toEqual({ key: "existing" });
  });

  test("nodes that boot at once issue one key, whether they share the folder or not", async () => {
    const { home, store, kept, node } = await fixture();
    const elsewhere = join(home.folder, "other");
    mkdirSync(elsewhere);
    const paths = [home.keyFile, home.keyFile, join(elsewhere, "key.json"), home.keyFile];
    const outcomes = await Promise.all(paths.map((path) => bootstrap(node({ path }))));
    expect(outcomes.map(({ key }) => key).sort()).toEqual(["existing", "existing", "existing", "issued"]);
    expect(outcomes.every(({ password }) => password === undefined)).toBe(true);
    expect(kept.of("BOOTSTRAP_ADMIN_KEY_ISSUED")).toHaveLength(1);
    expect(await rowsOf(store)).toEqual({
      keys: [{ id: bootstrapId }],
      users: [{ email: "admin@svc.local" }],
    });
    const files = [home.folder, elsewhere].flatMap((folder) =>
      readdirSync(folder)
        .filter((name) => name.startsWith("key.json"))
        .map((name) => join(folder, name)),
    );
    expect(files).toHaveLength(1);
    expect(await opens(store, await readKey(files[0]!))).toBe(true);
  });

  test("a second node that boots between the commit and the naming names the file; the first sees it", async () => {
    const { home, store, node } = await fixture();
    let second: Awaited<ReturnType<typeof bootstrap>> | undefined;
    const interrupted: Store = Object.assign(Object.create(store), {
      async write(work: Parameters<Store["write"]>[0]) {
        const done = await store.write(work);
        second = await bootstrap(node());
        return done;
      },
    });
    expect(await bootstrap(node({ store: interrupted }))).toEqual({ key: "existing" });
    expect(second).toEqual({ key: "issued" });
    expect(await opens(store, await readKey(home.keyFile))).toBe(true);
    expect((await rowsOf(store)).users).toHaveLength(1);
  });

  test("a file that another server left is replaced", async () => {
    const { home, store, node } = await fixture();
    writeFileSync(home.keyFile, '{"key":"ifkey_old"}');
    chmodSync(home.keyFile, 0o644);
    await bootstrap(node());
    expect(await opens(store, await readKey(home.keyFile))).toBe(true);
    expect(statSync(home.keyFile).mode & 0o777).toBe(0o400);
  });

  test("given values are used instead of made up", async () => {
    const { home, store, node } = await fixture();
    const adminKey = "a-key-of-our-own-choice";
    const given = { adminKey, adminPassword: "a password of ours" };
    expect(await bootstrap(node(given))).toEqual({ key: "issued" });
    expect(JSON.parse(readFileSync(home.keyFile, "utf8"))).toMatchObject({
      key: adminKey,
      dashboard_password: "a password of ours",
    });
    expect(await opens(store, adminKey)).toBe(true);
    const shown = await store.one(sql`SELECT key_prefix FROM api_keys`);
    expect(shown).toMatchObject({ key_prefix: "a-ke" });
  });

  test("a given key needs no file: its owner knows it; a password made up for it is told", async () => {
    const { home, store, kept, node } = await fixture();
    const adminKey = "a-key-of-our-own-choice";
    const outcome = await bootstrap(node({ adminKey, path: join(home.folder, "nowhere", "key.json") }));
    expect(outcome).toEqual({ key: "issued", password: expect.stringMatching(/^[0-9a-f]{24}$/) });
    expect(await opens(store, adminKey)).toBe(true);
    expect(kept.of("BOOTSTRAP_ADMIN_KEY_ISSUED")[0]?.fields.file_path_error).toContain("nowhere");
    expect(JSON.stringify(kept.lines)).not.toContain(adminKey);
  });

  test("a key deleted on purpose does not come back while there is another", async () => {
    const { home, store, node } = await fixture();
    await bootstrap(node());
    const { keys } = node();
    const own = { orgId: "org_default", environmentId: "env_default", name: "own", roleIds: ["role_admin"] };
    const { id } = await keys.create(own);
    expect(await keys.remove(bootstrapId)).toBe(true);
    expect(await bootstrap(node())).toEqual({ key: "existing" });
    expect((await rowsOf(store)).keys).toEqual([{ id }]);
    // Locked out of everything: a boot lets the owner of the machine in again, without a new user.
    await keys.remove(id);
    expect(await bootstrap(node())).toEqual({ key: "issued" });
    expect(JSON.parse(readFileSync(home.keyFile, "utf8")).dashboard_password).toBeUndefined();
  });

  test("a user made for a key that was there already has its password in the banner only", async () => {
    const { home, store, kept, node } = await fixture();
    await bootstrap(node());
    const before = readFileSync(home.keyFile, "utf8");
    await store.write((session) => session.run(sql`DELETE FROM users`));
    const outcome = await bootstrap(node());
    expect(outcome).toEqual({ key: "existing", password: expect.any(String) });
    const user = await store.one<{ password_hash: string }>(sql`SELECT password_hash FROM users`);
    expect(await verifyPassword(outcome.password!, user!.password_hash, "")).toBe(true);
    expect(readFileSync(home.keyFile, "utf8")).toBe(before);
    expect(JSON.stringify(kept.lines)).not.toContain(outcome.password!);
  });
});

const bootstrapKey = {
  id: bootstrapId,
  orgId: "org_default",
  environmentId: "env_default",
  roleIds: ["role_admin"],
};
const fileContent = {
  key_id: bootstrapId,
  org_id: "org_default",
  role: "admin",
  timestamp: "2026-01-01T00:00:00.000Z",
};
