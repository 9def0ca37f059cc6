import { afterAll, beforeAll, expect, test } from "bun:test";
import { sql } from "../../src/kit/sql.ts";
import { type NatsServer, startNats } from "../support/nats.ts";
import { type PostgresServer, startPostgres } from "../support/postgres.ts";
import { type Answer, type Home, makeHome, type SpawnedServer, spawnServer } from "../support/server.ts";
import { concurrently, storeOf } from "./load.ts";

const streams = 40;
const callers = 64;
const appends = 1_000;

let nats: NatsServer;
let postgres: PostgresServer;
let home: Home;
let nodes: [SpawnedServer, SpawnedServer];

beforeAll(async () => {
  [nats, postgres] = await Promise.all([startNats(), startPostgres()]);
  const base = await makeHome("libsql");
  home = { ...base, place: { ...base.place, databaseUrl: await postgres.createDatabase() } };
  const start = (nodeId: string) =>
    spawnServer({ engine: "postgres", nats: nats.url, home, settings: { nodeId } });
  nodes = [await start("a"), await start("b")];
}, 120_000);
afterAll(async () => {
  for (const node of nodes ?? []) await node.stop();
  await home?.remove();
  await postgres?.stop();
  await nats?.stop();
}, 120_000);

interface Acked {
  entityId: string;
  version: number;
  position: number;
  eventId: string;
}

/**
 * Appends with the version that was read, as long as others are faster; a lost answer is asked again with its key.
 */
async function appendAsExpected(number: number, acked: Acked[], disturbed: () => boolean): Promise<void> {
  const entityId = `s${number % streams}`;
  for (let tries = 1; tries <= 2_000; tries++) {
    const node = nodes[(number + tries) % 2]!;
    const info = await node.rpc("EntityStreamService", "GetStreamInfo", { entityId }).catch(() => undefined);
    if (!info || (info.status !== 200 && info.status !== 404)) {
      await Bun.sleep(20);
      continue;
    }
    const expectedVersion = Number(info.body.version ?? 0);
    const idempotencyKey = `a${number}-${tries}`;
    for (;;) {
      const answer: Answer | undefined = await node
        .rpc("EntityStreamService", "AppendEvent", {
          ...{ entityId, entityType: "counter", eventName: "counter.moved", idempotencyKey },
          ...{ expectedVersion, data: { number } },
        })
        .catch(() => undefined);
      if (answer?.status === 200) {
        const { entityVersion, sequence, eventId } = answer.body;
        expect(Number(entityVersion)).toBe(expectedVersion + 1);
        acked.push({ entityId, version: Number(entityVersion), position: Number(sequence), eventId });
        return;
      }
      if (answer?.status === 409) {
        expect(answer.body.message).toMatch(/^version conflict: expected \d+, got \d+$/);
        break;
      }
      if (!disturbed()) expect(answer).toMatchObject({ status: 200 });
      await Bun.sleep(20);
    }
  }
  throw new Error(`append ${number} never came through`);
}

/** Every acknowledged version stands once, and neither versions nor positions have a gap. */
async function expectWhole(acked: readonly Acked[]): Promise<void> {
  const store = await storeOf(home);
  try {
    const rows = await store.all<{ id: string; entity_id: string; entity_version: number; position: number }>(
      sql`SELECT id, entity_id, entity_version, position FROM events WHERE entity_id IS NOT NULL ORDER BY position`,
    );
    const byEvent = new Map(rows.map((row) => [row.id, row]));
    for (const { entityId, version, position, eventId } of acked)
      expect(byEvent.get(eventId)).toMatchObject({ entity_id: entityId, entity_version: version, position });
    for (const [entityId, own] of Map.groupBy(rows, (row) => row.entity_id)) {
      expect(own.map((row) => row.entity_version)).toEqual(own.map((_, at) => at + 1));
      const head = await store.one<{ version: number }>(
        sql`SELECT version FROM streams WHERE entity_id = ${entityId}`,
      );
      expect(head?.version).toBe(own.length);
    }
    const log = await store.one<{ count: number; last: number }>(
      sql`SELECT count(*) AS count, max(position) AS last FROM events`,
    );
    expect(log!.count).toBe(log!.last);
  } finally {
    await store.close();
  }
}

test("callers at two nodes who append with what they read lose or win, and leave no gap", async () => {
  const acked: Acked[] = [];
  await concurrently(appends, callers, (number) => appendAsExpected(number, acked, () => false));
  expect(acked).toHaveLength(appends);
  await expectWhole(acked);
}, 120_000);

test("the same while a node is killed and while the database restarts", async () => {
  const acked: Acked[] = [];
  let isDisturbed = false;
  let disturbing = Promise.resolve();
  const disturbances = [
    async () => {
      await nodes[1].kill9();
      await nodes[1].restart();
    },
    () => postgres.restart(),
  ];
  await concurrently(appends, callers, async (number) => {
    await appendAsExpected(appends + number, acked, () => isDisturbed);
    const next = disturbances[0];
    if (next && acked.length >= 200 * (3 - disturbances.length)) {
      disturbances.shift();
      isDisturbed = true;
      disturbing = disturbing.then(next);
    }
  });
  await disturbing;
  expect(disturbances).toEqual([]);
  await expectWhole(acked);
}, 180_000);

test("batches over the same streams, in opposite orders at two nodes, new streams among them", async () => {
  const acked: Acked[] = [];
  const each = 200;
  await concurrently(each, callers, async (number) => {
    const at = number % 2;
    const ids = [`x-${number % 10}`, `y-${Math.floor(number / 4)}`, "x-a", "x-z"];
    if (at === 1) ids.reverse();
    const streams = ids.map((entityId) => ({
      ...{ entityId, entityType: "crossed", expectedVersion: -1 },
      events: [{ eventName: "crossed.moved", data: { number } }],
    }));
    const { status, body } = await nodes[at]!.rpc("EntityStreamService", "AppendEvents", { streams });
    expect({ status, body }).toMatchObject({ status: 200 });
    for (const [place, { entityVersion, sequence, eventId }] of body.results.entries())
      acked.push({
        ...{ entityId: ids[place]!, version: Number(entityVersion), position: Number(sequence), eventId },
      });
  });
  expect(acked).toHaveLength(each * 4);
  await expectWhole(acked);
}, 120_000);

test("a stream that another node deletes takes nothing after it", async () => {
  const [a, b] = nodes;
  const call = (node: SpawnedServer, method: string, body: object) =>
    node.rpc("EntityStreamService", method, body);
  for (let round = 0; round < 20; round++) {
    const entityId = `ended-${round}`;
    const append = () =>
      call(a, "AppendEvent", {
        ...{ entityId, entityType: "ended", eventName: "ended.moved", expectedVersion: -1 },
      });
    await append();
    const [deleted, ...answers] = await Promise.all([
      call(b, "DeleteStream", { entityId }),
      ...Array.from({ length: 16 }, append),
    ]);
    const taken = answers.filter(({ status }) => status === 200);
    const refused = answers.filter(({ body }) => body.code === "failed_precondition");
    expect(taken.length + refused.length).toBe(16);
    expect(Number(deleted.body.version)).toBe(1 + taken.length);
    expect((await append()).body.code).toBe("failed_precondition");
  }
}, 120_000);
