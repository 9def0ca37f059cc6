import { expect } from "bun:test";
import { createProjection, type SvcProjection } from "../../src/sdk/index.ts";
import { until } from "../support/until.ts";
import type { Inside } from "../support/worlds.ts";
import type { Promises } from "./worlds.ts";
import { codeOf, inOrder } from "./worlds-log.ts";

const summed = createProjection({
  name: "state-summed",
  partitionKey: "$.data.of",
  initialState: { total: 0, seen: 0 },
  recording: true,
  handlers: {
    "state.summed": (state: { total: number; seen: number }, { data }: { data: unknown }) => ({
      total: state.total + (data as { total: number }).total,
      seen: state.seen + 1,
    }),
  },
});

export const projectionsOfState = [summed] as readonly SvcProjection[];

const bucketOf = async ({ client }: Inside, name: string, options = {}) => {
  await client.kv.createBucket(name, options);
  return name;
};
const patience = { timeoutMs: 20_000 };

const rowsOf = async ({ client }: Inside, query: string) => (await client.sql(query)).rows;

export const promisesOfState: Promises = {
  async "a key is put under conditions, and keeps its past"(inside) {
    const { kv } = inside.client;
    const bucket = await bucketOf(inside, "state-past", { history: 3 });
    const first = await kv.put(bucket, "a/İ", { n: 1 }, { ifAbsent: true });
    expect(await codeOf(kv.put(bucket, "a/İ", { n: 2 }, { ifAbsent: true }))).toBe("precondition_failed");
    await kv.put(bucket, "a/İ", new Uint8Array([0, 255, 92, 39]), { ifRevision: first });
    expect([...(await kv.get(bucket, "a/İ"))!.value]).toEqual([0, 255, 92, 39]);
    expect((await kv.get(bucket, "a/İ", { revision: first }))!.json<object>()).toEqual({ n: 1 });
    await kv.delete(bucket, "a/İ");
    expect(await kv.get(bucket, "a/İ")).toBeUndefined();
  },
  async "a key is gone when its time is over, and not before"(inside) {
    const { kv } = inside.client;
    const bucket = await bucketOf(inside, "state-ttl");
    await kv.put(bucket, "short", "x", { ttlSeconds: 1 });
    await kv.put(bucket, "long", "y", { ttlSeconds: 3_600 });
    const { expiresAt } = (await kv.get(bucket, "long"))!;
    expect(Math.abs(Date.parse(expiresAt!) - Date.now() - 3_600_000)).toBeLessThan(60_000);
    await until(async () => (await kv.get(bucket, "short")) === undefined, { about: "the end of a key" });
    expect((await kv.get(bucket, "long"))!.text()).toBe("y");
  },
  async "keys are listed in the order of their bytes, by pages and prefixes"(inside) {
    const bucket = await bucketOf(inside, "state-order");
    for (const key of inOrder.toReversed()) await inside.client.kv.put(bucket, `o.${key}`, 1);
    const listed = await Array.fromAsync(inside.client.kv.keys(bucket));
    expect(listed).toEqual(inOrder.map((key) => `o.${key}`));
    const page = (cursor: string) =>
      inside.api(
        `/api/v1/kv/buckets/${bucket}/keys?limit=4${cursor && `&cursor=${encodeURIComponent(cursor)}`}`,
      );
    const paged: string[] = [];
    for (let cursor: string | undefined = ""; cursor !== undefined; ) {
      const { status, body } = await page(cursor);
      expect(status).toBe(200);
      paged.push(...body.keys);
      cursor = body.next_cursor || undefined;
    }
    expect(paged).toEqual(listed);
    expect(await Array.fromAsync(inside.client.kv.keys(bucket, { prefix: "o.i" }))).toEqual(["o.i"]);
  },
  async "keys that differ in the case of one letter are two, whatever its language"(inside) {
    const { kv } = inside.client;
    const bucket = await bucketOf(inside, "state-case");
    for (const key of ["ä", "Ä"]) await kv.put(bucket, key, key);
    const read = async () => Promise.all(["ä", "Ä"].map(async (key) => (await kv.get(bucket, key))?.text()));
    expect(await read()).toEqual(["ä", "Ä"]);
  },
  async "a watch shows what is there, and then each change"(inside) {
    const { kv } = inside.client;
    const bucket = await bucketOf(inside, "state-watched", { history: 8 });
    await kv.put(bucket, "a", "1");
    const over = new AbortController();
    const seen: string[] = [];
    const watching = (async () => {
      for await (const { key, operation, text } of kv.watch(bucket, { signal: over.signal }))
        seen.push(`${operation} ${key} ${text()}`.trim());
    })().catch(() => {});
    await until(() => seen.length === 1, { about: "the present value" });
    await kv.put(bucket, "b", "2");
    await kv.delete(bucket, "a");
    await until(() => seen.length === 3, { about: "two changes" });
    over.abort();
    await watching;
    expect(seen).toEqual(["put a 1", "put b 2", "delete a"]);
  },
  async "a document is set, merged, and brought back as it was"({ client: { config } }) {
    const first = await config.put("state.app", { theme: "dark", city: "İzmir" });
    await config.patch("state.app", { theme: "light" });
    expect((await config.get("state.app"))!.data).toEqual({ theme: "light", city: "İzmir" });
    expect(await config.history("state.app")).toHaveLength(2);
    await config.rollback("state.app", first);
    expect((await config.get("state.app"))!.data).toEqual({ theme: "dark", city: "İzmir" });
  },
  async "a watch of a document shows its changes"({ client: { config } }) {
    await config.put("state.watched", { n: 1 });
    const over = new AbortController();
    const seen: unknown[] = [];
    const watching = (async () => {
      for await (const { data } of config.watch("state.watched", { signal: over.signal })) seen.push(data);
    })().catch(() => {});
    await until(() => seen.length === 1, { about: "the present document" });
    await config.put("state.watched", { n: 2 });
    await until(() => seen.length === 2, { about: "the change" });
    over.abort();
    await watching;
    expect(seen).toEqual([{ n: 1 }, { n: 2 }]);
  },
  async "a projection counts each event once, a state for each value"({ client }) {
    const emit = (of: string, total: number) => client.emit("state.summed", { of, total });
    for (const of of inOrder) await emit(of, 0.25);
    const { sequence } = await emit("I", 1.5);
    await emit("i", 0);
    await client.projections.wait("state-summed", sequence, patience);
    const { state } = await client.projections.get<{ total: number }>("state-summed", { partition: "I" });
    expect(state).toMatchObject({ total: 1.5 });
    expect(
      (await client.projections.partitions("state-summed")).filter((one) => inOrder.includes(one)),
    ).toEqual(inOrder);
  },
  async "a projection answers what it was at a time"({ client }) {
    const emit = (total: number) => client.emit("state.summed", { of: "then", total });
    const first = await emit(1);
    await client.projections.wait("state-summed", first.sequence, patience);
    const at = (await client.events.get(first.eventId)).timestamp;
    await until(() => Date.now() > Date.parse(at) + 20, { about: "time to pass" });
    const { sequence } = await emit(2);
    await client.projections.wait("state-summed", sequence, patience);
    const of = async (asOf?: string) =>
      (await client.projections.get("state-summed", { partition: "then", ...(asOf && { asOf }) })).state;
    expect([await of(at), await of()]).toEqual([
      { total: 1, seen: 1 },
      { total: 3, seen: 2 },
    ]);
  },
  async "a read that is told so shows what was written just before"({ client }) {
    await client.emit("state.summed", { of: "mine", total: 7 });
    const { state } = await client.consistent().projections.get("state-summed", { partition: "mine" });
    expect(state).toEqual({ total: 7, seen: 1 });
  },
  async "a projection in SQL has rows with their numbers, texts and times"(inside) {
    const { client, rpc } = inside;
    const made = await rpc("ProjectionService", "CreateSQLProjection", {
      name: "state-rows",
      tableSql:
        "CREATE TABLE proj_state_rows (id text PRIMARY KEY, total numeric NOT NULL DEFAULT 0, at timestamptz)",
      events: ["state.row"],
      eventHandlers: {
        "state.row": `INSERT INTO proj_state_rows (id, total, at) VALUES (:data.id, :data.total, :timestamp)
          ON CONFLICT (id) DO UPDATE SET total = proj_state_rows.total + excluded.total`,
      },
    });
    expect([made.status, made.body]).toEqual([200, expect.anything()]);
    for (const id of inOrder.toReversed()) await client.emit("state.row", { id, total: 0.5 });
    const { sequence, eventId } = await client.emit("state.row", { id: "last", total: 1e15 });
    await client.projections.wait("state-rows", sequence, patience);
    const { rows } = await client.projections.query<{ id: string; total: unknown; at: string }>(
      "state-rows",
      {
        orderBy: "id",
      },
    );
    const bytes = (id: string) => Buffer.from(id);
    const ids = [...inOrder, "last"].toSorted((a, b) => Buffer.compare(bytes(a), bytes(b)));
    expect(rows.map(({ id }) => id)).toEqual(ids);
    const last = rows.find(({ id }) => id === "last")!;
    expect(Number(last.total)).toBe(1e15);
    const at = Date.parse((await client.events.get(eventId)).timestamp);
    expect(Math.abs(Date.parse(last.at) - at)).toBeLessThan(2);
    const later = await client.projections.query("state-rows", { where: "id > 'Z'", orderBy: "id" });
    expect(later.rows.map((row) => (row as { id: string }).id)).toEqual(
      ids.filter((id) => bytes(id).compare(bytes("Z")) > 0),
    );
  },
  async "SQL answers times of events as instants"(inside) {
    const { eventId } = await inside.client.emit("state.sql.timed", {});
    const at = Date.parse((await inside.client.events.get(eventId)).timestamp);
    const [row] = await rowsOf(inside, `SELECT timestamp AS at FROM events WHERE id = '${eventId}'`);
    expect(Date.parse(row!.at!)).toBe(at);
    const [between] = await rowsOf(
      inside,
      `SELECT count(*) AS n FROM events WHERE id = '${eventId}' AND timestamp >= '${new Date(at - 1_000).toISOString()}'
        AND timestamp < '${new Date(at + 1_000).toISOString()}'`,
    );
    expect(between!.n).toBe("1");
  },
  async "SQL sorts and compares texts by their bytes, columns and values of data alike"(inside) {
    for (const word of inOrder.toReversed())
      await inside.client.emit(`state.sql.${/^[\w-]+$/.test(word) ? word : "other"}`, { word });
    const words = async (order: string) =>
      (
        await rowsOf(
          inside,
          `SELECT data->>'word' AS word FROM events WHERE name LIKE 'state.sql.%' AND data->>'word' IS NOT NULL ORDER BY ${order}`,
        )
      ).map(({ word }) => word);
    expect(await words("data->>'word'")).toEqual(inOrder);
    expect(await words("1")).toEqual(inOrder);
    const names = await rowsOf(
      inside,
      "SELECT DISTINCT name FROM events WHERE name LIKE 'state.sql.%' AND name <> 'state.sql.timed' ORDER BY name",
    );
    const wanted = names.map(({ name }) => name!);
    expect(wanted).toEqual(wanted.toSorted());
    const [greatest] = await rowsOf(
      inside,
      "SELECT max(data->>'word') AS most, min(data->>'word') AS least FROM events WHERE name LIKE 'state.sql.%'",
    );
    expect(greatest).toEqual({ most: inOrder.at(-1)!, least: inOrder[0]! });
    const above = await rowsOf(
      inside,
      "SELECT data->>'word' AS word FROM events WHERE name LIKE 'state.sql.%' AND data->>'word' > 'Z'",
    );
    expect(above.map(({ word }) => word!).toSorted()).toEqual(
      inOrder.filter((word) => Buffer.compare(Buffer.from(word), Buffer.from("Z")) > 0).toSorted(),
    );
  },
  async "SQL folds the letters of English as everywhere"(inside) {
    await inside.client.emit("state.fold", { word: "TITLE" });
    const [row] = await rowsOf(
      inside,
      "SELECT lower(data->>'word') AS low, upper('title') AS up, lower(name) AS name FROM events WHERE name = 'state.fold'",
    );
    expect(row).toEqual({ low: "title", up: "TITLE", name: "state.fold" });
  },
};
