import { afterAll, beforeAll, expect, test } from "bun:test";
import { readFile } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";
import { combineLaneOf } from "../../src/kit/flush-queue.ts";
import { sql } from "../../src/kit/sql.ts";
import type { Store } from "../../src/store/store.ts";
import { type AckedEmit, checkAll } from "../support/checkers.ts";
import { type LivedTime, livedTime } from "../support/lived.ts";
import { isNight } from "../support/night.ts";
import { type PostgresServer, startPostgres } from "../support/postgres.ts";
import { type Home, makeHome, type SpawnedServer, spawnServer } from "../support/server.ts";
import { clock, concurrently, emitUntilAcked, holdIn, storeOf, type Tenant, tenantsIn } from "./load.ts";

const program = resolve(import.meta.dir, "head-holder-program.ts");
const callers = 64;
const mainEmits = isNight ? 10_000 : 4_000;
const sideEmits = mainEmits / 4;

let postgres: PostgresServer;
let home: Home;
let nodes: SpawnedServer[] = [];
let tenants: Tenant[];
let store: Store;
let time: LivedTime;

beforeAll(async () => {
  // A server of its own, so that its log is about this test only.
  postgres = await startPostgres();
  const base = await makeHome("libsql");
  home = { ...base, place: { ...base.place, databaseUrl: await postgres.createDatabase() } };
  tenants = await tenantsIn(home, 36);
  nodes = await Promise.all([1, 2].map(() => spawnServer({ engine: "postgres", home })));
  store = await storeOf(home);
  time = await livedTime(home.place.databaseUrl);
}, 90_000);
afterAll(async () => {
  await time?.stop();
  await store?.close();
  await Promise.all(nodes.map((node) => node.stop()));
  await home?.remove();
  await postgres?.stop();
}, 120_000);

const logOf = ({ dataDir }: PostgresServer) => readFile(join(dirname(dataDir), "output.log"), "utf8");
const deadlocks = async () => (await logOf(postgres)).split("\n").filter((line) => line.includes("deadlock"));

/** Reads each log as a subscriber would: what is behind its cursor, again and again. */
function tail(environmentIds: readonly string[]) {
  const cursors = new Map(environmentIds.map((id) => [id, { position: 0, at: 0, ids: new Set<string>() }]));
  const breaches: string[] = [];
  let rounds = 0;
  let over = false;
  const readOnce = async (environmentId: string) => {
    const cursor = cursors.get(environmentId)!;
    const rows = await store.all<{ position: number; at: number; id: string }>(
      sql`SELECT position, at, id FROM events WHERE environment_id = ${environmentId} AND position > ${cursor.position}
        ORDER BY position LIMIT 2000`,
    );
    for (const { position, at, id } of rows) {
      if (position !== cursor.position + 1)
        breaches.push(`${environmentId}: ${position} was seen right after ${cursor.position}`);
      if (at < cursor.at) breaches.push(`${environmentId}: ${position} is older than the one before`);
      Object.assign(cursor, { position, at });
      cursor.ids.add(id);
    }
  };
  const reading = (async () => {
    while (!over) {
      await Promise.all(environmentIds.map(readOnce));
      rounds++;
    }
    await Promise.all(environmentIds.map(readOnce));
  })();
  return {
    breaches,
    rounds: () => rounds,
    seen: () => [...cursors.values()].flatMap(({ ids }) => [...ids]),
    position: (environmentId: string) => cursors.get(environmentId)!.position,
    async stop() {
      over = true;
      await reading;
    },
  };
}

/** A process that freezes while it holds the head; answers when it was seen to. */
async function freezeOnHead(environmentId: string) {
  const child = Bun.spawn([process.execPath, "run", program, home.place.databaseUrl!, environmentId], {
    stdout: "pipe",
    stderr: "inherit",
  });
  const { value } = await child.stdout.getReader().read();
  child.kill("SIGSTOP");
  // Should nobody end its transaction, its end comes late enough to be noticed and soon enough for this test to end.
  const giveUp = setTimeout(() => child.kill("SIGKILL"), 20_000);
  expect(new TextDecoder().decode(value)).toBe("held\n");
  const heldAt = time.now();
  return {
    heldAt,
    async end() {
      clearTimeout(giveUp);
      child.kill("SIGKILL");
      await child.exited;
    },
  };
}

test("64 callers over two nodes write logs without a gap, past a frozen holder of the head", async () => {
  // A row of no concern to anyone, in a transaction older than all others.
  const release = await holdIn(store, sql`UPDATE orgs SET name = name WHERE id = 'org_default'`);
  const [main, ...others] = tenants.slice(0, 21) as [Tenant, ...Tenant[]];
  const reader = tail([main, ...others].map(({ environmentId }) => environmentId));
  const acked: AckedEmit[] = [];
  const ackedAt: number[] = [];
  const refusals: string[] = [];
  let freezing: ReturnType<typeof freezeOnHead> | undefined;

  await concurrently(mainEmits + sideEmits, callers, async (number) => {
    // Four in a row go to the same environment over both nodes, so that flushes meet at more than one head.
    const side = number % 5 === 4;
    const tenant = side ? others[Math.floor(number / 20) % others.length]! : main;
    const emit = (node: SpawnedServer) =>
      emitUntilAcked(
        { event: "counted", data: { number }, idempotencyKey: `n-${number}` },
        {
          url: () => node.url,
          tenant,
          onRefusal: ({ status, text }) => refusals.push(`${status} ${text}`),
        },
      );
    const [node, other] = number % 2 === 0 ? nodes : nodes.toReversed();
    // A caller that lost its patience asks the other node at the same time: still one event, and no hole in the log.
    const [ack, same] = await Promise.all([emit(node!), number % 16 === 0 ? emit(other!) : undefined]);
    if (same) expect(same).toEqual(ack);
    acked.push(ack);
    if (tenant === main) ackedAt.push(time.now());
    if (acked.length > 0.3 * mainEmits) freezing ??= freezeOnHead(main.environmentId);
    // However slow that process begins, enough is left to come past it.
    if (acked.length > 0.6 * mainEmits) await freezing;
  });
  await reader.stop();
  await release();
  const frozen = await freezing!;
  await frozen.end();

  // The holder is ended once its transaction idled for a second.
  const resumedAfterMs = ackedAt.find((at) => at > frozen.heldAt + 500)! - frozen.heldAt;
  expect(resumedAfterMs).toBeLessThan(2_000);
  expect(refusals).toEqual([]);

  expect(reader.breaches.slice(0, 10)).toEqual([]);
  expect(reader.rounds()).toBeGreaterThan(20);
  expect(reader.position(main.environmentId)).toBe(mainEmits);
  const sides = others.map(({ environmentId }) => reader.position(environmentId));
  expect(Math.min(...sides)).toBeGreaterThan(0);
  expect(sides.reduce((sum, position) => sum + position)).toBe(sideEmits);
  expect(reader.seen().sort()).toEqual(acked.map(({ eventId }) => eventId).sort());

  expect(await checkAll(store, { acked, now: clock.now() })).toEqual([]);
  expect(await logOf(postgres)).toContain("idle-in-transaction timeout");
  expect(await deadlocks()).toEqual([]);
}, 150_000);

test("flushes of two nodes over the same heads never wait for each other in a circle", async () => {
  // Which lane an environment has is chance: the fullest has a quarter of them at least.
  const lanes = Map.groupBy(tenants, ({ environmentId }) => combineLaneOf(environmentId));
  const [mates] = [...lanes.values()].sort((one, other) => other.length - one.length) as [Tenant[]];
  expect(mates.length).toBeGreaterThan(2);
  const acked: AckedEmit[] = [];
  await concurrently(3_000, callers, async (number) => {
    // Each node gets them in another order.
    const [node, place] =
      number % 2 === 0 ? [nodes[0]!, number / 2] : [nodes[1]!, mates.length * 3_000 - number];
    acked.push(
      await emitUntilAcked({ event: "met" }, { url: () => node.url, tenant: mates[place % mates.length]! }),
    );
  });
  expect(await deadlocks()).toEqual([]);
  expect(await checkAll(store, { acked, now: clock.now() })).toEqual([]);
}, 90_000);
