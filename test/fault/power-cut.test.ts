import { afterAll, describe, expect, test } from "bun:test";
import { join, resolve } from "node:path";
import { silentLog } from "../../src/kit/log.ts";
import { sql } from "../../src/kit/sql.ts";
import { openStore } from "../../src/store/open.ts";
import type { Store } from "../../src/store/store.ts";
import { clock, concurrently, emitUntilAcked } from "../cluster/load.ts";
import { type AckedEmit, checkAll } from "../support/checkers.ts";
import { type Disk, makeDisk, mayMount } from "../support/disk.ts";
import { startPostgres } from "../support/postgres.ts";
import { run } from "../support/process.ts";
import { engines, makeHomeAt, spawnServer } from "../support/server.ts";
import { until } from "../support/until.ts";

const program = resolve(import.meta.dir, "writer-program.ts");
const megabytes = 320;

/** What is to be undone, last first, however a test ends. */
const undo: (() => unknown)[] = [];
afterAll(async () => {
  for (const step of undo.splice(0).reverse()) await step();
}, 120_000);

async function disk(): Promise<Disk> {
  const made = await makeDisk({ megabytes });
  undo.push(made.remove);
  return made;
}

async function cutOf(from: Disk): Promise<Disk> {
  const made = await from.cut();
  undo.push(made.remove);
  return made;
}

async function postgresOn(place: Disk, settings: Record<string, string> = {}) {
  const server = await startPostgres({ folder: place.folder, settings });
  undo.push(() => server.kill9().catch(() => {}));
  // initdb ran without; from here on the server itself cares.
  await run(["sync", "-f", place.folder]);
  return server;
}

/** Numbers that a writer was told are stored, until `cut` froze what writes; then the disk as it is. */
async function ackedUntil(
  place: string,
  manner: "careless" | "careful",
  freeze: (pid: number) => void,
): Promise<number[]> {
  const child = Bun.spawn([process.execPath, "run", program, place, manner], {
    stdout: "pipe",
    stderr: "inherit",
  });
  undo.push(() => child.kill("SIGKILL"));
  let said = "";
  const reading = (async () => {
    const decoder = new TextDecoder();
    for await (const bytes of child.stdout) said += decoder.decode(bytes, { stream: true });
  })();
  const count = () => said.split("\n").length;
  // The more was written, the surer is it that some of it is on its way to the disk.
  await until(() => count() > 2_000, { about: "2,000 acknowledged numbers", deadlineMs: 60_000, everyMs: 5 });
  freeze(child.pid);
  // What was acknowledged before is still in the pipe.
  let seen = -1;
  await until(
    () => {
      const still = count() === seen;
      seen = count();
      return still;
    },
    { about: "the last acknowledgement", everyMs: 100 },
  );
  const acked = said
    .split("\n")
    .slice(0, -1)
    .filter((line) => line !== "ready")
    .map(Number);
  child.kill("SIGKILL");
  await reading.catch(() => {});
  return acked;
}

async function lostIn(store: Store, acked: readonly number[]): Promise<number[]> {
  const rows = await store.all<{ n: number }>(sql`SELECT n FROM numbers`).catch(() => []);
  const kept = new Set(rows.map((row) => row.n));
  return acked.filter((n) => !kept.has(n));
}

const openOn = (databaseUrl: string | undefined, file: string) =>
  openStore({ clock, log: silentLog, databaseUrl, file, poolSize: 2 });

async function lossOf(engine: (typeof engines)[number], manner: "careless" | "careful"): Promise<number> {
  const before = await disk();
  let acked: number[];
  let after: Disk;
  let store: Store;
  if (engine === "libsql") {
    acked = await ackedUntil(join(before.folder, "svc.db"), manner, (pid) => process.kill(pid, "SIGSTOP"));
    after = await cutOf(before);
    store = await openOn(undefined, join(after.folder, "svc.db"));
  } else {
    const settings = { synchronous_commit: manner === "careless" ? "off" : "on" };
    const postgres = await postgresOn(before, settings);
    acked = await ackedUntil(postgres.url, manner, () => postgres.freeze());
    after = await cutOf(before);
    await postgres.kill9();
    store = await openOn((await postgresOn(after)).url, "");
  }
  try {
    return (await lostIn(store, acked)).length;
  } finally {
    await store.close();
  }
}

describe.skipIf(!mayMount).each(engines)("a power cut on %s", (engine) => {
  test("loses nothing that was acknowledged", async () => {
    expect(await lossOf(engine, "careful")).toBe(0);
  }, 150_000);

  test("is seen to lose something where commits are not awaited: the cut is one", async () => {
    expect(await lossOf(engine, "careless")).toBeGreaterThan(0);
  }, 150_000);

  test("leaves a server every event and run that it has acked", async () => {
    const before = await disk();
    const postgres = engine === "postgres" ? await postgresOn(before) : undefined;
    const home = await makeHomeAt(await postgres?.createDatabase(), before.folder);
    const server = await spawnServer({ engine, home });
    undo.push(server.stop, home.remove);
    const tenant = { environmentId: "env_default", key: server.adminKey };
    await server.rpc("SvcService", "RegisterFunction", { id: "f", triggers: [{ event: "cut.me" }] });
    const acked: AckedEmit[] = [];
    let frozen = false;
    const load = concurrently(100_000, 8, async (number) => {
      if (frozen) return;
      acked.push(
        await emitUntilAcked(
          { event: "cut.me", data: { number } },
          { url: () => server.url, tenant, triesMax: 1 },
        ),
      );
    });
    load.catch(() => {});
    await until(() => acked.length > 1_500, { about: "1,500 acked emits", deadlineMs: 60_000, everyMs: 5 });
    if (postgres) postgres.freeze();
    else process.kill(server.pid(), "SIGSTOP");
    await Bun.sleep(200);
    frozen = true;
    const told = acked.slice();
    const after = await cutOf(before);
    await server.kill9();
    await postgres?.kill9();
    const revived = postgres && (await postgresOn(after));
    const databaseUrl =
      revived && Object.assign(new URL(home.place.databaseUrl!), { port: String(revived.port) }).href;
    const store = await openOn(databaseUrl, join(after.folder, "svc.db"));
    try {
      expect(await checkAll(store, { acked: told, now: clock.now() })).toEqual([]);
    } finally {
      await store.close();
    }
  }, 150_000);
});
