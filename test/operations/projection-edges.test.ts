import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { idsOf, isEvent, projectionCaller } from "../support/projections.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { openSocket } from "../support/sockets.ts";

describe.each(engines)("projections at their edges on %s", (engine) => {
  let server: TestServer;
  let caller: ReturnType<typeof projectionCaller>;
  beforeAll(async () => {
    server = await startTestServer({ engine, settings: { pollHoldMs: 0 } });
    caller = projectionCaller(server);
  }, 120_000);
  afterAll(() => server.stop());

  const fail = (name: string, { id, seq }: { id: string; seq: number }, more: object = {}) =>
    caller.ok("ReportProjectionError", { name, eventId: id, eventSeq: `${seq}`, message: "no", ...more });
  const byId = { partitionKey: "$.data.id" };

  test("a poll of one partition finds its events behind any number of others", async () => {
    const { name, event } = await caller.registered("part", byId);
    for (let at = 0; at < 12; at++) await caller.emit(event, { id: "other" });
    const mine = await caller.emit(event, { id: "mine" });
    expect(idsOf(await caller.poll(name, { partition: "mine", batchSize: 5 }))).toEqual([mine.id]);
  });

  test("a failure without a position is refused: a cursor from before the log would be the answer", async () => {
    const { name, event } = await caller.registered("nowhere");
    const { id } = await caller.emit(event);
    await caller.poll(name);
    const { body } = await caller.call("ReportProjectionError", { name, eventId: id, message: "no" });
    expect([body.code, body.message]).toEqual([
      "invalid_argument",
      expect.stringContaining("event_seq: must be"),
    ]);
  });

  test("a resumed external projection gets what failed again: its stream ends", async () => {
    const { name, event } = await caller.registered("outside", { mode: "external" });
    const stream = await caller.stream("StreamProjectionEvents", { name, acceptHeartbeats: true });
    const bad = await caller.emit(event);
    await stream.wait(1, isEvent);
    await fail(name, bad);
    await caller.ok("ResumeProjection", { name });
    await stream.over();
    const again = await caller.stream("StreamProjectionEvents", { name, acceptHeartbeats: true });
    expect((await again.wait(1, isEvent)).map(({ id }) => id)).toEqual([bad.id]);
    again.cut();
    await again.over();
  });

  test("a rebuild of a part repeats no effects from behind that part", async () => {
    const { name, event } = await caller.registered("effects", { mode: "external" });
    const events = [];
    for (let at = 0; at < 4; at++) events.push(await caller.emit(event));
    await caller.poll(name);
    await caller.ok("AckProjectionEvents", { name, lastEventSeq: `${events[3]!.seq}` });
    await caller.ok("RebuildProjection", { name, toEventId: events[1]!.id });
    expect(idsOf(await caller.poll(name))).toEqual(events.slice(0, 2).map(({ id }) => id));
    await caller.ok("AckProjectionEvents", { name, lastEventSeq: `${events[1]!.seq}` });
    expect(idsOf(await caller.poll(name))).toEqual([]);
    expect(await caller.status(name)).toMatchObject({ status: "running", lastEventSeq: `${events[3]!.seq}` });
  });

  test("a rebuild of one partition leaves those that have stopped where they are", async () => {
    const { name, event } = await caller.registered("neighbour", byId);
    await caller.emit(event, { id: "a" });
    const bad = await caller.emit(event, { id: "b" });
    const last = await caller.emit(event, { id: "a" });
    await caller.poll(name);
    await caller.save(name, last.seq, { n: 2 }, { partitionKey: "a" });
    await fail(name, bad, { partitionKey: "b" });
    await caller.ok("RebuildProjection", { name, partition: "a", fromEventId: last.id });
    expect(idsOf(await caller.poll(name))).toEqual([last.id]);
    // A runner whose memory may be stale is told so once.
    await caller.save(name, last.seq, { n: 1 }, { partitionKey: "a" });
    await caller.poll(name);
    await caller.save(name, last.seq, { n: 1 }, { partitionKey: "a" });
    expect(await caller.status(name)).toMatchObject({ status: "error", errorEventId: bad.id });
    await caller.ok("ResumeProjection", { name });
    expect(idsOf(await caller.poll(name))).toEqual([bad.id]);
  });

  test("a wait is not over before a resumed projection has folded what it waits for", async () => {
    const { name, event } = await caller.registered("again", byId);
    const bad = await caller.emit(event, { id: "a" });
    const { seq } = await caller.emit(event, { id: "b" });
    await caller.poll(name);
    await fail(name, bad, { partitionKey: "a" });
    await caller.save(name, seq, { n: 1 }, { partitionKey: "b" });
    await caller.ok("ResumeProjection", { name });
    const wait = { name, minSeq: `${bad.seq}`, timeout: "0s" };
    expect(await caller.ok("WaitProjectionCatchup", wait)).toMatchObject({ timedOut: true });
    await caller.poll(name);
    await caller.save(name, bad.seq, { n: 1 }, { partitionKey: "a" });
    expect(await caller.ok("WaitProjectionCatchup", wait)).toMatchObject({ caughtUp: true });
  });

  test("two events of a partition are passed over one after the other, and none comes back", async () => {
    const { name, event } = await caller.registered("skipped");
    const [one, bad, worse, last] = [
      await caller.emit(event),
      await caller.emit(event),
      await caller.emit(event),
      await caller.emit(event),
    ];
    expect(idsOf(await caller.poll(name))).toHaveLength(4);
    // Nothing was saved before the failure.
    await fail(name, bad);
    await caller.ok("ResumeProjection", { name, skipEventId: bad.id });
    expect(idsOf(await caller.poll(name))).toEqual([one.id]);
    await caller.save(name, one.seq, { n: 1 });
    expect(idsOf(await caller.poll(name))).toEqual([worse.id, last.id]);
    await fail(name, worse);
    await caller.ok("ResumeProjection", { name, skipEventId: worse.id });
    expect(idsOf(await caller.poll(name))).toEqual([last.id]);
    await caller.save(name, last.seq, { n: 2 });
    expect(await caller.status(name)).toMatchObject({ status: "running", lastEventSeq: `${last.seq}` });
  });

  test("a generation takes over when no partition of it is older than the one that is read", async () => {
    const { name, event } = await caller.registered("older", byId);
    const first = await caller.emit(event, { id: "b" });
    const second = await caller.emit(event, { id: "a" });
    const live = await caller.poll(name, { runnerId: "live" });
    const start = { name, strategy: "side_by_side", toEventId: first.id };
    await caller.ok("RebuildProjection", start);
    await caller.save(name, second.seq, { n: 1 }, { partitionKey: "a", runnerId: "live", fence: live.fence });
    const build = { runnerId: "builder", generation: "2" };
    const save = async (partitionKey: string) => {
      const { events, fence } = await caller.poll(name, { ...build, batchSize: 1 });
      await caller.save(name, Number(events[0].seq), { n: 1 }, { ...build, fence, partitionKey });
      return (await caller.status(name)).generation;
    };
    expect(await save("b")).toBe("1");
    expect((await caller.ok("GetProjection", { name, partition: "a" })).state).toEqual({ n: 1 });
    expect(await save("a")).toBe("2");
    expect((await caller.ok("GetProjection", { name, partition: "a" })).state).toEqual({ n: 1 });
    // Whoever folded before goes on at once: the builder's lease would keep it away for a minute.
    const third = await caller.emit(event, { id: "a" });
    expect(idsOf(await caller.poll(name, { runnerId: "live" }))).toEqual([third.id]);
  });

  test("a stream ends when its projection gets other events, which the runner may not read", async () => {
    const { name, event } = await caller.registered("redefined");
    const role = await server.api("/api/v1/roles", { body: { name: `reads-${engine}`, base: "developer" } });
    const made = await server.api("/api/v1/apikeys", { body: { name: "k", role_ids: [role.body.id] } });
    const policy = await server.api("/api/v1/policies", {
      body: {
        name: "no secrets",
        effect: "deny",
        actions: "events:*",
        resources: "irn:svc:*:*:event:*:secret.*",
      },
    });
    await server.api(`/api/v1/roles/${role.body.id}/policies`, { body: { policy_id: policy.body.id } });
    const open = { name, runnerId: "r", acceptHeartbeats: true };
    const stream = await caller.stream("StreamProjectionEvents", open, made.body.key);
    await stream.wait(1);
    await caller.ok("RegisterProjection", { name, events: [event, "secret.thing"] });
    await caller.emit("secret.thing");
    await stream.over();
    expect(stream.frames.filter(isEvent)).toEqual([]);
    const again = await caller.stream("StreamProjectionEvents", open, made.body.key);
    await again.over();
    expect(again.frames.filter(isEvent)).toEqual([]);
  });

  test("a policy that comes while a stream is open ends it", async () => {
    const { name, event } = await caller.registered("forbidden");
    const role = await server.api("/api/v1/roles", { body: { name: `late-${engine}`, base: "developer" } });
    const made = await server.api("/api/v1/apikeys", { body: { name: "l", role_ids: [role.body.id] } });
    const stream = await caller.stream(
      "StreamProjectionEvents",
      { name, acceptHeartbeats: true },
      made.body.key,
    );
    await caller.emit(event);
    await stream.wait(1, isEvent);
    const policy = await server.api("/api/v1/policies", {
      body: { name: "late", effect: "deny", actions: "events:*", resources: `irn:svc:*:*:event:*:${event}` },
    });
    await server.api(`/api/v1/roles/${role.body.id}/policies`, { body: { policy_id: policy.body.id } });
    await stream.over();
    expect(stream.end()?.error?.code).toBe("permission_denied");
  });

  test("a time that no protocol could carry back is refused", async () => {
    const { name, event } = await caller.registered("timeless");
    const { seq } = await caller.emit(event);
    await caller.poll(name);
    for (const lastEventTime of ["0000-01-01T00:00:00Z", "9999-12-31T23:59:59-01:00"]) {
      const { body } = await caller.save(name, seq, {}, { lastEventTime });
      expect([lastEventTime, body.code]).toEqual([lastEventTime, "invalid_argument"]);
    }
    expect((await caller.call("GetProjection", { name })).status).toBe(200);
  });

  test("partitions of any name have frames, and are found by a part of it", async () => {
    const { name, event } = await caller.registered("named", byId);
    const socket = await openSocket(server.url, { key: server.adminKey });
    await socket.subscribe(`system.projection.${name}.>`);
    const partitions = ["*", "a b", "%", "x>", "ü", "\u0001"];
    const seqs: { id: string; seq: number }[] = [];
    for (const id of partitions) seqs.push(await caller.emit(event, { id }));
    await caller.poll(name);
    const states = partitions.map((partitionKey, at) => ({
      ...{ partitionKey, state: { at }, lastEventSeq: `${seqs[at]!.seq}`, lastEventId: seqs[at]!.id },
    }));
    await caller.ok("SaveProjectionStates", { name, states });
    const frames = await socket.wait("event", partitions.length);
    expect(frames.map(({ topic }) => topic.split(".")[3]).sort()).toEqual(
      ["%2A", "a%20b", "%25", "x%3E", "ü", "%01"].sort(),
    );
    expect(new Set(frames.map(({ data }) => data.last_event_name))).toEqual(new Set([event]));
    const { body } = await server.api(`/api/v1/projections/${name}/partitions?q=%20`);
    expect(body.partitions).toEqual(["a b"]);
    socket.close();
  });
});
