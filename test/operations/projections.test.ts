import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { sql } from "../../src/kit/sql.ts";
import { chanceOf } from "../support/chance.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";

describe.each(engines)("projections on %s", (engine) => {
  let server: TestServer;
  beforeAll(async () => {
    server = await startTestServer({ engine });
  }, 120_000);
  afterAll(() => server.stop());

  let number = 0;
  /** A name and an event name that no other test has. */
  const fresh = (word: string) => ({ name: `${word}_${++number}`, event: `${word}${number}.happened` });
  const call = (method: string, body: object, options = {}) =>
    server.rpc("ProjectionService", method, body, options);
  const ok = async (method: string, body: object, options = {}) => {
    const answer = await call(method, body, options);
    expect([method, answer.status, answer.body]).toEqual([method, 200, expect.anything()]);
    return answer.body;
  };
  const emit = async (event: string, data: unknown = {}, key?: string) => {
    const { status, body } = await server.rpc("SvcService", "Emit", { event, data }, key ? { key } : {});
    expect(status).toBe(200);
    return { id: body.eventId as string, seq: Number(body.sequence) };
  };
  const environment = async (name: string) => {
    const made = await server.api("/api/v1/environments", { body: { name } });
    const { id } = made.body as { id: string };
    const { body } = await server.api("/api/v1/apikeys", { body: { name, env_id: id } });
    return { id, key: body.key as string };
  };
  const poll = (name: string, more: object = {}) => ok("PollProjectionEvents", { name, ...more });
  const save = (name: string, seq: number, state: unknown, more: object = {}) =>
    call("SaveProjectionState", { name, partitionKey: "__global__", state, lastEventSeq: `${seq}`, ...more });
  const status = (name: string) => ok("GetProjectionStatus", { name });

  test("a projection is registered, listed, paused, resumed and deleted", async () => {
    const { name, event } = fresh("registry");
    expect(await ok("RegisterProjection", { name, events: [event], mode: "managed", version: 1 })).toEqual({
      status: "running",
      lastEventSeq: "0",
    });
    expect(await ok("RegisterProjection", { name, events: [event, "b.*"], version: 2 })).toMatchObject({
      status: "running",
    });
    const list = await ok("ListProjections", { mode: "managed", limit: 100 });
    expect(list.projections.find((one: { name: string }) => one.name === name)).toEqual({
      name,
      mode: "managed",
      status: "running",
      events: [event, "b.*"],
      version: 2,
      versionFull: "2",
      createdAt: expect.any(String),
      updatedAt: expect.any(String),
      environmentId: "env_default",
      type: "events",
      lastEventSeq: "0",
    });
    expect(list.totalCount).toBe(list.projections.length);
    expect(await ok("PauseProjection", { name })).toEqual({ status: "paused" });
    expect((await ok("ListProjections", { status: "paused" })).projections).toHaveLength(1);
    expect((await poll(name)).events).toEqual([]);
    expect(await ok("ResumeProjection", { name })).toEqual({ status: "running" });
    const found = await ok("GetProjection", { name });
    expect(found).toMatchObject({
      name,
      partition: "__global__",
      mode: "managed",
      registry: { status: "active" },
    });
    expect(found.state).toBeUndefined();
    expect((await server.api(`/api/v1/projections/${name}`)).body).toMatchObject({
      ...{ name, version: 2, mode: "managed", status: "active", error_message: "", state: null },
    });
    const gone = await server.api(`/api/v1/projections/${name}`, { method: "DELETE" });
    expect([gone.status, gone.body]).toEqual([200, { status: "deleted" }]);
    for (const method of [
      "GetProjection",
      "GetProjectionStatus",
      "PauseProjection",
      "ResumeProjection",
      "PollProjectionEvents",
      "SaveProjectionState",
      "AckProjectionEvents",
      "RebuildProjection",
      "GetRebuildJob",
      "CancelRebuild",
      "WaitProjectionCatchup",
      "UnregisterProjection",
    ]) {
      const { status, body } = await call(method, { name });
      expect([method, status, body.code]).toEqual([method, 404, "not_found"]);
      expect(body.message).toContain("projection not found");
    }
    for (const path of ["", "/partitions"]) {
      const missing = await server.api(`/api/v1/projections/${name}${path}`);
      expect([missing.status, missing.body.error]).toEqual([
        404,
        expect.stringContaining("projection not found"),
      ]);
    }
  });

  test("a runner polls from the cursor, which moves with what it saves", async () => {
    const { name, event } = fresh("counter");
    await ok("RegisterProjection", { name, events: [event] });
    const first = await emit(event, { n: 1 });
    await emit("nobody.reads", {});
    const second = await emit(event, [2]);
    const polled = await poll(name);
    expect(polled.events).toEqual([
      {
        ...{ id: first.id, name: event, data: { n: 1 }, seq: `${first.seq}`, source: "api" },
        ...{ timestamp: expect.any(String), metadata: { __partition: "__global__" } },
      },
      expect.objectContaining({ id: second.id, dataValue: [2], seq: `${second.seq}` }),
    ]);
    expect(polled.currentState).toBeUndefined();
    expect(await status(name)).toMatchObject({ status: "running", lag: "2" });
    // What is not saved comes again.
    expect((await poll(name)).events).toHaveLength(2);
    const saved = await save(name, second.seq, { count: 2 }, { lastEventId: second.id });
    expect([saved.status, saved.body]).toEqual([200, { ok: true }]);
    const after = await status(name);
    expect([after.lag, after.lastEventSeq]).toEqual(["0", `${second.seq}`]);
    // A lower save changes nothing, and is no mistake.
    expect((await save(name, first.seq, { count: 1 })).status).toBe(200);
    const found = await ok("GetProjection", { name });
    expect(found).toMatchObject({
      ...{ state: { count: 2 }, lastEventId: second.id, version: "1", stateLastEventSeq: `${second.seq}` },
    });
    const next = await poll(name);
    expect([next.events, next.currentState]).toEqual([[], { count: 2 }]);
    const { body } = await server.api(`/api/v1/projections/${name}?partition=__global__`);
    expect(body.state).toMatchObject({
      ...{ projection_name: name, partition_key: "__global__", state: { count: 2 }, version: 1 },
      ...{
        last_event_seq: second.seq,
        environment_id: "env_default",
        last_event_time: "0001-01-01T00:00:00Z",
      },
    });
  });

  test("partitions are saved one by one, and the cursor waits for the last of them", async () => {
    const { name, event } = fresh("parts");
    await ok("RegisterProjection", { name, events: [event], partitionKey: "$.data.customer.id" });
    const a1 = await emit(event, { customer: { id: "a" } });
    const b = await emit(event, { customer: { id: "b" } });
    const a2 = await emit(event, { customer: { id: "a" } });
    const nowhere = await emit(event, { customer: 7 });
    const { events } = await poll(name);
    expect(events.map((one: { metadata: object }) => one.metadata)).toEqual([
      { __partition: "a" },
      { __partition: "b" },
      { __partition: "a" },
      { __partition: "__global__" },
    ]);
    expect((await save(name, nowhere.seq, { n: 1 })).status).toBe(200);
    expect((await save(name, a2.seq, { n: 2 }, { partitionKey: "a" })).status).toBe(200);
    expect((await status(name)).lastEventSeq).toBe(`${b.seq - 1}`);
    // Another look brings only what its partition has not folded.
    const again = await poll(name);
    expect(again.events.map((one: { id: string }) => one.id)).toEqual([b.id]);
    expect((await save(name, b.seq, { n: 1 }, { partitionKey: "b" })).status).toBe(200);
    expect((await status(name)).lastEventSeq).toBe(`${nowhere.seq}`);
    const partitions = await server.api(`/api/v1/projections/${name}/partitions`);
    expect(partitions.body).toEqual({ partitions: ["__global__", "a", "b"], returned: 3 });
    const some = await server.api(`/api/v1/projections/${name}/partitions?q=b&limit=1`);
    expect(some.body.returned).toBe(1);
    expect(a1.seq).toBeLessThan(b.seq);
  });

  test("one runner has a projection; saves of others change nothing", async () => {
    const { name, event } = fresh("lease");
    await ok("RegisterProjection", { name, events: [event] });
    const { seq } = await emit(event);
    const early = await save(name, seq, { early: true });
    expect([early.status, early.body.code]).toEqual([400, "failed_precondition"]);
    const one = await poll(name, { runnerId: "one" });
    expect(one.events).toHaveLength(1);
    const two = await poll(name, { runnerId: "two" });
    expect([two.events, two.fence]).toEqual([[], undefined]);
    for (const who of [
      {},
      { runnerId: "two" },
      { runnerId: "one", fence: "0" },
      { runnerId: "one", fence: "9" },
    ])
      expect((await save(name, seq, { foreign: true }, who)).body.code).toBe("failed_precondition");
    const above = await save(name, seq + 1_000, {}, { runnerId: "one", fence: one.fence });
    expect([above.status, above.body.code]).toEqual([400, "invalid_argument"]);
    expect((await save(name, seq, { mine: true }, { runnerId: "one", fence: one.fence })).status).toBe(200);
    expect((await ok("GetProjection", { name })).state).toEqual({ mine: true });
  });

  test("the states of several partitions are saved in one transaction, all or none", async () => {
    const { name, event } = fresh("many_parts");
    await ok("RegisterProjection", { name, events: [event], partitionKey: "$.data.id" });
    const a = await emit(event, { id: "a" });
    const b = await emit(event, { id: "b" });
    await poll(name);
    const states = [
      { partitionKey: "a", state: { n: 1 }, lastEventSeq: `${a.seq}`, lastEventId: a.id },
      { partition_key: "b", state_value: 7, last_event_seq: b.seq, last_event_time: "2026-01-02T03:04:05Z" },
    ];
    const beyond = [states[0], { ...states[1], last_event_seq: b.seq + 1_000 }];
    expect((await call("SaveProjectionStates", { name, states: beyond })).body.code).toBe("invalid_argument");
    for (const none of [[states[0], states[0]], []])
      expect((await call("SaveProjectionStates", { name, states: none })).body.code).toBe("invalid_argument");
    expect((await ok("GetProjection", { name, partition: "a" })).state).toBeUndefined();
    expect(await ok("SaveProjectionStates", { name, states })).toEqual({ ok: true });
    expect((await ok("GetProjection", { name, partition: "a" })).state).toEqual({ n: 1 });
    expect(await ok("GetProjection", { name, partition: "b" })).toMatchObject({
      ...{ stateValue: 7, lastEventTime: "2026-01-02T03:04:05Z" },
    });
    expect((await status(name)).lastEventSeq).toBe(`${b.seq}`);
    expect((await poll(name)).events).toEqual([]);
  });

  test("appends to streams of entities feed it, each entity as a partition", async () => {
    const { name, event } = fresh("entities");
    await ok("RegisterProjection", { name, events: [event], partitionKey: "$.entityId" });
    const append = async (entityId: string) => {
      const body = { entityId, entityType: "order", eventName: event, data: { entityId } };
      const answer = await server.rpc("EntityStreamService", "AppendEvent", {
        ...body,
        expectedVersion: "-1",
      });
      expect(answer.status).toBe(200);
      return answer.body.eventId as string;
    };
    const ids = [await append("order-1"), await append("order-2"), await append("order-1")];
    const { events } = await poll(name);
    expect(events.map((one: { id: string }) => one.id)).toEqual(ids);
    expect(events.map((one: { metadata: { __partition: string } }) => one.metadata.__partition)).toEqual([
      ...["order-1", "order-2", "order-1"],
    ]);
    const waiting = call("WaitForEvent", { eventId: ids[2], projection: name, timeout: "10s" });
    const [last, other] = [events[2], events[1]];
    expect((await save(name, Number(last.seq), { n: 2 }, { partitionKey: "order-1" })).status).toBe(200);
    expect((await save(name, Number(other.seq), { n: 1 }, { partitionKey: "order-2" })).status).toBe(200);
    expect((await waiting).body).toMatchObject({ caughtUp: true });
  });

  test("a poll of one partition brings only that, and leaves the cursor", async () => {
    const { name, event } = fresh("one_part");
    await ok("RegisterProjection", { name, events: [event], partitionKey: "$.data.id" });
    const a = await emit(event, { id: "a" });
    const b = await emit(event, { id: "b" });
    const polled = await poll(name, { partition: "b" });
    expect(polled.events.map((one: { id: string }) => one.id)).toEqual([b.id]);
    expect((await save(name, b.seq, { n: 1 }, { partitionKey: "b" })).status).toBe(200);
    const again = await poll(name, { partition: "b" });
    expect([again.events, again.currentState]).toEqual([[], { n: 1 }]);
    expect((await poll(name)).events.map((one: { id: string }) => one.id)).toEqual([a.id]);
  });

  test("a lease that ran out goes to the next runner, and its events come again there", async () => {
    const { name, event } = fresh("taken");
    await ok("RegisterProjection", { name, events: [event] });
    const { seq } = await emit(event);
    const one = await poll(name, { runnerId: "one" });
    const { store } = server.running.domain;
    await store.write((session) =>
      session.run(sql`UPDATE projection_generations SET lease_until = 0 WHERE name = ${name}`),
    );
    const two = await poll(name, { runnerId: "two" });
    expect([two.events.length, Number(two.fence)]).toEqual([1, Number(one.fence) + 1]);
    const late = await save(name, seq, { late: true }, { runnerId: "one", fence: one.fence });
    expect(late.body.code).toBe("failed_precondition");
    expect((await save(name, seq, { n: 1 }, { runnerId: "two", fence: two.fence })).status).toBe(200);
  });

  test("whatever a runner loses on its way, each event is folded once into its partition", async () => {
    const { name, event } = fresh("exact");
    await ok("RegisterProjection", { name, events: [event, `${event}.other`], partitionKey: "$.data.id" });
    const chance = chanceOf("folds");
    const expected = new Map<string, number[]>();
    for (let at = 0; at < 120; at++) {
      const id = `p${chance.between(0, 5)}`;
      const { seq } = await emit(chance.happens(0.5) ? event : `${event}.other`, { id });
      if (chance.happens(0.2)) await emit("of.others");
      expected.set(id, [...(expected.get(id) ?? []), seq]);
    }
    const stateOf = async (partition: string) =>
      (await ok("GetProjection", { name, partition })).state?.seqs ?? [];
    // A poll that is held for long enough to look once may find events alone that are folded already.
    while ((await status(name)).lag !== "0") {
      const { events } = await poll(name, { batchSize: chance.between(1, 20) });
      const parts = Map.groupBy(events as { seq: string; metadata: { __partition: string } }[], (one) =>
        String(one.metadata.__partition),
      );
      for (const [partitionKey, list] of [...parts].sort(() => chance.number() - 0.5)) {
        // It dies between two saves, or folds only some of what it got.
        if (chance.happens(0.3)) break;
        const folded = list.slice(0, chance.between(1, list.length));
        const seqs = [...(await stateOf(partitionKey)), ...folded.map(({ seq }) => Number(seq))];
        expect((await save(name, seqs.at(-1), { seqs }, { partitionKey })).status).toBe(200);
      }
    }
    for (const [partition, seqs] of expected)
      expect([partition, await stateOf(partition)]).toEqual([partition, seqs]);
    expect((await status(name)).lag).toBe("0");
  }, 120_000);

  test("an external projection is acknowledged, and has no state", async () => {
    const { name, event } = fresh("external");
    await ok("RegisterProjection", { name, events: [event], mode: "external" });
    const first = await emit(event);
    const second = await emit(event);
    expect((await poll(name)).events).toHaveLength(2);
    expect((await save(name, first.seq, {})).body.code).toBe("failed_precondition");
    expect(await ok("AckProjectionEvents", { name, lastEventSeq: first.seq })).toEqual({ ok: true });
    expect((await poll(name)).events.map((one: { id: string }) => one.id)).toEqual([second.id]);
    await ok("AckProjectionEvents", { name, lastEventSeq: `${second.seq}` });
    expect((await poll(name)).events).toEqual([]);
  });

  test("a held poll answers as soon as there is an event", async () => {
    const { name, event } = fresh("held");
    await ok("RegisterProjection", { name, events: [event] });
    let answered = false;
    const held = poll(name).finally(() => {
      answered = true;
    });
    // The answer is held: a whole other call fits in.
    await status(name);
    const wasHeld = !answered;
    const { id } = await emit(event);
    expect(wasHeld).toBe(true);
    expect((await held).events.map((one: { id: string }) => one.id)).toEqual([id]);
  });

  test("other environments have projections of their own", async () => {
    const { name, event } = fresh("apart");
    const there = await environment(`apart-${engine}`);
    await ok("RegisterProjection", { name, events: [event] });
    await emit(event, { here: true });
    expect((await call("GetProjection", { name }, { key: there.key })).status).toBe(404);
    await ok("RegisterProjection", { name, events: [event] }, { key: there.key });
    expect((await ok("PollProjectionEvents", { name }, { key: there.key })).events).toEqual([]);
  });
});
