import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { column, sql } from "../../src/kit/sql.ts";
import { type CallOptions, engines, startTestServer, type TestServer } from "../support/server.ts";

describe.each(engines)("events on %s", (engine) => {
  let server: TestServer;
  let foreign: string;
  const rpc = (method: string, body: unknown, options: CallOptions = {}) =>
    server.rpc("SvcService", method, body, options);
  const emit = async (body: object, options: CallOptions = {}) => {
    const answer = await rpc("Emit", body, options);
    expect({ status: answer.status, body: answer.body }).toMatchObject({ status: 200 });
    return answer.body as { eventId: string; runIds?: string[]; sequence: string };
  };
  const refused = async (method: string, body: unknown, options: CallOptions = {}) => {
    const { status, body: answer } = await rpc(method, body, options);
    return { status, code: answer.code, message: answer.message };
  };
  const position = async () =>
    (await server.running.domain.store.one<{ position: number }>(
      sql`SELECT position FROM heads WHERE environment_id = ${server.env}`,
    ))!.position;
  const stored = async (id: string, options: CallOptions = {}) =>
    (await server.api(`/api/v1/events/${id}`, options)).body;

  beforeAll(async () => {
    server = await startTestServer({ engine });
    const { keys, tenancy } = server.running.domain;
    const theirs = await tenancy.createEnvironment({ orgId: "org_other", name: "theirs" });
    foreign = (
      await keys.create({
        orgId: "org_other",
        environmentId: theirs.id,
        name: "test",
        roleIds: ["role_developer"],
      })
    ).key;
    await rpc("RegisterFunction", {
      id: "big-orders",
      triggers: [{ event: "order.placed", expression: "data.total > 10" }],
    });
  });
  afterAll(() => server.stop());

  test.each([
    ["a", 200],
    ["x".repeat(248), 200],
    ["ü".repeat(124), 200],
    ["bestellung.größe", 200],
    ["", 400],
    ["x".repeat(249), 400],
    ["ü".repeat(125), 400],
    ["a..b", 400],
    [".a", 400],
    ["a.", 400],
    ["a.*", 400],
    ["a.>", 400],
    ["a b", 400],
    ["a\tb", 400],
    ["a\u0000b", 400],
    ["a\u0085b", 400],
    ["a\u2003b", 400],
  ])("the name %j is answered %d", async (event, status) => {
    const before = await position();
    const answer = await rpc("Emit", { event });
    expect(answer.status).toBe(status);
    if (status === 400) {
      expect(answer.body).toMatchObject({ code: "invalid_argument" });
      expect(answer.body.message).toStartWith("event: ");
      expect(await position()).toBe(before);
    }
  });

  test.each([
    ["event", {}],
    ["event", { event: 5 }],
    ["version", { event: "a", version: -1 }],
    ["version", { event: "a", version: 1.5 }],
    ["version", { event: "a", version: "one" }],
    ["metadata", { event: "a", metadata: [1] }],
    ["idempotencyKey", { event: "a", idempotencyKey: "k".repeat(256) }],
    ["idempotencyKey", { event: "a", idempotencyKey: "a\nb" }],
  ])("bad input names %s", async (field, body) => {
    const before = await position();
    const answer = await refused("Emit", body);
    expect(answer).toMatchObject({ status: 400, code: "invalid_argument" });
    expect(answer.message).toContain(field);
    expect(await position()).toBe(before);
  });

  test("malformed JSON, too much of it and too deep a nesting are refused, and change nothing", async () => {
    const before = await position();
    const send = (body: string) =>
      fetch(`${server.url}/svc.v1.SvcService/Emit`, {
        method: "POST",
        headers: { authorization: `Bearer ${server.adminKey}`, "content-type": "application/json" },
        body,
      });
    expect((await send('{"event":')).status).toBe(400);
    expect((await send(`{"event":"a","data":"${"x".repeat(5 * 1024 * 1024)}"}`)).status).toBe(429);
    const deep = await send(`{"event":"a","data":${"[".repeat(200_000)}${"]".repeat(200_000)}}`);
    expect([200, 400]).toContain(deep.status);
    if (deep.status !== 200) expect(await position()).toBe(before);
  });

  test.each([
    [{}, {}],
    [{ data: { a: [1, { b: null }] } }, { a: [1, { b: null }] }],
    [{ data: [1, 2] }, [1, 2]],
    [{ data: "text" }, "text"],
    [{ data: 7.25 }, 7.25],
    [{ data: false }, false],
    [{ dataValue: [null] }, [null]],
    [{ data_value: "snake" }, "snake"],
  ])("data %j is kept as %j", async (body, data) => {
    const { eventId } = await emit({ event: "kept", ...body });
    expect((await stored(eventId)).data).toEqual(data);
  });

  test("version, metadata, key and source are kept; 0 is version 1; Trigger and PubSub say the same", async () => {
    const sent = { version: 3, metadata: { trace: "t" }, idempotency_key: "kept-key" };
    const { eventId } = await emit({ event: "kept", ...sent });
    expect(await stored(eventId)).toMatchObject({
      id: eventId,
      name: "kept",
      version: 3,
      metadata: { trace: "t" },
      idempotency_key: "kept-key",
      source: "api",
      processed: true,
    });
    expect((await stored((await emit({ event: "kept", version: 0 })).eventId)).version).toBe(1);
    expect((await rpc("Trigger", { event: "kept" })).body.eventId).toStartWith("evt_");
    expect((await server.rpc("PubSubService", "Emit", { event: "kept" })).body.eventId).toStartWith("evt_");
  });

  test("positions follow each other, and runs are named", async () => {
    const first = await emit({ event: "order.placed", data: { total: 11 } });
    const second = await emit({ event: "order.placed", data: { total: 9 } });
    const third = await emit({ event: "order.placed", data: "not an order" });
    expect(first.runIds).toHaveLength(1);
    expect(second.runIds).toBeUndefined();
    expect(third.runIds).toBeUndefined();
    expect(Number(second.sequence)).toBe(Number(first.sequence) + 1);
    const byId = await emit({ event: "big-orders", data: [1] });
    expect(byId.runIds).toHaveLength(1);
    expect((await rpc("GetRun", { id: byId.runIds![0] })).body).toMatchObject({ inputValue: [1] });
  });

  test("a paused function starts nothing", async () => {
    await rpc("RegisterFunction", { id: "resting", triggers: [{ event: "rest" }] });
    await rpc("UpdateFunctionStatus", { id: "resting", status: "paused" });
    expect((await emit({ event: "rest" })).runIds).toBeUndefined();
    await rpc("UpdateFunctionStatus", { id: "resting", status: "active" });
    expect((await emit({ event: "rest" })).runIds).toHaveLength(1);
  });

  test("a repeated key answers the first ids, whatever else it says", async () => {
    const first = await emit({ event: "order.placed", data: { total: 50 }, idempotencyKey: "once" });
    const before = await position();
    expect(await emit({ event: "other", data: 1 }, { headers: { "idempotency-key": "once" } })).toEqual(
      first,
    );
    expect(await position()).toBe(before);
    const both = { headers: { "idempotency-key": "another" } };
    expect(await refused("Emit", { event: "a", idempotencyKey: "once" }, both)).toMatchObject({
      status: 400,
    });
    const elsewhere = await emit({ event: "a", idempotencyKey: "once" }, { key: foreign });
    expect(elsewhere.eventId).not.toBe(first.eventId);
  });

  test("twenty twins at once are one event with one run", async () => {
    const before = await position();
    const body = { event: "order.placed", data: { total: 99 }, idempotencyKey: "twins" };
    const answers = await Promise.all(Array.from({ length: 20 }, () => emit(body)));
    expect(new Set(answers.map((answer) => JSON.stringify(answer))).size).toBe(1);
    expect(await position()).toBe(before + 1);
  });

  test("a batch is taken whole and in order, or not at all", async () => {
    const events = Array.from({ length: 100 }, (_, n) => ({ event: "batch", data: { n } }));
    const { body } = await rpc("TriggerBatch", { events });
    const sequences = body.results.map((result: { sequence: string }) => Number(result.sequence));
    expect(sequences).toEqual(sequences.map((_: number, n: number) => sequences[0] + n));
    const before = await position();
    const bad = await refused("TriggerBatch", { events: [...events.slice(0, 3), { event: "a..b" }] });
    expect(bad).toMatchObject({ status: 400, code: "invalid_argument" });
    expect(bad.message).toStartWith("events[3].event");
    expect(
      (await refused("TriggerBatch", { events: [...events, { event: "one too many" }] })).message,
    ).toContain("at most 100");
    expect(await position()).toBe(before);
    const keyed = {
      events: [
        { event: "k", idempotency_key: "b1" },
        { event: "k", idempotencyKey: "b2" },
      ],
    };
    const once = await rpc("TriggerBatch", keyed);
    expect((await rpc("TriggerBatch", keyed)).body).toEqual(once.body);
  });

  test("a foreign event answers exactly like a missing one", async () => {
    const { eventId } = await emit({ event: "mine" });
    const foreignAnswer = await server.api(`/api/v1/events/${eventId}`, { key: foreign });
    const missing = await server.api(`/api/v1/events/${eventId}x`, { key: foreign });
    expect(foreignAnswer.status).toBe(404);
    expect(JSON.stringify(missing.body).replaceAll(`${eventId}x`, eventId)).toBe(
      JSON.stringify(foreignAnswer.body),
    );
  });

  describe("the list", () => {
    const list = async (query: string) => server.api(`/api/v1/events?${query}`);
    const ids = (body: { events: { id: string }[] }) => body.events.map((event) => event.id);

    test("walks forth and back without gap or repeat", async () => {
      const events = Array.from({ length: 57 }, (_, n) => ({ event: "walk", data: { n } }));
      const { body } = await rpc("TriggerBatch", { events });
      const newestFirst = body.results.map((result: { eventId: string }) => result.eventId).reverse();
      const pages: {
        events: { id: string }[];
        next_cursor?: string;
        prev_cursor?: string;
        has_prev: boolean;
      }[] = [];
      let query = "names=walk&limit=10";
      for (;;) {
        const page = (await list(query)).body;
        pages.push(page);
        if (!page.has_next) break;
        query = `names=walk&limit=10&cursor=${page.next_cursor}`;
      }
      expect(pages.flatMap(ids)).toEqual(newestFirst);
      expect(pages.map((page) => page.has_prev)).toEqual([false, true, true, true, true, true]);
      for (let at = pages.length - 1; at > 0; at--) {
        const back = (await list(`names=walk&limit=10&before=${pages[at]!.prev_cursor}`)).body;
        expect(ids(back)).toEqual(ids(pages[at - 1]!));
        expect(back).toMatchObject({ has_next: true, has_prev: at > 1 });
      }
      expect(pages[0]).toMatchObject({ count: 10, limit: 10, approx_total: 57, approx_total_capped: false });
    });

    test("has its limits", async () => {
      expect((await list("")).body).toMatchObject({ limit: 20, count: 20 });
      expect((await list("limit=1000")).body.limit).toBe(200);
      expect((await list("name=alk&limit=1")).body.approx_total).toBe(57);
      expect((await list("source=api,cron&names=walk")).body.approx_total).toBe(57);
      expect((await list("source=cron")).body).toMatchObject({ events: [], count: 0, has_next: false });
      const values = (count: number) => Array.from({ length: count }, (_, n) => `n${n}`).join(",");
      expect((await list(`names=${values(200)}`)).status).toBe(200);
      for (const name of ["names", "source"])
        expect((await list(`${name}=${values(201)}`)).body).toMatchObject({
          code: "invalid_argument",
          error: `too many values in '${name}' parameter: at most 200`,
        });
    });

    test.each([
      ["since=yesterday", "invalid 'since' parameter: must be RFC3339"],
      ["until=2026-01-01", "invalid 'until' parameter: must be RFC3339"],
      ["cursor=xyz", "cursor"],
      ["before=xyz", "before"],
      ["cursor=MS5h&before=MS5h", "mutually exclusive"],
      ["limit=many", "limit"],
    ])("refuses %s", async (query, text) => {
      const { status, body } = await list(query);
      expect(status).toBe(400);
      expect(body.error).toContain(text);
    });

    test("since and until are inclusive bounds", async () => {
      const { eventId } = await emit({ event: "bounded" });
      const { timestamp } = await stored(eventId);
      expect(timestamp).toMatch(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);
      expect((await list(`names=bounded&since=${timestamp}&until=${timestamp}`)).body.count).toBe(1);
      expect((await list("names=bounded&since=2999-01-01T00:00:00Z")).body.count).toBe(0);
    });

    test("counts up to its caps", async () => {
      const { store, tenancy, keys } = server.running.domain;
      const full = await tenancy.createEnvironment({ orgId: "org_default", name: "full" });
      const scope = { orgId: "org_default", environmentId: full.id, name: "full", roleIds: ["role_viewer"] };
      const { key } = await keys.create(scope);
      const fill = (from: number, count: number) => {
        const numbers = Array.from({ length: count }, (_, n) => from + n);
        return store.write((session) =>
          session.run(sql`INSERT INTO events (environment_id, position, id, name, version, data, source, at)
            SELECT ${full.id}, n, 'evt_full' || n, 'filler', 1, 'null', 'api', 1000 + n
            FROM ${session.seams.rowsFrom("v", { n: column.bigint(numbers) })}`),
        );
      };
      for (let from = 1; from < 10_000; from += 1_000) await fill(from, 1_000);
      const names = async () => (await server.api("/api/v1/events/names", { key })).body;
      const total = async () => (await server.api("/api/v1/events?limit=1", { key })).body;
      expect(await total()).toMatchObject({ approx_total: 10_000, approx_total_capped: false });
      expect(await names()).toEqual({
        names: [{ name: "filler", count: 10_000 }],
        scanned: 10_000,
        truncated: false,
        scan_cap: 10_000,
      });
      await fill(10_001, 1);
      expect(await total()).toMatchObject({ approx_total: 10_000, approx_total_capped: true });
      expect(await names()).toMatchObject({ scanned: 10_000, truncated: true });
    });
  });
});
