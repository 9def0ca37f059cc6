import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { isEvent, projectionCaller } from "../support/projections.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

describe.each(engines)("streams of projection runners on %s", (engine) => {
  let server: TestServer;
  let caller: ReturnType<typeof projectionCaller>;
  beforeAll(async () => {
    server = await startTestServer({ engine });
    caller = projectionCaller(server);
  }, 120_000);
  afterAll(() => server.stop());

  const open = (name: string, more: object = {}) =>
    caller.stream("StreamProjectionEvents", { name, acceptHeartbeats: true, ...more });

  test("events come as they happen, each once, and the cursor moves with the saves", async () => {
    const { name, event } = await caller.registered("live");
    const early = await caller.emit(event, { n: 1 });
    const stream = await open(name);
    const [first] = await stream.wait(1, isEvent);
    expect(stream.frames[0]).toMatchObject({ kind: "PROJECTION_EVENT_KIND_HEARTBEAT" });
    expect(first).toMatchObject({ id: early.id, name: event, data: { n: 1 }, seq: `${early.seq}` });
    expect(first.metadata).toEqual({ __partition: "__global__" });
    const late = await caller.emit(event, { n: 2 });
    await stream.wait(2, isEvent);
    expect((await caller.status(name)).lastEventSeq).toBe(`${early.seq - 1}`);
    expect((await caller.save(name, late.seq, { n: 2 })).status).toBe(200);
    expect((await caller.status(name)).lastEventSeq).toBe(`${late.seq}`);
    const third = await caller.emit(event, { n: 3 });
    await stream.wait(3, isEvent);
    expect((await caller.save(name, third.seq, { n: 3 })).status).toBe(200);
    stream.cut();
    // Everything was saved: the next stream begins behind it.
    const again = await until(
      async () => {
        const next = await open(name);
        return next.status === 200 ? next : false;
      },
      { about: "the next stream" },
    );
    const fourth = await caller.emit(event, { n: 4 });
    expect((await again.wait(1, isEvent)).map(({ id }) => id)).toEqual([fourth.id]);
    again.cut();
  });

  test("a runner that left events unsaved, or stands beside another, has to poll", async () => {
    const { name, event } = await caller.registered("dirty");
    const one = await caller.emit(event);
    const stream = await open(name);
    await stream.wait(1, isEvent);
    const beside = await open(name);
    expect([beside.status, beside.refusal]).toEqual([
      404,
      { code: "unimplemented", message: expect.any(String) },
    ]);
    // The same caller's poll is not told apart from the stream's runner.
    expect((await caller.poll(name)).events).toEqual([]);
    stream.cut();
    await until(async () => (await caller.poll(name)).events.length === 1, { about: "the poll" });
    const later = await open(name);
    expect(later.status).toBe(404);
    expect((await caller.save(name, one.seq, { folded: 1 })).status).toBe(200);
    const next = await caller.emit(event);
    expect(await caller.poll(name)).toMatchObject({ events: [{ id: next.id }], currentState: { folded: 1 } });
  });

  test("runners with names stand by, and go on where the other was", async () => {
    const { name, event } = await caller.registered("named");
    const first = await open(name, { runnerId: "first" });
    const second = await open(name, { runnerId: "second" });
    const one = await caller.emit(event);
    const [got] = await first.wait(1, isEvent);
    expect(second.frames.filter(isEvent)).toEqual([]);
    const saved = await caller.save(name, one.seq, { n: 1 }, { runnerId: "first", fence: got.fence });
    expect(saved.status).toBe(200);
    const two = await caller.emit(event);
    await first.wait(2, isEvent);
    first.cut();
    const [taken] = await second.wait(1, isEvent);
    expect([taken.id, Number(taken.fence)]).toEqual([two.id, Number(got.fence) + 1]);
    const late = await caller.save(name, two.seq, { n: 2 }, { runnerId: "first", fence: got.fence });
    expect(late.body.code).toBe("failed_precondition");
    second.cut();
  });

  test("an unknown projection and one partition are refused by status", async () => {
    const { name } = await caller.registered("refused");
    expect((await open("never_registered")).refusal).toMatchObject({ code: "not_found" });
    expect((await open(name, { partition: "a" })).refusal).toMatchObject({ code: "unimplemented" });
    const negative = await open(name, { batchSize: -1 });
    expect([negative.status, negative.refusal?.code]).toEqual([400, "invalid_argument"]);
  });

  test("a stream of a projection that is rebuilt ends, and its runner polls the replay", async () => {
    const { name, event } = await caller.registered("rebuilt");
    const one = await caller.emit(event);
    const stream = await open(name);
    await stream.wait(1, isEvent);
    expect((await caller.save(name, one.seq, { n: 1 })).status).toBe(200);
    await caller.ok("RebuildProjection", { name });
    await stream.over();
    expect(stream.end()).toEqual({});
    expect((await open(name)).status).toBe(404);
    // Its last save belongs to the fold before.
    expect((await caller.save(name, one.seq, { n: 1 })).body.code).toBe("aborted");
    const replay = await caller.poll(name);
    expect([replay.events.map(({ id }: { id: string }) => id), replay.currentState]).toEqual([
      [one.id],
      undefined,
    ]);
    // Some runners read the state again only after a failed save.
    expect((await caller.save(name, one.seq, { n: 1 })).body.code).toBe("aborted");
    await caller.poll(name);
    expect((await caller.save(name, one.seq, { n: 1 })).status).toBe(200);
    expect((await caller.status(name)).status).toBe("running");
  });

  test("a pause stops the events of an open stream, and a resume brings them", async () => {
    const { name, event } = await caller.registered("paused");
    const stream = await open(name);
    await stream.wait(1);
    await caller.ok("PauseProjection", { name });
    const one = await caller.emit(event);
    expect((await caller.poll(name)).events).toEqual([]);
    expect(stream.frames.filter(isEvent)).toEqual([]);
    await caller.ok("ResumeProjection", { name });
    expect((await stream.wait(1, isEvent))[0].id).toBe(one.id);
    stream.cut();
  });

  test("streams end with the server, after the saves of what they brought", async () => {
    const own = await startTestServer({ engine });
    try {
      const there = projectionCaller(own);
      await there.ok("RegisterProjection", { name: "last", events: ["last.*"] });
      const { seq } = await there.emit("last.one");
      const stream = await there.stream("StreamProjectionEvents", { name: "last", acceptHeartbeats: true });
      await stream.wait(1, isEvent);
      const saving = there.save("last", seq, { n: 1 });
      const stopped = own.stop();
      expect((await saving).status).toBe(200);
      await stream.over();
      await stopped;
    } catch (error) {
      await own.stop().catch(() => {});
      throw error;
    }
  });
});
