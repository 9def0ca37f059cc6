import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { sql } from "../../src/kit/sql.ts";
import { createClient } from "../../src/sdk/index.ts";
import { engines, type Home, makeHome, startTestServer, type TestServer } from "../support/server.ts";

describe.each(engines)("delayed events on %s", (engine) => {
  let home: Home;
  /** Both nodes have one database; libSQL has one node. */
  let nodes: TestServer[] = [];
  const first = () => nodes[0]!;
  const rpc = (method: string, body: unknown) => first().rpc("SvcService", method, body);
  const waiting = async () =>
    (await first().api("/api/v1/delayed-events")).body.events as {
      id: string;
      name: string;
      due_at: string;
    }[];
  const eventsNamed = async (name: string) =>
    (await first().api(`/api/v1/events?name=${name}`)).body.events as { data: unknown }[];
  /** As if their time had come. */
  const ripen = (name: string) =>
    first().running.domain.store.write((session) =>
      session.run(sql`UPDATE delayed_events SET due_at = 1, wake_at = 1 WHERE name = ${name}`),
    );
  const tickAll = () => Promise.all([...nodes, ...nodes].map((node) => node.running.tick("events.delayed")));

  beforeAll(async () => {
    home = await makeHome(engine);
    for (const _ of engine === "postgres" ? [1, 2] : [1]) nodes.push(await startTestServer({ engine, home }));
  });
  afterAll(async () => {
    await Promise.all(nodes.map((node) => node.stop()));
    nodes = [];
    await home.remove();
  });

  test("nobody sees it before its time; then it is emitted once, whoever looks, and starts its run", async () => {
    await rpc("RegisterFunction", { id: "later", triggers: [{ event: "later.asked" }] });
    const client = createClient({ url: first().url, apiKey: first().adminKey });
    const { delayed, runIds } = await client.emit("later.asked", { n: 1 }, { delay: "1h" });
    expect(runIds).toEqual([]);
    expect(Math.abs(Date.parse(delayed!.dueAt) - Date.now() - 3_600_000)).toBeLessThan(60_000);
    await tickAll();
    expect(await eventsNamed("later.asked")).toEqual([]);
    expect((await client.events.delayed()).events).toMatchObject([{ id: delayed!.id, name: "later.asked" }]);
    await ripen("later.asked");
    await tickAll();
    expect(await eventsNamed("later.asked")).toMatchObject([{ data: { n: 1 } }]);
    expect((await rpc("ListRuns", { functionId: "later" })).body.totalCount).toBe(1);
    expect(await waiting()).toEqual([]);
  });

  test("a node that dies behind the emit repeats nothing", async () => {
    await rpc("Emit", { event: "twice.asked", delayMs: 60_000 });
    await ripen("twice.asked");
    const { store } = first().running.domain;
    const [row] = await store.all<{ id: string }>(sql`SELECT * FROM delayed_events`);
    await tickAll();
    const names = Object.keys(row!);
    await store.write((session) =>
      session.run(sql`INSERT INTO delayed_events (${sql.raw(names.join(", "))})
        VALUES ${sql.list(names.map((name) => (row as unknown as Record<string, string>)[name]!))}`),
    );
    await tickAll();
    expect(await eventsNamed("twice.asked")).toHaveLength(1);
    expect(await waiting()).toEqual([]);
  });

  test("it is cancelled by its id; one key schedules one event", async () => {
    const emission = { event: "kept.asked", delayMs: 60_000, idempotencyKey: "same" };
    const { delayedId } = (await rpc("Emit", emission)).body;
    expect((await rpc("Emit", { ...emission, delayMs: 90_000 })).body.delayedId).toBe(delayedId);
    expect(await waiting()).toHaveLength(1);
    const cancel = () => first().api(`/api/v1/delayed-events/${delayedId}`, { method: "DELETE" });
    expect((await cancel()).status).toBe(204);
    expect((await cancel()).status).toBe(404);
    await tickAll();
    expect(await eventsNamed("kept.asked")).toEqual([]);
  });

  test("a key that was used answers the first event, and nothing waits that could never come", async () => {
    await rpc("RegisterFunction", { id: "used", triggers: [{ event: "used.asked" }] });
    const later = { event: "used.asked", delayMs: 60_000, idempotencyKey: "used before" };
    const { eventId, runIds, sequence } = (await rpc("Emit", { ...later, delayMs: undefined })).body;
    expect((await rpc("Emit", later)).body).toEqual({ eventId, runIds, sequence });
    const invoked = { functionId: "used", idempotencyKey: "an invoke's" };
    expect((await rpc("InvokeFunction", invoked)).status).toBe(200);
    const refused = await rpc("Emit", { ...later, idempotencyKey: "an invoke's" });
    expect(refused.body).toMatchObject({ code: "already_exists" });
    expect((await waiting()).filter(({ name }) => name === "used.asked")).toEqual([]);
    // Asked again after its time, as a client does that heard no answer.
    const again = { event: "asked.again", delayMs: 60_000, idempotencyKey: "again" };
    expect((await rpc("Emit", again)).body).toMatchObject({ eventId: "", delayedId: expect.any(String) });
    await ripen("asked.again");
    await tickAll();
    expect((await rpc("Emit", again)).body).toMatchObject({ eventId: expect.stringMatching(/^evt_/) });
  });

  test("a time that is over emits soon, and a page ends where the next begins", async () => {
    await rpc("Emit", { event: "past.asked", at: "2020-01-01T00:00:00Z" });
    await tickAll();
    expect(await eventsNamed("past.asked")).toHaveLength(1);
    for (const n of [3, 1, 2]) await rpc("Emit", { event: `paged.n${n}`, delayMs: n * 60_000 });
    const page = (await first().api("/api/v1/delayed-events?limit=2")).body;
    const rest = (await first().api(`/api/v1/delayed-events?limit=2&cursor=${page.next_cursor}`)).body;
    const names = [...page.events, ...rest.events].map(({ name }: { name: string }) => name);
    expect(names).toEqual(["paged.n1", "paged.n2", "paged.n3"]);
    expect(rest.next_cursor).toBeUndefined();
  });

  test.each([
    ["delayMs", { delayMs: 100 * 366 * 86_400_000 }],
    ["delayMs", { delayMs: -1 }],
    ["at", { at: "2126-01-01T00:00:00Z" }],
    ["at", { at: "tomorrow" }],
    ["at", { at: "2026-01-01T00:00:00Z", delayMs: 5 }],
  ])("a wrong %s is refused by its name", async (field, when) => {
    const { status, body } = await rpc("Emit", { event: "wrong.asked", ...when });
    expect({ status, message: body.message }).toMatchObject({ status: 400 });
    expect(body.message).toStartWith(`${field}:`);
  });

  test("an event that breaks its schema, and one of a batch, are refused at once", async () => {
    await first().rpc("EventSchemaService", "RegisterSchema", {
      eventName: "checked.asked",
      schemaJson: JSON.stringify({ type: "object", required: ["a"] }),
    });
    expect((await rpc("Emit", { event: "checked.asked", data: {}, delayMs: 60_000 })).status).toBe(400);
    const batch = await rpc("TriggerBatch", { events: [{ event: "a.b", delayMs: 5 }] });
    expect({ status: batch.status, message: batch.body.message }).toEqual({
      status: 400,
      message: "events[0].delayMs: is for single events",
    });
  });

  const letters = async () =>
    // biome-ignore lint/suspicious/noExplicitAny: tests state the shape they expect
    (await first().api("/api/v1/outbox/dead-letter?env=env_default")).body.items as any[];
  const requeue = (id: string, key = first().adminKey) =>
    first().api(`/api/v1/outbox/dead-letter/${id}/requeue`, { method: "POST", key });

  test("a schema that came after it was accepted marks it, and refuses nothing", async () => {
    await rpc("Emit", { event: "late.ev", data: { a: 1 }, delayMs: 60_000 });
    await first().rpc("EventSchemaService", "RegisterSchema", {
      eventName: "late.ev",
      schemaJson: JSON.stringify({ type: "object", required: ["b"] }),
    });
    expect((await rpc("Emit", { event: "late.ev", data: { a: 1 } })).status).toBe(400);
    await ripen("late.ev");
    await tickAll();
    expect(await eventsNamed("late.ev")).toMatchObject([
      { data: { a: 1 }, schema_breach: expect.any(String) },
    ]);
    expect(await letters()).toEqual([]);
  });

  test("what is refused at its time is a dead letter, which a requeue emits as of today, or says why not", async () => {
    const made = await first().api("/api/v1/apikeys", {
      body: { name: "gone", role_ids: ["role_developer"] },
    });
    const asGone = { key: made.body.key as string };
    const sent = await first().rpc(
      "SvcService",
      "Emit",
      { event: "left.ev", data: { a: 1 }, delayMs: 60_000 },
      asGone,
    );
    expect(sent.status).toBe(200);
    const shown = (await waiting()).find(({ name }) => name === "left.ev");
    expect(shown).toMatchObject({ id: sent.body.delayedId, sent_by: made.body.id });
    expect((await first().api(`/api/v1/apikeys/${made.body.id}`, { method: "DELETE" })).status).toBe(204);
    await ripen("left.ev");
    await tickAll();
    expect(await eventsNamed("left.ev")).toEqual([]);
    expect((await waiting()).map(({ name }) => name)).not.toContain("left.ev");
    const [letter] = await letters();
    expect(letter).toMatchObject({
      ...{ event_id: sent.body.delayedId, kind: "delayed", topic: "events:left.ev", attempts: 1 },
      last_error: `its sender ${made.body.id} is gone`,
    });
    expect(JSON.parse(Buffer.from(letter.payload, "base64").toString())).toEqual({ a: 1 });
    await tickAll();
    await first().running.tick("outbox.relay");
    expect(await letters()).toHaveLength(1);
    // Today's schema refuses it: it stays, and who asked is told.
    await first().rpc("EventSchemaService", "RegisterSchema", {
      eventName: "left.ev",
      schemaJson: JSON.stringify({ type: "object", required: ["b"] }),
    });
    const refused = await requeue(letter.event_id);
    expect([refused.status, refused.body.message ?? refused.body.error]).toEqual([
      400,
      expect.stringContaining("schema of left.ev"),
    ]);
    expect(await letters()).toHaveLength(1);
    const { status } = await first().rpc("EventSchemaService", "DeleteSchema", {
      eventName: "left.ev",
      version: 1,
    });
    expect(status).toBe(200);
    expect((await requeue(letter.event_id)).status).toBe(200);
    expect(await eventsNamed("left.ev")).toMatchObject([{ data: { a: 1 } }]);
    expect([await letters(), (await requeue(letter.event_id)).status]).toEqual([[], 404]);
  });
});
