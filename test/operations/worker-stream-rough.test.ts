import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { type ClientHttp2Stream, connect } from "node:http2";
import { reportBytesMax } from "../../src/kit/limits.ts";
import { silentLog } from "../../src/kit/log.ts";
import { engines, makeHome, startTestServer, type TestServer } from "../support/server.ts";
import { fenceOf, openStreamWorker, transportOf } from "../support/stream-worker.ts";
import { until } from "../support/until.ts";

/** One envelope of the Connect protocol: flags, length, message. */
function envelope(message: string, flags = 0): Buffer {
  const body = Buffer.from(message);
  const head = Buffer.alloc(5);
  head.writeUInt8(flags, 0);
  head.writeUInt32BE(body.length, 1);
  return Buffer.concat([head, body]);
}

describe.each(engines)("worker streams, roughly handled, on %s", (engine) => {
  let server: TestServer;
  const logged: string[] = [];

  const functionOf = async (id: string) => {
    await server.rpc("SvcService", "RegisterFunction", { id, triggers: [{ event: id }] });
    return id;
  };
  const emit = async (event: string): Promise<string> =>
    (await server.rpc("SvcService", "Emit", { event, data: {} })).body.runIds[0];
  const workersNow = async (): Promise<string[]> =>
    (await server.api("/api/v1/workers")).body.workers.map(({ id }: { id: string }) => id);

  /** Bytes on an HTTP/2 stream, as they are. */
  const raw = () => {
    const session = connect(server.url);
    session.on("error", () => {});
    const stream: ClientHttp2Stream = session.request({
      ":method": "POST",
      ":path": "/svc.v1.WorkerService/Connect",
      "content-type": "application/connect+json",
      authorization: `Bearer ${server.adminKey}`,
    });
    const state = { text: "", ended: false };
    stream.on("data", (bytes) => {
      state.text += String(bytes);
    });
    stream.on("error", () => {});
    stream.on("close", () => {
      state.ended = true;
    });
    const end = () =>
      until(() => state.ended && (state.text || "nothing"), { about: "the end of the stream" });
    return { stream, state, end, close: () => session.destroy() };
  };
  const greeting = (id: string, functionId: string) =>
    envelope(JSON.stringify({ register: { workerId: id, functionIds: [functionId], maxConcurrentJobs: 2 } }));

  beforeAll(async () => {
    server = await startTestServer({
      engine,
      settings: { requestBodyBytesMax: 100_000 },
      log: { ...silentLog, warn: (event) => void logged.push(event) },
    });
  });
  afterAll(() => server.stop());

  test("bytes that are no message end the stream with a word", async () => {
    const id = await functionOf("rough.bytes");
    for (const bytes of [
      envelope("{nonsense"),
      envelope('{"heartbeat":{"jobs":7}}'),
      envelope('{"heartbeat":7}'),
    ]) {
      const one = raw();
      one.stream.write(greeting("rough-bytes", id));
      await until(() => one.state.text.includes('"registered"'), { about: "registered" });
      one.stream.write(bytes);
      expect(await one.end()).toContain('"invalid_argument"');
      one.close();
    }
    await until(async () => !(await workersNow()).includes("rough-bytes"), { about: "it to be gone" });
  });

  test("a message that is too large ends the stream; one that just fits does not", async () => {
    const id = await functionOf("rough.size");
    const one = raw();
    one.stream.write(greeting("rough-size", id));
    await until(() => one.state.text.includes('"registered"'), { about: "registered" });
    one.stream.write(
      envelope(
        JSON.stringify({
          jobAck: { jobId: "job_a_1", leaseToken: "x".repeat(reportBytesMax - 1_000), executionSeq: 1 },
        }),
      ),
    );
    await until(() => one.state.text.includes('"cancel"'), { about: "an answer" });
    one.stream.write(envelope(JSON.stringify({ jobAck: { jobId: "x".repeat(reportBytesMax) } })));
    expect(await one.end()).toContain('"resource_exhausted"');
    one.close();
  });

  test("a worker that does not read is sent away, and its jobs go to another", async () => {
    const id = await functionOf("rough.slow");
    const slow = raw();
    slow.stream.write(greeting("rough-slow", id));
    await until(() => slow.state.text.includes('"registered"'), { about: "registered" });
    slow.stream.pause();
    const jobs = Array.from({ length: 900 }, (_, number) => ({ jobId: `job_none_${number}` }));
    const beat = envelope(JSON.stringify({ heartbeat: { jobs } }));
    const runId = await emit(id);
    for (let sent = 0; sent < 600; sent++) slow.stream.write(beat);
    await until(async () => !(await workersNow()).includes("rough-slow"), {
      about: "the slow worker to be gone",
      deadlineMs: 120_000,
    });
    slow.close();
    expect(logged).toContain("worker.stream_slow");
    const other = openStreamWorker(transportOf("connect binary", server.running), {
      key: server.adminKey,
      id: "rough-other",
    });
    await other.register([id]);
    expect((await other.hear("job")).runId).toBe(runId);
    other.cut();
  }, 180_000);

  test("a run that is cancelled is told to its worker, and to no other", async () => {
    const id = await functionOf("rough.cancel");
    const one = openStreamWorker(transportOf("connect json", server.running), {
      key: server.adminKey,
      id: "rough-cancel",
    });
    await one.register([id]);
    const runId = await emit(id);
    const job = await one.hear("job");
    one.ack(job);
    one.beat(job);
    await one.hear("leaseRefresh");
    const cancelled = { runId, workerId: "rough-cancel", executionSeq: 1, reason: "not wanted" };
    const { workers } = server.running.domain;
    workers.cancelled({ ...cancelled, environmentId: "env_other" });
    workers.cancelled({ ...cancelled, environmentId: server.env, executionSeq: 2 });
    workers.cancelled({ ...cancelled, environmentId: server.env });
    expect(await one.hear("cancel")).toMatchObject({ jobId: job.jobId, reason: "not wanted" });
    expect(one.heard.filter(({ case: kind }) => kind === "cancel").length).toBe(1);
    await emit(id);
    expect((await one.hear("job")).runId).not.toBe(runId);
    one.cut();
  });

  test("a server that goes says so, takes the last reports, and ends the stream", async () => {
    const home = await makeHome(engine);
    const going = await startTestServer({ engine, home, settings: { drainMs: 15_000 } });
    const id = "rough.drain";
    await going.rpc("SvcService", "RegisterFunction", { id, triggers: [{ event: id }] });
    const one = openStreamWorker(transportOf("connect binary", going.running), {
      key: going.adminKey,
      id: "rough-drain",
    });
    await one.register([id], { maxConcurrentJobs: 2 });
    const runId = (await going.rpc("SvcService", "Emit", { event: id, data: {} })).body.runIds[0];
    const job = await one.hear("job");
    one.ack(job);
    const stopped = going.stop();
    expect(await one.hear("shutdown")).toMatchObject({ drainTimeoutMs: 15_000 });
    one.say({ case: "jobCompleted", value: { ...fenceOf(job), output: { last: 1 } } });
    expect((await one.ended)?.rawMessage).toBe("the server is shutting down");
    await stopped;
    const later = await startTestServer({ engine, home });
    const { body } = await later.rpc("SvcService", "GetRun", { id: runId });
    expect((body.run ?? body).status).toBe("RUN_STATUS_COMPLETED");
    await later.stop();
    await home.remove();
  }, 90_000);
});
