import { afterAll, beforeAll, expect, test } from "bun:test";
import { type AckedEmit, checkAll } from "../support/checkers.ts";
import { type NatsServer, startNats } from "../support/nats.ts";
import { type PostgresServer, startPostgres } from "../support/postgres.ts";
import { openProxy, type TcpProxy } from "../support/proxy.ts";
import { type Home, makeHomeAt, type SpawnedServer, spawnServer } from "../support/server.ts";
import { until } from "../support/until.ts";
import { clock, concurrently, emitUntilAcked, storeOf } from "./load.ts";

// One node names both hosts, the other one a single host that leads to whatever `moving` says, as a name or a proxy does.

const emits = 900;

let primary: PostgresServer;
let standby: PostgresServer;
let nats: NatsServer;
let moving: TcpProxy;
let movingTo: number;
let home: Home;
const nodes: SpawnedServer[] = [];
let urlOfAll: string;

const admin = async (server: PostgresServer, statement: string) => {
  const sql = new Bun.SQL(server.url, { max: 1 });
  try {
    await sql.unsafe(statement);
  } finally {
    await sql.close();
  }
};
const spawn = (databaseUrl: string, nodeId: string) =>
  spawnServer({
    ...{ engine: "postgres", nats: nats.url, settings: { nodeId, poolSize: 8 } },
    home: { ...home, place: { ...home.place, databaseUrl } },
  });
const readyOf = async (node: SpawnedServer) => {
  const { status, body } = await node.api("/ready", { key: null });
  return status === 200 ? "ready" : (body.issues as string[]).join(", ");
};
const untilReady = (node: SpawnedServer, state: string | RegExp) =>
  until(async () => (await readyOf(node)).match(state) !== null, {
    about: `/ready to say ${state}`,
    everyMs: 50,
  });

beforeAll(async () => {
  [primary, nats] = await Promise.all([startPostgres(), startNats()]);
  const made = new URL(await primary.createDatabase());
  standby = await startPostgres({ standbyOf: primary });
  // An acknowledged event is on both disks. The standby was copied before, so that it waits for no other itself.
  await admin(primary, "ALTER SYSTEM SET synchronous_standby_names = '*'");
  await admin(primary, "SELECT pg_reload_conf()");
  const hosts = `127.0.0.1:${primary.port},127.0.0.1:${standby.port}`;
  urlOfAll = `postgres://postgres@${hosts}${made.pathname}?target_session_attrs=read-write`;
  movingTo = primary.port;
  moving = await openProxy(() => movingTo);
  home = await makeHomeAt(made.href);
  nodes.push(await spawn(urlOfAll, "both"));
  nodes.push(await spawn(`postgres://postgres@127.0.0.1:${moving.port}${made.pathname}`, "moving"));
}, 120_000);
afterAll(async () => {
  await Promise.all(nodes.map((node) => node.stop()));
  await moving?.stop();
  await Promise.all([primary?.stop(), standby?.stop(), nats?.stop(), home?.remove()]);
}, 120_000);

test("nodes follow a promotion by themselves, refuse the old primary, and lose and double nothing", async () => {
  const [both, single] = nodes as [SpawnedServer, SpawnedServer];
  const tenant = { environmentId: "env_default", key: both.adminKey };
  const acked: AckedEmit[] = [];
  let failingOver: Promise<void> | undefined;
  const failOver = async () => {
    await primary.kill9();
    await Promise.all(nodes.map((node) => untilReady(node, "the database")));
    await standby.promote();
    movingTo = standby.port;
    await Promise.all(nodes.map((node) => untilReady(node, /^ready$/)));
  };
  await concurrently(emits, 8, async (number) => {
    const node = nodes[number % 2]!;
    acked.push(
      await emitUntilAcked(
        { event: "failed.over", data: { number }, idempotencyKey: `k-${number}` },
        { url: () => node.url, tenant, triesMax: 20_000 },
      ),
    );
    if (acked.length >= emits / 3) failingOver ??= failOver();
  });
  await failingOver;
  expect(failingOver).toBeDefined();

  // The old primary comes back, writable and as dangerous as it can be: it waits for no standby.
  await primary.restart();
  await admin(primary, "ALTER SYSTEM RESET synchronous_standby_names");
  await admin(primary, "SELECT pg_reload_conf()");
  movingTo = primary.port;
  moving.cut();
  await untilReady(single, "the database is an old primary");
  expect((await single.rpc("SvcService", "Emit", { event: "lost.one", data: {} })).status).toBe(503);
  expect(await readyOf(both)).toBe("ready");
  // One that starts there has seen nothing itself: the others tell it.
  await expect(spawn(home.place.databaseUrl!, "stray")).rejects.toThrow("old primary");
  movingTo = standby.port;
  await untilReady(single, /^ready$/);

  const store = await storeOf({ ...home, place: { ...home.place, databaseUrl: urlOfAll } });
  try {
    expect(await checkAll(store, { acked, now: clock.now() })).toEqual([]);
  } finally {
    await store.close();
  }
  expect(acked).toHaveLength(emits);
  expect(new Set(acked.map(({ eventId }) => eventId)).size).toBe(emits);
}, 150_000);
