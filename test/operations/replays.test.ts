import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { leastUnreplayed } from "../../src/domain/engine/repairs/replays/rows.ts";
import { sql } from "../../src/kit/sql.ts";
import { type Client, createClient, createFunction, createWorker, type Worker } from "../../src/sdk/index.ts";
import { plant } from "../support/plant.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

interface Replay {
  id: string;
  status: string;
  note: string;
  counts: Record<string, number>;
  position: number;
  from_position: number;
  to_position: number;
  live_from?: number;
}

const quiet = { pending: 0, over: 0, refused: 0, failed: 0, undone: 0 };
const many = 5_000;

describe.each(engines)("replays on %s", (engine) => {
  let server: TestServer;
  let client: Client;
  let worker: Worker;
  /** The numbers that handlers were given, by function. */
  const given = new Map<string, number[]>();

  const counting = (id: string, event: string) =>
    createFunction<Record<string, { n: number }>>(
      { id, triggers: [{ event }] },
      async ({ event: { data } }) => {
        given.set(id, [...(given.get(id) ?? []), data.n]);
      },
    );
  const late = counting("late", "late.placed");
  const paused = counting("paused", "paused.*");
  const large = counting("large", "large.wanted");

  const store = () => server.running.domain.store;
  const emitted = (event: string, from: number, to: number) =>
    Promise.all(Array.from({ length: to - from }, (_, at) => client.emit(event, { n: from + at })));
  const start = async (body: object, key?: string) => {
    const answer = await server.api("/api/v1/replays", { body, ...(key !== undefined && { key }) });
    expect(answer).toMatchObject({ status: 201 });
    return answer.body as Replay;
  };
  const over = (id: string) =>
    until(
      async () => {
        const { body } = await server.api(`/api/v1/repairs/${id}`);
        return body.ended_at !== undefined && (body as Replay);
      },
      { about: "the end of the replay", deadlineMs: 20_000 },
    );
  /** How many runs of the function each event has. */
  const runsByEvent = async (functionId: string): Promise<Map<string, number>> => {
    const rows = await store().all<{ event_id: string; count: number }>(
      sql`SELECT event_id, count(*) AS count FROM runs WHERE function_id = ${functionId} GROUP BY event_id`,
    );
    return new Map(rows.map(({ event_id, count }) => [event_id, Number(count)]));
  };
  const register = (id: string, event: string) =>
    server.rpc("SvcService", "RegisterFunction", { id, triggers: [{ event }] });

  beforeAll(async () => {
    server = await startTestServer({ engine });
    client = createClient({ url: server.url, apiKey: server.adminKey });
  }, 120_000);
  afterAll(async () => {
    await worker?.stop();
    await server?.stop();
  });

  test("a new function is started once on each event of before, and what has a run is skipped", async () => {
    const before = await emitted("late.placed", 0, 30);
    await emitted("late.other", 0, 5);
    worker = createWorker({ url: server.url, apiKey: server.adminKey, functions: [late, paused, large] });
    await worker.start();
    const live = await emitted("late.placed", 30, 35);
    const preview = (await server.api("/api/v1/replays/preview", { body: { function_id: "late" } })).body;
    expect(preview).toMatchObject({ truncated: false, matched: 35, with_run: 5, to_start: 30 });
    expect(preview.scanned).toBe(preview.to_position - preview.from_position + 1);
    expect(preview.samples.map(({ event_id }: { event_id: string }) => event_id)).toHaveLength(10);

    const begun = await start({ function_id: "late", reason: "it is new" });
    expect(begun).toMatchObject({ action: "replay", status: "running", reason: "it is new" });
    const ended = await over(begun.id);
    const { scanned } = preview;
    expect(ended).toMatchObject({
      status: "completed",
      counts: { ...quiet, done: 30, skipped: 5, scanned },
    });
    const all = [...before, ...live].map(({ eventId }) => eventId);
    const expected = new Map(all.map((id) => [id, 1]));
    expect(await runsByEvent("late")).toEqual(expected);
    await until(() => given.get("late")?.length === 35, { about: "every payload", deadlineMs: 20_000 });
    expect(given.get("late")!.toSorted((a, b) => a - b)).toEqual(Array.from({ length: 35 }, (_, n) => n));
    const { items } = (await server.api(`/api/v1/repairs/${begun.id}/items?limit=100`)).body;
    expect(items.map(({ event_id }: { event_id: string }) => event_id).toSorted()).toEqual(
      before.map(({ eventId }) => eventId).toSorted(),
    );

    const second = await over((await start({ function_id: "late" })).id);
    expect(second.counts).toEqual({ ...quiet, done: 0, skipped: 35, scanned });
    const events = { filter: "data.n < 3", again: true };
    const again = await over((await start({ function_id: "late", events })).id);
    expect(again.counts).toMatchObject({ done: 3, skipped: 0 });
    for (const { eventId } of before.slice(0, 3)) expected.set(eventId, 2);
    expect(await runsByEvent("late")).toEqual(expected);
  });

  test("a paused function goes live where its replay ends, while events go on coming", async () => {
    await client.updateFunctionStatus("paused", "paused");
    await emitted("paused.placed", 0, 40);
    let isOn = true;
    let next = 40;
    const seen: string[] = [];
    const going = Array.from({ length: 4 }, async () => {
      while (isOn) seen.push((await client.emit("paused.placed", { n: next++ })).eventId);
    });
    await until(() => seen.length >= 10, { about: "events that go on coming" });
    const begun = await client.repairs.replayEvents(paused, { thenLive: true });
    const from = seen.length;
    await until(() => seen.length >= from + 10, { about: "events behind the hand-over" });
    isOn = false;
    await Promise.all(going);
    const ended = await over(begun.id);
    const liveFrom = begun.replay!.liveFrom!;
    expect(liveFrom).toBe(begun.replay!.toPosition + 1);
    const rows = await store().all<{ id: string; position: number }>(
      sql`SELECT id, position FROM events WHERE name = 'paused.placed' ORDER BY position`,
    );
    expect(rows).toHaveLength(next);
    expect(await runsByEvent("paused")).toEqual(new Map(rows.map(({ id }) => [id, 1])));
    expect(ended.counts).toMatchObject({
      done: rows.filter(({ position }) => position < liveFrom).length,
      skipped: 0,
    });
    expect((await client.getFunction("paused")).status).toBe("active");
  });

  test("of many events with live ones among them each matching one gets exactly one run", async () => {
    const head = await store().one<{ position: number; last_at: number }>(
      sql`SELECT position, last_at FROM heads WHERE environment_id = ${server.env}`,
    );
    await plant(store(), "events", many, {
      ...{ environment_id: `'${server.env}'`, position: `${head!.position} + n`, version: "1" },
      ...{ id: "'evt_planted_' || n", data: `'{"n":' || n || '}'`, source: "'api'", at: `${head!.last_at}` },
      name: "CASE WHEN n % 20 = 0 THEN 'large.wanted' ELSE 'large.other' END",
    });
    await store().write((session) =>
      session.run(sql`UPDATE heads SET position = position + ${sql.bigint(many)}
        WHERE environment_id = ${server.env}`),
    );
    const { id } = await start({ function_id: "large", events: { from_position: head!.position + 1 } });
    await emitted("large.wanted", 0, 50);
    const ended = await over(id);
    expect(ended.counts).toEqual({ ...quiet, done: many / 20, skipped: 0, scanned: many });
    const found = await runsByEvent("large");
    expect([found.size, [...found.values()].every((runs) => runs === 1)]).toEqual([many / 20 + 50, true]);
  });

  test("a replay is paused, goes on and is stopped, and ends with its function", async () => {
    await register("held", "held.placed");
    await client.updateFunctionStatus("held", "paused");
    await emitted("held.placed", 0, 110);
    const { id } = await start({ function_id: "held" });
    const full = async () => ((await server.api(`/api/v1/repairs/${id}`)).body as Replay).counts.done === 100;
    await until(full, { about: "a full queue", deadlineMs: 20_000 });
    const other = await server.api("/api/v1/replays", { body: { function_id: "held" } });
    expect(other).toMatchObject({ status: 409, body: { error: expect.stringContaining(id) } });
    const needed = () => leastUnreplayed(store(), server.env, 0);
    const { position } = (await server.api(`/api/v1/repairs/${id}`)).body as Replay;
    expect(await needed()).toBe(position + 1);
    expect((await server.api(`/api/v1/repairs/${id}/pause`, { body: {} })).body.status).toBe("paused");
    expect(await needed()).toBeUndefined();
    expect((await server.api(`/api/v1/repairs/${id}/continue`, { body: {} })).body.status).toBe("running");
    await server.api(`/api/v1/repairs/${id}/stop`, { body: {} });
    expect(await over(id)).toMatchObject({ status: "stopped", counts: { done: 100, undone: 0 } });
    const { id: next } = await start({ function_id: "held" });
    await client.deleteFunction("held");
    expect(await over(next)).toMatchObject({ status: "stopped", note: expect.stringContaining("held") });
  });

  test("events that policies hide start nothing, and what has expired is told by the floor", async () => {
    await register("seer", "seen.*");
    await client.updateFunctionStatus("seer", "paused");
    const role = (await server.api("/api/v1/roles", { body: { name: "seer", base: "developer" } })).body;
    const policy = { name: "unseen", effect: "deny", actions: "events:subscribe" };
    const resources = "irn:svc:*:*:event:*:seen.secret";
    const { id: policyId } = (await server.api("/api/v1/policies", { body: { ...policy, resources } })).body;
    await server.api(`/api/v1/roles/${role.id}/policies`, { body: { policy_id: policyId } });
    const { key } = (await server.api("/api/v1/apikeys", { body: { name: "seer", role_ids: [role.id] } }))
      .body;
    await emitted("seen.open", 0, 2);
    await emitted("seen.secret", 0, 3);
    const body = { function_id: "seer" };
    const preview = async (as?: string) =>
      (await server.api("/api/v1/replays/preview", { body, ...(as !== undefined && { key: as }) })).body;
    expect((await preview()).matched).toBe(5);
    expect((await preview(key)).matched).toBe(2);
    expect((await over((await start(body, key)).id)).counts).toMatchObject({ done: 2, skipped: 0 });

    const floor = 7;
    await store().write((session) =>
      session.run(sql`UPDATE heads SET retention_floor = ${floor} WHERE environment_id = ${server.env}`),
    );
    const below = { ...body, events: { from_position: floor - 1 } };
    const refused = await server.api("/api/v1/replays", { body: below });
    expect(refused).toMatchObject({ status: 400, body: { code: "out_of_range" } });
    expect(refused.body.message).toContain(`below ${floor}`);
    const early = { ...body, events: { since: "2020-01-01T00:00:00Z" } };
    const told = await server.api("/api/v1/replays/preview", { body: early });
    expect(told).toMatchObject({ status: 400, body: { code: "out_of_range", field: "events.since" } });
    const since = told.body.message.split("at least ")[1];
    const kept = await server.api("/api/v1/replays/preview", { body: { ...body, events: { since } } });
    expect(kept).toMatchObject({ status: 200, body: { matched: 5, with_run: 2 } });
    expect((await preview()).from_position).toBe(floor);
  });

  test("what is wrong is named, and what is foreign is missing", async () => {
    const function_id = "late";
    await server.rpc("SvcService", "RegisterFunction", { id: "bare", triggers: [] });
    for (const [body, field] of [
      [{}, "function_id"],
      [{ function_id: "bare" }, "pattern"],
      [{ function_id, events: { pattern: "a.>.b" } }, "pattern"],
      [{ function_id, events: { filter: "data.n <" } }, "filter"],
      [{ function_id, events: { from_position: 9_000_000 } }, "from_position"],
      [{ function_id, events: { to_position: 9_000_000 } }, "to_position"],
      [{ function_id, events: { from_position: 20, to_position: 10 } }, "to_position"],
      [{ function_id, events: { from_position: 10, since: "2026-01-01T00:00:00Z" } }, "since"],
      [{ function_id, events: { since: "yesterday" } }, "since"],
      [{ function_id, events: { since: "" } }, "since"],
      [{ function_id, events: { to_position: 0 } }, "to_position"],
      [{ function_id, events: { filter: "" } }, "filter"],
      [{ function_id, events: { to_position: 10 }, then_live: true }, "then_live"],
      [{ function_id, reason: "x".repeat(1_025) }, "reason"],
    ] as const) {
      const answer = await server.api("/api/v1/replays", { body });
      expect({ status: answer.status, body: answer.body, field }).toMatchObject({ status: 400 });
      expect(answer.body.error + answer.body.message).toContain(field);
    }
    const bare = { function_id: "bare", events: { pattern: "a.b" }, then_live: true };
    expect((await server.api("/api/v1/replays", { body: bare })).status).toBe(409);
    const elsewhere = (await server.api("/api/v1/environments", { body: { name: "elsewhere" } })).body.id;
    const { key } = (await server.api("/api/v1/apikeys", { body: { name: "elsewhere", env_id: elsewhere } }))
      .body;
    for (const path of ["", "/preview"])
      expect((await server.api(`/api/v1/replays${path}`, { body: { function_id }, key })).status).toBe(404);
  });
});
