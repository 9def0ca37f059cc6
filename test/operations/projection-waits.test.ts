import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { projectionCaller } from "../support/projections.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";

describe.each(engines)("waits for projections on %s", (engine) => {
  let server: TestServer;
  let caller: ReturnType<typeof projectionCaller>;
  beforeAll(async () => {
    server = await startTestServer({ engine });
    caller = projectionCaller(server);
  }, 120_000);
  afterAll(() => server.stop());

  const wait = (name: string, minSeq: number, more: object = {}) =>
    caller.call("WaitProjectionCatchup", { name, minSeq: `${minSeq}`, timeout: "10s", ...more });

  test("a wait ends with the save that it waits for", async () => {
    const { name, event } = await caller.registered("caught");
    const { seq } = await caller.emit(event);
    await caller.poll(name);
    const waiting = wait(name, seq);
    expect((await caller.save(name, seq, { n: 1 })).status).toBe(200);
    expect((await waiting).body).toEqual({
      ...{ caughtUp: true, timedOut: false, currentSeq: `${seq}`, targetSeq: `${seq}` },
      ...{ behindByEvents: "0", mode: "managed" },
    });
    expect((await wait(name, 0)).body).toMatchObject({ caughtUp: true });
  });

  test("a wait that runs out says how far the projection is", async () => {
    const { name, event } = await caller.registered("late");
    await caller.emit(event);
    const { seq } = await caller.emit(event);
    const { body } = await wait(name, seq, { timeout: "0.05s" });
    expect(body).toMatchObject({ timedOut: true, targetSeq: `${seq}`, behindByEvents: "2" });
    expect(body.caughtUp).toBe(false);
  });

  test("events that are none of the projection's are passed over, also while no runner is there", async () => {
    const { name, event } = await caller.registered("passed");
    const { seq } = await caller.emit("nobody.reads.this");
    expect((await wait(name, seq)).body).toMatchObject({ caughtUp: true });
    await caller.emit(event);
    const waiting = wait(name, seq + 1, { timeout: "0.05s" });
    await server.running.tick("projections.waits");
    expect((await waiting).body).toMatchObject({ timedOut: true });
  });

  test("an event is waited for by its id", async () => {
    const { name, event } = await caller.registered("by_event");
    const { id, seq } = await caller.emit(event);
    await caller.poll(name);
    const waiting = caller.call("WaitForEvent", { eventId: id, projection: name, timeout: "10s" });
    await caller.save(name, seq, {});
    expect((await waiting).body).toMatchObject({ caughtUp: true, targetSeq: `${seq}` });
    const missing = await caller.call("WaitForEvent", { eventId: "evt_nothing", projection: name });
    expect([missing.status, missing.body.code]).toEqual([404, "not_found"]);
    const unknown = await caller.call("WaitForEvent", { eventId: id, projection: "nothing" });
    expect(unknown.body.message).toContain("projection not found");
  });

  test("a partition is waited for by its own row", async () => {
    const { name, event } = await caller.registered("partition", { partitionKey: "$.data.id" });
    const a = await caller.emit(event, { id: "a" });
    const b = await caller.emit(event, { id: "b" });
    await caller.poll(name);
    await caller.save(name, b.seq, {}, { partitionKey: "b" });
    expect((await wait(name, b.seq, { partition: "b" })).body).toMatchObject({ caughtUp: true });
    expect((await wait(name, a.seq, { partition: "a", timeout: "0.05s" })).body).toMatchObject({
      timedOut: true,
    });
    const external = await caller.registered("no_partition", { mode: "external" });
    const refused = await wait(external.name, 1, { partition: "a" });
    expect([refused.status, refused.body.code]).toEqual([400, "failed_precondition"]);
  });

  test("several are waited for at once, each with an answer of its own", async () => {
    const one = await caller.registered("batch");
    const other = await caller.registered("batch");
    const { seq } = await caller.emit(one.event);
    await caller.poll(one.name);
    await caller.save(one.name, seq, {});
    const { results } = await caller.ok("WaitProjectionCatchupBatch", {
      items: [
        { name: one.name, minSeq: `${seq}` },
        { name: "nothing", minSeq: "1" },
        { name: other.name, minSeq: `${seq + 1_000}` },
      ],
      timeout: "0.05s",
    });
    expect(results).toEqual([
      { result: expect.objectContaining({ caughtUp: true }) },
      { error: expect.stringContaining("projection not found") },
      { result: expect.objectContaining({ timedOut: true }) },
    ]);
    const many = Array.from({ length: 17 }, () => ({ name: one.name, minSeq: "0" }));
    expect((await caller.call("WaitProjectionCatchupBatch", { items: many })).body.code).toBe(
      "invalid_argument",
    );
  });

  test("a streamed wait tells each move, and ends with one last frame", async () => {
    const { name, event } = await caller.registered("streamed");
    const first = await caller.emit(event);
    const second = await caller.emit(event);
    await caller.poll(name);
    const stream = await caller.stream("WaitProjectionCatchupStream", {
      ...{ name, minSeq: `${second.seq}`, timeout: "10s" },
    });
    await stream.wait(1);
    await caller.save(name, first.seq, {});
    await stream.wait(2);
    await caller.save(name, second.seq, {});
    await stream.over();
    expect(stream.frames.map(({ kind }) => kind)).toEqual([
      "WAIT_STREAM_FRAME_KIND_PROGRESS",
      "WAIT_STREAM_FRAME_KIND_PROGRESS",
      "WAIT_STREAM_FRAME_KIND_DONE",
    ]);
    expect(stream.frames.at(-1)).toMatchObject({ caughtUp: true, currentSeq: `${second.seq}` });
    const stopped = await caller.stream("WaitProjectionCatchupStream", {
      ...{ name, minSeq: `${second.seq + 100}`, timeout: "10s" },
    });
    await stopped.wait(1);
    await caller.ok("PauseProjection", { name });
    await stopped.over();
    expect(stopped.frames.at(-1)).toMatchObject({
      kind: "WAIT_STREAM_FRAME_KIND_DONE",
      error: expect.stringContaining("paused"),
    });
  });

  test("a projection that is paused or being rebuilt in place is not waited for", async () => {
    const { name, event } = await caller.registered("stopped");
    const { seq } = await caller.emit(event);
    const waiting = wait(name, seq);
    await caller.ok("PauseProjection", { name });
    for (const { status, body } of [await waiting, await wait(name, seq)])
      expect([status, body.code, body.message]).toEqual([
        400,
        "failed_precondition",
        expect.stringContaining("paused"),
      ]);
    await caller.ok("ResumeProjection", { name });
    await caller.ok("RebuildProjection", { name });
    expect((await wait(name, seq)).body).toMatchObject({ code: "failed_precondition" });
  });

  test("times beyond their limits are refused", async () => {
    const { name } = await caller.registered("limits");
    for (const timeout of ["60.5s", "-1s"])
      expect((await wait(name, 1, { timeout })).body.code).toBe("invalid_argument");
    const stream = await caller.stream("WaitProjectionCatchupStream", { name, minSeq: "1", timeout: "301s" });
    await stream.over();
    expect(stream.end()?.error?.code).toBe("invalid_argument");
    expect((await wait(name, -1)).status).toBe(400);
  });

  test("many callers wait for one save", async () => {
    const { name, event } = await caller.registered("many");
    const { seq } = await caller.emit(event);
    await caller.poll(name);
    const waiting = Array.from({ length: 100 }, () => wait(name, seq));
    await caller.save(name, seq, {});
    const answers = await Promise.all(waiting);
    expect(answers.every(({ body }) => body.caughtUp === true)).toBe(true);
  });
});
