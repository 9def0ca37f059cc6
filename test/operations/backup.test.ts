import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { existsSync, readdirSync, readFileSync, statSync } from "node:fs";
import { mkdtemp } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { findPostgresProgram, run } from "../../cluster/programs.ts";
import { systemClock } from "../../src/kit/clock.ts";
import { silentLog } from "../../src/kit/log.ts";
import { sql } from "../../src/kit/sql.ts";
import { drivers } from "../../src/store/libsql-drivers.ts";
import { restoreLibsql } from "../../src/store/libsql-restore.ts";
import { openStore } from "../../src/store/open.ts";
import { type AckedEmit, checkAll } from "../support/checkers.ts";
import { sharedPostgres } from "../support/postgres.ts";
import { removeFolder } from "../support/process.ts";
import {
  type Caller,
  makeHome,
  type SpawnedServer,
  spawnServer,
  startTestServer,
} from "../support/server.ts";
import { until } from "../support/until.ts";

const mainFile = resolve(import.meta.dir, "../../src/main.ts");
const clock = systemClock();
const masterKey = "a5".repeat(32);
let folder: string;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "svc-backup-"));
});
afterAll(() => removeFolder(folder));

async function svc(...argv: string[]) {
  const child = Bun.spawn([process.execPath, "run", mainFile, ...argv], {
    cwd: folder,
    env: { PATH: process.env.PATH ?? "" },
    stdout: "pipe",
    stderr: "pipe",
  });
  const [out, err] = await Promise.all([
    new Response(child.stdout).text(),
    new Response(child.stderr).text(),
  ]);
  return { out, err, code: await child.exited };
}

async function emit({ rpc }: Caller, count: number): Promise<AckedEmit[]> {
  const acked: AckedEmit[] = [];
  for (let number = 0; number < count; number++) {
    const { status, body } = await rpc("SvcService", "Emit", { event: "kept", data: { number } });
    expect(status).toBe(200);
    acked.push({
      environmentId: "env_default",
      eventId: body.eventId,
      runIds: body.runIds ?? [],
      position: Number(body.sequence),
    });
  }
  return acked;
}

async function headOf(place: { file: string } | { databaseUrl: string }, acked: AckedEmit[] = []) {
  const store = await openStore({ clock, log: silentLog, poolSize: 1, hotPoolSize: 1, ...place });
  try {
    expect(await checkAll(store, { acked, now: clock.now() })).toEqual([]);
    return await store.one<{ position: number; epoch: number }>(
      sql`SELECT position, epoch FROM heads WHERE environment_id = 'env_default'`,
    );
  } finally {
    await store.close();
  }
}

/** Names, sizes and contents of a folder, to see that nothing has changed. */
const pictureOf = (path: string) =>
  readdirSync(path)
    .sort()
    .map((name) => [name, Bun.hash(readFileSync(join(path, name))).toString()]);

describe("a database file", () => {
  let server: SpawnedServer;
  let file: string;
  const backup = () => join(folder, "backup.db");

  beforeAll(async () => {
    server = await spawnServer({ engine: "libsql", settings: { masterKey } });
    file = server.home.place.db;
    await server.rpc("SvcService", "RegisterFunction", { id: "keeper", triggers: [{ event: "kept" }] });
  });
  afterAll(() => server.stop());

  test("backed up under load, it holds all that was acked before, and goes on from there", async () => {
    const acked: AckedEmit[] = [];
    let over = false;
    const callers = Array.from({ length: 8 }, async () => {
      while (!over) acked.push(...(await emit(server, 1)));
    });
    await until(() => acked.length >= 200, { about: "some load" });
    const before = [...acked];
    const made = await svc("backup", "--db", file, "--to", backup());
    const during = acked.length - before.length;
    over = true;
    await Promise.all(callers);
    expect(made).toMatchObject({ code: 0, err: "" });
    expect(made.out).toContain(`backup of ${file} in ${backup()}`);
    expect(made.out).toContain("not in it");
    expect(during).toBeGreaterThan(0);
    expect(statSync(backup()).mode & 0o777).toBe(0o600);

    const restored = join(folder, "restored", "svc.db");
    const put = await svc("restore", "--from", backup(), "--db", restored);
    expect(put).toMatchObject({ code: 0, err: "" });
    const head = await headOf({ file: restored }, before);
    expect(head?.position).toBeGreaterThanOrEqual(before.length);
    expect(head?.position).toBeLessThanOrEqual(acked.length);
    expect(head?.epoch).toBeGreaterThan(0);

    // The key that its secrets are sealed with is kept apart from backups.
    expect(put.out).toContain(".svc_master_key");
    const home = { ...server.home, folder: join(folder, "restored") };
    const next = await startTestServer({
      engine: "libsql",
      settings: { masterKey },
      home: { ...home, place: { db: restored, databaseUrl: undefined } },
    });
    const [one] = await emit(next, 1);
    const installationOf = async ({ api }: Caller) => (await api("/ready")).headers.get("x-svc-installation");
    const installation = await installationOf(next);
    expect(installation).toStartWith("ins_");
    expect(installation).toBe(await installationOf(server));
    await next.stop();
    expect(one?.position).toBe((head?.position ?? 0) + 1);
    expect(one?.runIds).toHaveLength(1);
  }, 120_000);

  test("is not overwritten, neither as a backup nor as a database, unless that is wanted", async () => {
    const again = await svc("backup", "--db", file, "--to", backup());
    expect(again).toMatchObject({ code: 1, err: `svc: ${backup()} exists; --force overwrites it\n` });
    expect(await svc("backup", "--db", file, "--to", file, "--force")).toMatchObject({ code: 1 });
    expect(await svc("backup", "--db", file, "--to", backup(), "--force")).toMatchObject({ code: 0 });
    expect((await svc("backup", "--db", join(folder, "none.db"), "--to", "x")).err).toContain(
      "does not exist",
    );
    expect(await svc("backup", "--db", file)).toMatchObject({ code: 2 });
    expect(readdirSync(folder).filter((name) => name.includes("making"))).toEqual([]);
  }, 120_000);

  test("is not replaced while a server has it", async () => {
    const [before] = await emit(server, 1);
    for (const extra of [[], ["--force"]]) {
      const refused = await svc("restore", "--from", backup(), "--db", file, ...extra);
      expect(refused.code).toBe(1);
      expect(refused.err).toContain(extra.length > 0 ? `is open in process ${server.pid()}` : "exists");
    }
    expect((await svc("restore", "--epoch", "--db", file)).err).toContain("is open in process");
    const [after] = await emit(server, 1);
    expect(after?.position).toBe((before?.position ?? 0) + 1);
    expect(readdirSync(server.home.folder).filter((name) => name.includes("restor"))).toEqual([]);
  }, 120_000);

  test("torn, foreign, live and newer files are refused and nothing changes", async () => {
    const bytes = readFileSync(backup());
    const target = join(folder, "target");
    const db = join(target, "svc.db");
    expect(await svc("restore", "--from", backup(), "--db", db)).toMatchObject({ code: 0 });
    const driver = await drivers.libsql();
    const changed = async (name: string, statement: string) => {
      await Bun.write(join(folder, name), bytes);
      const connection = driver(join(folder, name), 0);
      connection.exec(statement);
      connection.close();
    };
    const scribbled = Buffer.from(bytes);
    scribbled.fill(0x5a, 8192, 24_576);
    await Bun.write(join(folder, "torn.db"), bytes.subarray(0, bytes.length / 2));
    await Bun.write(join(folder, "scribbled.db"), scribbled);
    await Bun.write(join(folder, "foreign.db"), "no database at all ".repeat(100));
    await Bun.write(join(folder, "empty.db"), "");
    await changed("other.db", "DROP TABLE migrations");
    await changed("headless.db", "UPDATE heads SET position = 1");
    await changed("newer.db", "INSERT INTO migrations VALUES (9999, 'later', 'hash', 0, 0)");
    await Bun.write(join(folder, "live.db"), bytes);
    await Bun.write(join(folder, "live.db-wal"), "something");

    const picture = pictureOf(target);
    const reasons = {
      "torn.db": "damaged",
      "scribbled.db": "damaged",
      "foreign.db": "no database",
      "empty.db": "no database",
      "other.db": "no database",
      "headless.db": "damaged",
      "newer.db": "newer than this program",
      "live.db": "database in use",
      "missing.db": "does not exist",
    };
    for (const [name, reason] of Object.entries(reasons)) {
      const refused = await svc("restore", "--from", join(folder, name), "--db", db, "--force");
      expect({ name, code: refused.code, err: refused.err }).toEqual({
        name,
        code: 1,
        err: expect.stringContaining(reason),
      });
    }
    expect(pictureOf(target)).toEqual(picture);
  }, 120_000);

  test("tables of SQL projections come back with their store, and go on where they were", async () => {
    const made = await server.rpc("ProjectionService", "CreateSQLProjection", {
      ...{ name: "counted", tableSql: "CREATE TABLE proj_counted (id text PRIMARY KEY, n int)" },
      eventHandlers: { "counted.one": "INSERT INTO proj_counted (id, n) VALUES (:event_id, :data.n)" },
    });
    expect(made.status).toBe(200);
    const add = async ({ rpc }: Caller, n: number) => {
      const { body } = await rpc("SvcService", "Emit", { event: "counted.one", data: { n } });
      return body.sequence as string;
    };
    const sum = async ({ rpc }: Caller, minSeq: string) => {
      const wait = { name: "counted", minSeq, timeout: "20s" };
      expect((await rpc("ProjectionService", "WaitProjectionCatchup", wait)).body.caughtUp).toBe(true);
      const query = "SELECT count(*), sum(n) FROM proj_counted";
      return (await rpc("QueryService", "ExecuteSQL", { query })).body.rows[0].values;
    };
    await add(server, 1);
    expect(await sum(server, await add(server, 2))).toEqual(["2", "3"]);
    const to = join(folder, "tables.db");
    expect(await svc("backup", "--db", file, "--to", to)).toMatchObject({ code: 0, err: "" });
    const db = join(folder, "tables", "svc.db");
    expect(await svc("restore", "--from", to, "--db", db)).toMatchObject({ code: 0, err: "" });
    const home = {
      ...server.home,
      folder: join(folder, "tables"),
      place: { db, databaseUrl: undefined },
    };
    const next = await startTestServer({ engine: "libsql", settings: { masterKey }, home });
    const own = {
      rpc: (service: string, method: string, body?: unknown) =>
        next.rpc(service, method, body, { key: server.adminKey }),
    };
    expect(await sum(own as Caller, await add(own as Caller, 4))).toEqual(["3", "7"]);
    await next.stop();
  });

  test("what a restore replaces is kept, and every restore has an epoch of its own", async () => {
    const db = join(folder, "twice", "svc.db");
    const driver = await drivers.libsql();
    const at = (now: number, stamp: string) =>
      restoreLibsql({ from: backup(), file: db, force: true, driver, now, stamp });
    expect(at(1_800_000_000_000, "first").aside).toBeUndefined();
    const first = await headOf({ file: db });
    const { aside } = at(1_800_000_060_000, "second");
    expect(aside).toBe(`${db}.before-restore-second`);
    const second = await headOf({ file: db });
    expect(await headOf({ file: aside as string })).toEqual(first);
    expect(first?.epoch).toBe(1_800_000_000);
    expect(second?.epoch).toBe(1_800_000_060);
    // A clock that was set back gives no old epoch again.
    expect(await svc("restore", "--epoch", "--db", db)).toMatchObject({ code: 0 });
    expect((await headOf({ file: db }))?.epoch).toBe(1_800_000_061);
  }, 120_000);
});

test("a PostgreSQL database that was dumped and restored goes on in a new epoch", async () => {
  const home = await makeHome("postgres");
  const databases = await sharedPostgres();
  const copy = await databases.createDatabase();
  const url = home.place.databaseUrl as string;
  const dump = join(folder, "svc.dump");
  const server = await startTestServer({ engine: "postgres", home });
  try {
    const acked = await emit(server, 20);
    await run([findPostgresProgram("pg_dump"), "-Fc", "-f", dump, url]);
    await emit(server, 5);
    await run([findPostgresProgram("pg_restore"), "--no-owner", "-d", copy, dump]);
    expect(existsSync(dump)).toBe(true);

    const tooEarly = await svc("restore", "--epoch", "--database-url", url);
    expect(tooEarly.code).toBe(1);
    expect(tooEarly.err).toMatch(/others are connected to this database: svc \(\d+\)/);
    const wrong = await svc("restore", "--from", dump, "--database-url", copy);
    expect(wrong.err).toContain("use pg_restore");
    const raised = await svc("restore", "--epoch", "--database-url", copy);
    expect(raised).toMatchObject({ code: 0, err: "" });
    expect(await headOf({ databaseUrl: copy }, acked)).toMatchObject({ position: 20 });
    const head = await headOf({ databaseUrl: copy });
    expect(head?.epoch).toBeGreaterThan(1_700_000_000);

    const place = { ...home.place, databaseUrl: copy };
    const start = () => startTestServer({ engine: "postgres", home: { ...home, place } });
    // As it would be on another server: its operator says what happened before a node writes there.
    const moved = new Bun.SQL(copy, { max: 1 });
    await moved.unsafe("UPDATE primary_server SET system_identifier = '1'");
    await moved.close();
    await expect(start()).rejects.toThrow("svc restore --epoch");
    expect((await svc("restore", "--moved", "--epoch", "--database-url", copy)).err).toContain("--moved");
    expect(await svc("restore", "--moved", "--database-url", copy)).toMatchObject({ code: 0, err: "" });
    const next = await start();
    const [one] = await emit(next, 1);
    await next.stop();
    expect(one?.position).toBe(21);
  } finally {
    await server.stop();
    await databases.dropDatabase(copy);
    await home.remove();
  }
}, 120_000);
