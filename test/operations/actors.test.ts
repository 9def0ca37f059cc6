import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import { nearest } from "../../src/domain/engine/dispatch/plan.ts";
import { LeaseState } from "../../src/gen/svc/v1/worker_pb.ts";
import { sql } from "../../src/kit/sql.ts";
import { freePort } from "../support/process.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { openStreamWorker, type Protocol, type StreamWorker, transportOf } from "../support/stream-worker.ts";
import { until } from "../support/until.ts";

describe.each(engines)("actors and their workers on %s", (engine) => {
  let server: TestServer;
  const open: StreamWorker[] = [];
  const acked = new Set<string>();
  let named = 0;

  const rpc = async (method: string, body: unknown) => (await server.rpc("SvcService", method, body)).body;
  const run = (id: string) => rpc("GetRun", { id });
  const emit = async (event: string, data: object): Promise<string> =>
    (await rpc("Emit", { event, data })).runIds[0];
  const fn = async (definition: object) => {
    const id = `f${++named}`;
    await rpc("RegisterFunction", { id, triggers: [{ event: id }], ...definition });
    return id;
  };
  /** What is not acked for five seconds goes to another worker. */
  const ackJobs = (streams: readonly StreamWorker[]) => {
    for (const one of streams)
      for (const sent of one.heard)
        if (sent.case === "job" && !acked.has(sent.value.jobId)) {
          acked.add(sent.value.jobId);
          one.ack(sent.value);
        }
  };
  const worker = (protocol: Protocol = "connect binary", id = `w${++named}`) => {
    const made = openStreamWorker(transportOf(protocol, server.running), { key: server.adminKey, id });
    open.push(made);
    return made;
  };

  beforeAll(async () => {
    server = await startTestServer({ engine, settings: { grpcPort: await freePort() } });
  });
  afterEach(async () => {
    for (const one of open.splice(0)) {
      one.cut();
      await one.ended;
    }
  });
  afterAll(() => server.stop());

  test("an actor's runs go to one worker while it has room", async () => {
    const id = await fn({ actorKey: "data.user" });
    const streams = [worker(), worker()];
    for (const one of streams) await one.register([id], { maxConcurrentJobs: 50 });
    const emitted = new Map<string, string>();
    for (let round = 0; round < 4; round++)
      for (const user of ["ann", "ben", "cid", "dee", "eve", "fay"]) {
        emitted.set(await emit(id, { user }), user);
        ackJobs(streams);
      }
    const jobs = () => {
      ackJobs(streams);
      return streams.flatMap((one, at) =>
        one.heard.flatMap((sent) => (sent.case === "job" ? [{ at, job: sent.value }] : [])),
      );
    };
    await until(() => jobs().length === 24, { about: "all jobs" });
    const workersOf = new Map<string, Set<number>>();
    for (const { at, job } of jobs()) {
      expect(job.actorId).toBe(emitted.get(job.runId)!);
      workersOf.set(job.actorId, (workersOf.get(job.actorId) ?? new Set()).add(at));
    }
    expect([...workersOf.values()].map((one) => one.size)).toEqual([1, 1, 1, 1, 1, 1]);
    expect(new Set([...workersOf.values()].flatMap((one) => [...one])).size).toBe(2);
    const { job } = jobs()[0]!;
    const got = await run(job.runId);
    expect((got.run ?? got).actorId).toBe(job.actorId);
  });

  test("so do those that waited in the queue, with their leases", async () => {
    const id = await fn({ actorKey: "user" });
    const ids = { left: `left${++named}`, right: `right${named}` };
    const actorsOf = (side: keyof typeof ids) =>
      Array.from({ length: 50 }, (_, number) => `actor-${number}`)
        .filter(
          (actor) =>
            nearest(
              actor,
              Object.values(ids).map((workerId) => ({ workerId })),
            )!.workerId === ids[side],
        )
        .slice(0, 2);
    // Held in the queue until both workers wait.
    const { store } = server.running.domain;
    const setStatus = (status: string) =>
      store.write((session) => session.run(sql`UPDATE functions SET status = ${status} WHERE id = ${id}`));
    for (let round = 0; round < 4; round++)
      for (const user of [...actorsOf("left"), ...actorsOf("right")]) await emit(id, { user });
    await setStatus("paused");
    const streams = [worker("connect binary", ids.left), worker("grpc", ids.right)];
    for (const one of streams) await one.register([id], { maxConcurrentJobs: 8 });
    await setStatus("active");
    await server.running.tick("workers.dispatch");
    const jobsOf = (one: StreamWorker) =>
      one.heard.flatMap((sent) => (sent.case === "job" ? [sent.value] : []));
    await until(
      () => {
        ackJobs(streams);
        return streams.flatMap(jobsOf).length === 16;
      },
      { about: "all jobs" },
    );
    for (const [at, side] of (["left", "right"] as const).entries())
      expect([...new Set(jobsOf(streams[at]!).map((job) => job.actorId))].sort()).toEqual(
        actorsOf(side).sort(),
      );
    for (const one of streams) {
      one.beat(...jobsOf(one));
      const { segments } = await one.hear("leaseRefresh");
      expect(segments.every(({ state }) => state === LeaseState.REFRESHED)).toBe(true);
    }
  });

  test("over REST a worker is told whose run it is, and takes it although another would be nearer", async () => {
    const id = await fn({ actorKey: "user" });
    await server.api("/api/v1/workers/lone/register", { body: { function_ids: [id] } });
    const runId = await emit(id, { user: "zoe" });
    const jobs = await until(
      async () => (await server.api("/api/v1/workers/lone/jobs?available=1")).body?.jobs,
      { about: "the job" },
    );
    expect(jobs[0]).toMatchObject({ run_id: runId, actor_id: "zoe" });
  });
});
