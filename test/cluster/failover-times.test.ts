import { afterAll, beforeAll, expect, test } from "bun:test";
import { type NatsServer, startNats } from "../support/nats.ts";
import { type PostgresServer, startPostgres } from "../support/postgres.ts";
import { type Home, makeHomeAt, type SpawnedServer, spawnServer } from "../support/server.ts";
import { holdsWithin } from "../support/within.ts";

// What is promised in seconds, of two nodes: the lane `timing` runs it alone.

let primary: PostgresServer;
let standby: PostgresServer;
let nats: NatsServer;
let home: Home;
let nodes: SpawnedServer[] = [];

const admin = async (postgres: PostgresServer, ...statements: string[]) => {
  const sql = new Bun.SQL(postgres.url, { max: 1 });
  try {
    for (const statement of statements) await sql.unsafe(statement);
  } finally {
    await sql.close();
  }
};
const isTrueOfAll = async (one: (node: SpawnedServer) => Promise<boolean>) =>
  (await Promise.all(nodes.map(one))).every(Boolean);
const says = (status: number, reason: string) => () =>
  isTrueOfAll(async (node) => {
    const [ready, health] = await Promise.all([
      node.api("/ready", { key: null }),
      node.api("/health", { key: null }),
    ]);
    const told = [...(ready.body.issues ?? []), ...(health.body.warnings ?? [])];
    return ready.status === status && health.status === status && told.every((one) => one === reason);
  });
const emits = async (node: SpawnedServer) =>
  (await node.rpc("SvcService", "Emit", { event: "a.b", data: {} })).status === 200;
/** Callers of one node that try again at once; answers how often they were refused. */
const storm = async (node: SpawnedServer, stop: AbortSignal) => {
  let refused = 0;
  const call = async () => {
    while (!stop.aborted) if (!(await emits(node).catch(() => false))) refused++;
  };
  await Promise.all(Array.from({ length: 8 }, call));
  return refused;
};

beforeAll(async () => {
  [primary, nats] = await Promise.all([startPostgres(), startNats()]);
  const made = new URL(await primary.createDatabase());
  standby = await startPostgres({ standbyOf: primary });
  await admin(primary, "ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()");
  home = await makeHomeAt(
    `postgres://postgres@127.0.0.1:${primary.port},127.0.0.1:${standby.port}${made.pathname}`,
  );
  const spawn = (nodeId: string) =>
    spawnServer({ engine: "postgres", nats: nats.url, home, settings: { nodeId, poolSize: 8 } });
  // The first alone: it lands the migrations and writes the key file.
  const first = await spawn("first");
  nodes = [first, await spawn("second")];
}, 120_000);
afterAll(async () => {
  await Promise.all(nodes.map((node) => node.stop()));
  await Promise.all([primary?.stop(), standby?.stop(), nats?.stop(), home?.remove()]);
}, 120_000);

test("within two seconds nodes say that commits hang, and within one that they do not any more", async () => {
  await holdsWithin(1_000, says(200, ""), "a database in order");
  await standby.shutDown();
  await holdsWithin(2_000, says(503, "the database does not finish commits"), "a hung commit to be noticed");
  await standby.restart();
  await holdsWithin(1_000, says(200, ""), "commits to be noticed");
}, 120_000);

test("an outage is few connections and fewer lines, and two seconds after the promotion it is over", async () => {
  const [asked] = nodes as [SpawnedServer];
  const linesBefore = (await asked.output()).split("\n").length;
  const stop = new AbortController();
  await primary.kill9();
  const storming = storm(asked, stop.signal);
  await holdsWithin(2_000, says(503, "the database only reads: it is a standby"), "the outage to be noticed");
  await Bun.sleep(3_000);
  await standby.promote();
  await holdsWithin(2_000, () => isTrueOfAll(emits), "emits to go on at both nodes");
  await holdsWithin(1_000, says(200, ""), "the new primary to be noticed");
  stop.abort();
  expect(await storming).toBeGreaterThan(100);
  const written = async () => (await asked.output()).split("\n").slice(linesBefore - 1);
  const over = async () => (await written()).find((line) => line.includes('"store.trouble_over"'));
  await holdsWithin(5_000, async () => (await over()) !== undefined, "its last line");
  expect((await written()).length).toBeLessThan(20);
  const { attempts, ms } = JSON.parse((await over())!) as { attempts: number; ms: number };
  // Two hosts, an attempt about three times a second, and those under way when it began.
  expect(attempts).toBeLessThan(40 + (ms / 1_000) * 16);
}, 120_000);
