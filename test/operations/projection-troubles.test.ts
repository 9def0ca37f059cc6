import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { sql } from "../../src/kit/sql.ts";
import { idsOf, projectionCaller } from "../support/projections.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { openSocket, type TestSocket } from "../support/sockets.ts";
import { until } from "../support/until.ts";

describe.each(engines)("projections in trouble on %s", (engine) => {
  let server: TestServer;
  let caller: ReturnType<typeof projectionCaller>;
  const open: TestSocket[] = [];
  beforeAll(async () => {
    server = await startTestServer({ engine });
    caller = projectionCaller(server);
  }, 120_000);
  afterAll(async () => {
    for (const socket of open) socket.close();
    await server.stop();
  });

  test("a failed handler stops its partition, and the neighbours go on", async () => {
    const { name, event } = await caller.registered("failing", { partitionKey: "$.data.id" });
    const a1 = await caller.emit(event, { id: "a" });
    const bad = await caller.emit(event, { id: "a", bad: true });
    const b = await caller.emit(event, { id: "b" });
    const a3 = await caller.emit(event, { id: "a" });
    await caller.poll(name);
    await caller.save(name, a1.seq, { n: 1 }, { partitionKey: "a" });
    await caller.ok("ReportProjectionError", {
      ...{ name, partitionKey: "a", eventId: bad.id, eventSeq: `${bad.seq}`, message: "boom" },
    });
    expect(await caller.status(name)).toMatchObject({
      ...{ status: "error", errorMessage: "boom", errorEventId: bad.id, errorPartition: "a" },
    });
    expect(idsOf(await caller.poll(name))).toEqual([b.id]);
    expect((await caller.save(name, b.seq, { n: 1 }, { partitionKey: "b" })).status).toBe(200);
    expect(idsOf(await caller.poll(name))).toEqual([]);
    const waiting = await caller.call("WaitProjectionCatchup", { name, minSeq: "1" });
    expect([waiting.body.code, waiting.body.message]).toEqual([
      "failed_precondition",
      expect.stringContaining("boom"),
    ]);
    const healthy = { name, minSeq: `${b.seq}`, partition: "b" };
    expect(await caller.ok("WaitProjectionCatchup", healthy)).toMatchObject({ caughtUp: true });
    // Tried again: what the partition has folded does not come again, nor does anything of the others.
    expect(await caller.ok("ResumeProjection", { name })).toEqual({ status: "running" });
    expect(idsOf(await caller.poll(name))).toEqual([bad.id, a3.id]);
    await caller.ok("ReportProjectionError", {
      ...{ name, partitionKey: "a", eventId: bad.id, eventSeq: `${bad.seq}`, message: "boom again" },
    });
    const wrong = await caller.call("ResumeProjection", { name, skipEventId: b.id });
    expect(wrong.body.code).toBe("failed_precondition");
    await caller.ok("ResumeProjection", { name, skipEventId: bad.id });
    expect(idsOf(await caller.poll(name))).toEqual([a3.id]);
    expect((await caller.save(name, a3.seq, { n: 2 }, { partitionKey: "a" })).status).toBe(200);
    expect(await caller.status(name)).toMatchObject({ status: "running", lastEventSeq: `${a3.seq}` });
  });

  test("what was delivered before the failed event and is not saved comes again with it", async () => {
    const { name, event } = await caller.registered("unsaved");
    const one = await caller.emit(event);
    const bad = await caller.emit(event);
    await caller.poll(name);
    await caller.ok("ReportProjectionError", {
      name,
      eventId: bad.id,
      eventSeq: `${bad.seq}`,
      message: "no",
    });
    await caller.ok("ResumeProjection", { name, skipEventId: bad.id });
    expect(idsOf(await caller.poll(name))).toEqual([one.id]);
  });

  test("a failed handler stops an external projection, until it is resumed", async () => {
    const { name, event } = await caller.registered("outside", { mode: "external" });
    const one = await caller.emit(event);
    const bad = await caller.emit(event);
    const last = await caller.emit(event);
    await caller.poll(name);
    await caller.ok("ReportProjectionError", {
      name,
      eventId: bad.id,
      eventSeq: `${bad.seq}`,
      message: "no",
    });
    expect(await caller.status(name)).toMatchObject({ status: "error", lastEventSeq: `${one.seq}` });
    expect(idsOf(await caller.poll(name))).toEqual([]);
    await caller.ok("ResumeProjection", { name });
    expect(idsOf(await caller.poll(name))).toEqual([bad.id, last.id]);
    await caller.ok("ReportProjectionError", {
      name,
      eventId: bad.id,
      eventSeq: `${bad.seq}`,
      message: "no",
    });
    await caller.ok("ResumeProjection", { name, skipEventId: bad.id });
    expect(idsOf(await caller.poll(name))).toEqual([last.id]);
  });

  test("subscribers hear of transitions, moves and states", async () => {
    const { name, event } = await caller.registered("heard");
    const socket = await openSocket(server.url, { key: server.adminKey });
    open.push(socket);
    await socket.subscribe(`system.projection_health.${name}`);
    await socket.subscribe(`system.projection.${name}.>`);
    const { id, seq } = await caller.emit(event);
    await caller.poll(name);
    await caller.save(name, seq, { n: 1 }, { lastEventId: id });
    await caller.ok("PauseProjection", { name });
    const frames = await socket.wait("event", 3);
    const state = frames.find(({ topic }) => topic === `system.projection.${name}.__global__.updated`);
    expect(state?.data).toEqual({ state: { n: 1 }, last_event_id: id, last_event_name: event });
    const health = frames.filter(({ topic }) => topic === `system.projection_health.${name}`);
    const paused = health.find(({ data }) => data.status === "paused");
    expect(paused?.data).toEqual({
      ...{ name, status: "paused", mode: "managed", last_event_seq: seq, error_message: "", lag: 0 },
      timestamp: expect.any(String),
    });
  });

  test("names, events, paths and numbers that are no such things are refused, field by field", async () => {
    const good = { name: "fine", events: ["a.b"] };
    const bad: [object, string][] = [
      [{ ...good, name: "" }, "name"],
      [{ ...good, name: "with space" }, "name"],
      [{ ...good, name: "a..b" }, "name"],
      [{ ...good, name: "star.*" }, "name"],
      [{ ...good, name: "x".repeat(129) }, "name"],
      [{ ...good, name: "null\0" }, "name"],
      [{ ...good, events: [] }, "events"],
      [{ ...good, events: Array.from({ length: 101 }, (_, at) => `e${at}`) }, "events"],
      [{ ...good, events: ["ok", "a.>.b"] }, "events[1]"],
      [{ ...good, events: ["a*"] }, "events[0]"],
      [{ ...good, mode: "magic" }, "mode"],
      [{ ...good, version: -1 }, "version"],
      [{ ...good, partitionKey: "$.data..id" }, "partition_key"],
      [{ ...good, partitionKey: "x".repeat(257) }, "partition_key"],
    ];
    for (const [body, field] of bad) {
      const { status, body: said } = await caller.call("RegisterProjection", body);
      expect([body, status, said.code, said.message]).toEqual([
        ...[body, 400, "invalid_argument"],
        expect.stringContaining(`${field}: `),
      ]);
    }
    for (const filter of [{ status: "sleeping" }, { mode: "magic" }, { offset: -1 }])
      expect((await caller.call("ListProjections", filter)).body.code).toBe("invalid_argument");
    for (const name of ["null\0name", "\ud800", "a/b", "../../etc", "'; DROP TABLE projections"]) {
      const { status, body } = await caller.call("WaitProjectionCatchup", { name, minSeq: "1" });
      expect([name, [404, 400].includes(status), body.code === "internal"]).toEqual([name, true, false]);
    }
  });

  test("saves that make no sense are refused, and change nothing", async () => {
    const { name, event } = await caller.registered("hostile");
    const { seq } = await caller.emit(event);
    await caller.poll(name);
    const codeOf = async (seqSaid: number | string, more: object = {}) =>
      (
        await caller.call("SaveProjectionState", {
          ...{ name, partitionKey: "__global__", state: {}, lastEventSeq: seqSaid, ...more },
        })
      ).body.code;
    expect(await codeOf(-1)).toBe("invalid_argument");
    expect(await codeOf("9223372036854775807")).toBe("invalid_argument");
    expect(await codeOf("nonsense")).toBe("invalid_argument");
    expect(await codeOf(seq + 1_000_000)).toBe("invalid_argument");
    expect(await codeOf(seq, { lastEventTime: "yesterday" })).toBe("invalid_argument");
    expect(await codeOf(seq, { partitionKey: "p".repeat(513) })).toBe("invalid_argument");
    expect(await codeOf(seq, { runnerId: "r".repeat(129) })).toBe("invalid_argument");
    const large = await caller.call("SaveProjectionState", {
      ...{
        name,
        partitionKey: "__global__",
        lastEventSeq: seq,
        state: { text: "x".repeat(5 * 1024 * 1024) },
      },
    });
    expect(large.status).toBe(429);
    expect((await caller.ok("GetProjection", { name })).state).toBeUndefined();
    // States are any JSON.
    for (const [at, state] of [[1, 2], "text", 7, false, null].entries()) {
      const own = await caller.registered("any_json");
      const one = await caller.emit(own.event);
      await caller.poll(own.name);
      expect([at, (await caller.save(own.name, one.seq, state)).status]).toEqual([at, 200]);
      expect((await caller.ok("GetProjection", { name: own.name })).stateValue).toEqual(state);
      const rest = await server.api(`/api/v1/projections/${own.name}`);
      expect(rest.body.state.state).toEqual(state);
    }
  });

  test("deny policies keep projections, and their events, from a runner", async () => {
    const { name, event } = await caller.registered("denied");
    const other = await caller.registered("allowed");
    const role = await server.api("/api/v1/roles", { body: { name: `bound-${engine}`, base: "developer" } });
    const made = await server.api("/api/v1/apikeys", { body: { name: "k", role_ids: [role.body.id] } });
    const options = { key: made.body.key as string };
    const deny = async (resources: string, actions: string) => {
      const policy = await server.api("/api/v1/policies", {
        body: { name: `deny ${actions}`, effect: "deny", actions, resources },
      });
      expect([policy.status, policy.body.warnings]).toEqual([201, undefined]);
      await server.api(`/api/v1/roles/${role.body.id}/policies`, { body: { policy_id: policy.body.id } });
    };
    expect((await caller.call("GetProjection", { name }, options)).status).toBe(200);
    await deny(`irn:svc:*:*:projection:*:${name}`, "projections:*");
    for (const method of [
      "GetProjection",
      "PollProjectionEvents",
      "PauseProjection",
      "WaitProjectionCatchup",
    ])
      expect([method, (await caller.call(method, { name }, options)).status]).toEqual([method, 403]);
    const listed = await caller.ok("ListProjections", { limit: 200 }, options);
    expect(listed.projections.map((one: { name: string }) => one.name)).not.toContain(name);
    expect((await caller.call("PollProjectionEvents", { name: other.name }, options)).status).toBe(200);
    await deny(`irn:svc:*:*:event:*:${other.event}`, "events:subscribe");
    expect((await caller.call("PollProjectionEvents", { name: other.name }, options)).status).toBe(403);
    const wide = { name: "wide", events: [">"] };
    expect((await caller.call("RegisterProjection", wide, options)).status).toBe(403);
    expect(event).toBeString();
  });

  test("the audit names who changed a projection, and holds no states", async () => {
    const { name, event } = await caller.registered("audited");
    const { seq } = await caller.emit(event);
    await caller.poll(name);
    await caller.save(name, seq, { text: "of nobody else" });
    await caller.ok("PauseProjection", { name });
    await server.running.tick("audit.flush");
    const operations = await server.running.domain.store.all<{ operation: string }>(
      sql`SELECT operation FROM auth_audit WHERE resource LIKE ${`%:${name}`} ORDER BY sequence`,
    );
    expect(operations.map(({ operation }) => operation)).toEqual([
      "projections.register",
      "projections.pause",
    ]);
  });

  test("events of the platform's own entities reach no runner", async () => {
    const { name, event } = await caller.registered("hidden");
    const own = await caller.emit(event);
    const seen = await caller.emit(event);
    await server.running.domain.store.write((session) =>
      session.run(sql`UPDATE events SET entity_id = 'svc:fn:x' WHERE id = ${own.id}`),
    );
    expect(idsOf(await caller.poll(name))).toEqual([seen.id]);
    const wait = await caller.call("WaitForEvent", { projection: name, eventId: own.id });
    expect(wait.status).toBe(404);
  });

  test("retention keeps what a projection still needs", async () => {
    const own = await startTestServer({ engine, settings: { eventRetentionDays: 1 } });
    try {
      const there = projectionCaller(own);
      await there.ok("RegisterProjection", { name: "kept", events: ["kept.*"] });
      const first = await there.emit("kept.one");
      const second = await there.emit("kept.two");
      const { store } = own.running.domain;
      await store.write((session) => session.run(sql`UPDATE events SET at = 1`));
      await own.running.tick("events.expire");
      expect((await there.poll("kept")).events).toHaveLength(2);
      await there.save("kept", first.seq, {});
      await own.running.tick("events.expire");
      expect(idsOf(await there.poll("kept"))).toEqual([second.id]);
      const left = await store.all<{ id: string }>(sql`SELECT id FROM events WHERE id = ${first.id}`);
      expect(left).toEqual([]);
    } finally {
      await own.stop();
    }
  });

  test("a cursor beyond what is not saved, and states of no fold, are found by the integrity report", async () => {
    const own = await startTestServer({ engine });
    try {
      const there = projectionCaller(own);
      await there.ok("RegisterProjection", { name: "ahead", events: ["ahead.*"] });
      const { seq } = await there.emit("ahead.one");
      await there.poll("ahead");
      const found = async () => {
        const { body } = await own.api("/api/v1/integrity");
        const all = body.checks.filter((one: { name: string }) => one.name.startsWith("projections."));
        return Object.fromEntries(all.map((one: { name: string; count: number }) => [one.name, one.count]));
      };
      const well = { "projections.cursor": 0, "projections.unsaved": 0, "projections.states": 0 };
      expect(await found()).toEqual(well);
      const { store } = own.running.domain;
      await store.write(async (session) => {
        await session.run(sql`UPDATE projection_generations SET cursor_position = ${seq}, position = ${seq}`);
        await session.run(sql`INSERT INTO projection_states (environment_id, name, generation, partition_key, state,
          last_position, version, updated_at) VALUES (${own.env}, 'nobody', 1, 'p', '{}', 1, 1, 1)`);
      });
      await until(async () => (await found())["projections.states"] === 1, { about: "the next look" });
      expect(await found()).toEqual({ ...well, "projections.unsaved": 1, "projections.states": 1 });
    } finally {
      await own.stop();
    }
  });

  test("a cursor beyond its log is found by the integrity report", async () => {
    const own = await startTestServer({ engine });
    try {
      const there = projectionCaller(own);
      await there.ok("RegisterProjection", { name: "torn", events: ["torn.*"] });
      await own.running.domain.store.write((session) =>
        session.run(
          sql`UPDATE projection_generations SET cursor_position = 99, position = 99, delivered = 99`,
        ),
      );
      const { body } = await own.api("/api/v1/integrity");
      const check = body.checks.find((one: { name: string }) => one.name === "projections.cursor");
      expect(check).toMatchObject({ count: 1 });
    } finally {
      await own.stop();
    }
  });
});
