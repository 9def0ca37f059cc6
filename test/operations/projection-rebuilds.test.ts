import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { sql } from "../../src/kit/sql.ts";
import { idsOf, projectionCaller } from "../support/projections.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";

describe.each(engines)("rebuilds of projections on %s", (engine) => {
  let server: TestServer;
  let caller: ReturnType<typeof projectionCaller>;
  beforeAll(async () => {
    server = await startTestServer({ engine });
    caller = projectionCaller(server);
  }, 120_000);
  afterAll(() => server.stop());

  const stateOf = async (name: string, more: object = {}) =>
    (await caller.ok("GetProjection", { name, ...more })).state;
  /** Folds what there is: a count, by polls of a runner with this name. */
  const fold = async (name: string, runnerId: string, more: { generation?: string } = {}) => {
    for (;;) {
      const { events, currentState, fence } = await caller.poll(name, { runnerId, batchSize: 2, ...more });
      if (events.length === 0) return;
      const count = (currentState?.count ?? 0) + events.length;
      const { seq } = events.at(-1);
      const saved = await caller.save(name, Number(seq), { count }, { runnerId, fence, ...more });
      expect(saved.status).toBe(200);
    }
  };

  test("a dry run tells the scope and changes nothing", async () => {
    const { name, event } = await caller.registered("dry");
    const { seq } = await caller.emit(event);
    await fold(name, "r");
    const { job } = await caller.ok("RebuildProjection", { name, dryRun: true });
    expect(job).toMatchObject({ projectionName: name, totalEvents: "1", dryRun: true, strategy: "in_place" });
    expect(await caller.status(name)).toMatchObject({ status: "running", lastEventSeq: `${seq}` });
    const never = await caller.call("GetRebuildJob", { name });
    expect(never.status).toBe(404);
  });

  test("in place: the states go, and come again with the replay", async () => {
    const { name, event } = await caller.registered("in_place");
    const events = [await caller.emit(event), await caller.emit(event), await caller.emit(event)];
    await fold(name, "r");
    expect(await stateOf(name)).toEqual({ count: 3 });
    const { job } = await caller.ok("RebuildProjection", { name });
    expect(job).toMatchObject({
      status: "running",
      totalEvents: "3",
      jobId: expect.stringMatching(/^rebuild_/),
    });
    expect(await stateOf(name)).toBeUndefined();
    expect(await caller.status(name)).toMatchObject({
      status: "rebuilding",
      rebuildTargetSeq: expect.any(String),
      rebuildStartedAt: expect.any(String),
    });
    const twice = await caller.call("RebuildProjection", { name });
    expect([twice.status, twice.body.code]).toEqual([400, "failed_precondition"]);
    const first = await caller.poll(name, { runnerId: "r", batchSize: 2 });
    expect(idsOf(first)).toEqual(events.slice(0, 2).map(({ id }) => id));
    await caller.save(name, events[1]!.seq, { count: 2 }, { runnerId: "r", fence: first.fence });
    const { job: half } = await caller.ok("GetRebuildJob", { name });
    expect(half).toMatchObject({ status: "running", eventsProcessed: "2" });
    expect(half.progress).toBeGreaterThan(0);
    expect(half.progress).toBeLessThan(1);
    await fold(name, "r");
    expect(await caller.status(name)).toMatchObject({ status: "running", lastEventSeq: `${events[2]!.seq}` });
    const { job: done } = await caller.ok("GetRebuildJob", { name });
    expect(done).toMatchObject({ status: "completed", eventsProcessed: "3", progress: 1 });
    expect(await stateOf(name)).toEqual({ count: 3 });
  });

  test("a rebuild without events is complete at once", async () => {
    const { name } = await caller.registered("empty");
    await caller.emit("of.others");
    const { job } = await caller.ok("RebuildProjection", { name });
    expect(job).toMatchObject({ status: "completed", progress: 1 });
    expect(await caller.status(name)).toMatchObject({ status: "running" });
  });

  test("a cancelled rebuild in place goes on as usual", async () => {
    const { name, event } = await caller.registered("cancelled");
    await caller.emit(event);
    await fold(name, "r");
    await caller.ok("RebuildProjection", { name });
    expect(await caller.ok("CancelRebuild", { name })).toEqual({ status: "running" });
    expect((await caller.ok("GetRebuildJob", { name })).job.status).toBe("cancelled");
    expect((await caller.call("CancelRebuild", { name })).body.code).toBe("failed_precondition");
    await fold(name, "r");
    expect(await stateOf(name)).toEqual({ count: 1 });
  });

  test("side by side: the read generation stays until the new one has reached it", async () => {
    const { name, event } = await caller.registered("beside");
    for (let at = 0; at < 5; at++) await caller.emit(event);
    await fold(name, "live");
    const before = await caller.status(name);
    const { job } = await caller.ok("RebuildProjection", { name, strategy: "side_by_side" });
    expect(job).toMatchObject({ strategy: "side_by_side", generation: "2" });
    expect(await caller.status(name)).toMatchObject({
      ...{ status: "running", lastEventSeq: before.lastEventSeq, generation: "1", buildingGeneration: "2" },
    });
    const told = await caller.poll(name, { runnerId: "live" });
    expect(told.buildingGeneration).toBe("2");
    const first = await caller.poll(name, { runnerId: "builder", generation: "2", batchSize: 2 });
    expect(first.events).toHaveLength(2);
    expect(await stateOf(name)).toEqual({ count: 5 });
    // Live events go on meanwhile.
    await caller.emit(event);
    await fold(name, "live");
    expect(await stateOf(name)).toEqual({ count: 6 });
    await fold(name, "builder", { generation: "2" });
    expect(await caller.status(name)).toMatchObject({ status: "running", generation: "2" });
    expect(await stateOf(name)).toEqual({ count: 6 });
    expect((await caller.ok("GetRebuildJob", { name })).job).toMatchObject({ status: "completed" });
    const old = await caller.call("PollProjectionEvents", { name, runnerId: "live", generation: "1" });
    expect(old.body.code).toBe("aborted");
    const { store } = server.running.domain;
    await server.running.tick("projections.sweep");
    const left = await store.all(
      sql`SELECT 1 FROM projection_states WHERE name = ${name} AND generation = 1`,
    );
    expect(left).toEqual([]);
  });

  test("a rebuild beside that is cancelled leaves no trace", async () => {
    const { name, event } = await caller.registered("beside_cancelled");
    await caller.emit(event);
    await fold(name, "live");
    await caller.ok("RebuildProjection", { name, strategy: "side_by_side" });
    expect(await caller.ok("CancelRebuild", { name })).toEqual({ status: "running" });
    expect(await stateOf(name)).toEqual({ count: 1 });
    expect((await caller.status(name)).buildingGeneration).toBeUndefined();
    // Its number is not used again.
    const { job } = await caller.ok("RebuildProjection", { name, strategy: "side_by_side" });
    expect(job.generation).toBe("3");
  });

  test("one partition is rebuilt while the others stay", async () => {
    const { name, event } = await caller.registered("partial", { partitionKey: "$.data.id" });
    const a1 = await caller.emit(event, { id: "a" });
    const b = await caller.emit(event, { id: "b" });
    const a2 = await caller.emit(event, { id: "a" });
    await caller.poll(name);
    await caller.save(name, a2.seq, { n: 2 }, { partitionKey: "a" });
    await caller.save(name, b.seq, { n: 1 }, { partitionKey: "b" });
    await caller.ok("RebuildProjection", { name, partition: "a" });
    expect(await stateOf(name, { partition: "a" })).toBeUndefined();
    expect(await stateOf(name, { partition: "b" })).toEqual({ n: 1 });
    expect(idsOf(await caller.poll(name))).toEqual([a1.id, a2.id]);
    expect((await caller.save(name, a2.seq, { n: 2 }, { partitionKey: "a" })).status).toBe(200);
    expect(await caller.status(name)).toMatchObject({ status: "running", lastEventSeq: `${a2.seq}` });
  });

  test("from one event to another, for an external projection, which then goes on where it was", async () => {
    const { name, event } = await caller.registered("between", { mode: "external" });
    const events = [
      await caller.emit(event),
      await caller.emit(event),
      await caller.emit(event),
      await caller.emit(event),
    ];
    await caller.poll(name);
    await caller.ok("AckProjectionEvents", { name, lastEventSeq: events[3]!.seq });
    await caller.ok("RebuildProjection", { name, fromEventId: events[1]!.id, toEventId: events[2]!.id });
    const replay = await caller.poll(name, { batchSize: 2 });
    expect(idsOf(replay)).toEqual([events[1]!.id, events[2]!.id]);
    await caller.ok("AckProjectionEvents", { name, lastEventSeq: events[2]!.seq });
    expect(await caller.status(name)).toMatchObject({ status: "running", lastEventSeq: `${events[3]!.seq}` });
    expect(idsOf(await caller.poll(name))).toEqual([]);
    const backwards = { name, fromEventId: events[2]!.id, toEventId: events[1]!.id };
    expect((await caller.call("RebuildProjection", backwards)).body.code).toBe("invalid_argument");
    const unknown = await caller.call("RebuildProjection", { name, fromEventId: "evt_none" });
    expect([unknown.status, unknown.body.code]).toEqual([404, "not_found"]);
  });

  test("an external rebuilder reports its progress, and ends the rebuild", async () => {
    const { name, event } = await caller.registered("reported", { mode: "external" });
    const { seq } = await caller.emit(event);
    await caller.ok("RebuildProjection", { name });
    await caller.ok("ReportRebuildProgress", { name, eventsProcessed: "1", totalEvents: "9" });
    expect((await caller.ok("GetRebuildJob", { name })).job).toMatchObject({
      eventsProcessed: "1",
      totalEvents: "9",
    });
    await caller.ok("ReportRebuildProgress", { name, eventsProcessed: "9", completed: true });
    expect(await caller.status(name)).toMatchObject({ status: "running", lastEventSeq: `${seq}` });
    expect((await caller.call("ReportRebuildProgress", { name })).body.code).toBe("failed_precondition");
  });

  test("a rebuild below what is kept is refused, and the floor is named", async () => {
    const own = await startTestServer({ engine });
    try {
      const there = projectionCaller(own);
      await there.ok("RegisterProjection", { name: "old", events: ["old.*"] });
      const first = await there.emit("old.one");
      const second = await there.emit("old.two");
      await own.running.domain.store.write((session) =>
        session.run(
          sql`UPDATE heads SET retention_floor = ${second.seq} WHERE environment_id = 'env_default'`,
        ),
      );
      // What it still needs is gone: it stops, and says so.
      expect((await there.poll("old")).events).toEqual([]);
      expect(await there.status("old")).toMatchObject({
        ...{ status: "error", errorMessage: expect.stringContaining(`position ${second.seq}`) },
      });
      const refused = await there.call("RebuildProjection", { name: "old" });
      expect(refused.body).toMatchObject({ code: "failed_precondition" });
      expect(refused.body.message).toContain(`${second.seq}`);
      await there.ok("RebuildProjection", { name: "old", fromEventId: second.id });
      expect(idsOf(await there.poll("old"))).toEqual([second.id]);
      expect(first.seq).toBeLessThan(second.seq);
    } finally {
      await own.stop();
    }
  });

  test("bad requests are refused", async () => {
    const { name } = await caller.registered("bad");
    expect((await caller.call("RebuildProjection", { name, strategy: "sideways" })).body.code).toBe(
      "invalid_argument",
    );
    const both = await caller.call("RebuildProjection", { name, strategy: "side_by_side", partition: "a" });
    expect(both.body.code).toBe("failed_precondition");
    await caller.ok("PauseProjection", { name });
    expect((await caller.call("RebuildProjection", { name })).body.code).toBe("failed_precondition");
  });
});
