import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { nearest } from "../../src/domain/engine/dispatch/plan.ts";
import { sql } from "../../src/kit/sql.ts";
import {
  type Client,
  createClient,
  createFunction,
  createWorker,
  type FunctionOptions,
  type Worker,
} from "../../src/sdk/index.ts";
import { freePort } from "../support/process.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { openStreamWorker, protocols, transportOf } from "../support/stream-worker.ts";
import { until } from "../support/until.ts";

const silent = { debug() {}, info() {}, warn() {}, error() {} };
const rule = "deployment: must be 1 to 128 letters, digits and ._:/@+-, the first a letter or digit";
const longest = `a${"9".repeat(127)}`;
const bad = ["", " a", "a b", "-a", "_a", "é", "a\n", `${longest}9`];

describe.each(engines)("deployments of workers on %s", (engine) => {
  let server: TestServer;
  let client: Client;
  const workers: Worker[] = [];
  beforeAll(async () => {
    server = await startTestServer({ engine, settings: { pollHoldMs: 2_000, grpcPort: await freePort() } });
    client = createClient({ url: server.url, apiKey: server.adminKey });
  }, 60_000);
  afterAll(async () => {
    for (const worker of workers) worker.stop();
    await server.stop();
  });

  const path = (id: string, rest: string) => `/api/v1/workers/${id}${rest}`;
  const define = (id: string, more: object = {}) =>
    server.rpc("SvcService", "RegisterFunction", { id, triggers: [{ event: id }], ...more });
  const listed = async (id: string): Promise<Record<string, unknown> | undefined> =>
    (await server.api("/api/v1/workers")).body.workers.find((one: { id: string }) => one.id === id);
  const begin = async (event: string, data = {}) => (await client.emit(event, data)).runIds[0]!;
  const attemptsOf = async (runId: string) =>
    (await client.getRun(runId, { withAttempts: true })).attemptLog ?? [];

  function workerOf(
    { id, more = {} }: { id: string; more?: Partial<FunctionOptions> },
    handler: () => unknown,
    options: { deployment: string; transport?: "rest" | "stream"; workerId?: string },
  ): Worker {
    const worker = createWorker({
      ...{ client, handleSignals: false, log: silent, ...options },
      functions: [createFunction({ id, event: id, ...more }, async () => handler())],
    });
    workers.push(worker);
    return worker;
  }

  test("over REST: with one, without one as older workers, and again with another", async () => {
    await define("f");
    const register = (deployment?: unknown) =>
      server.api(path("w", "/register"), {
        body: { function_ids: ["f"], ...(deployment !== undefined && { deployment }) },
      });
    for (const one of [longest, "1", "registry.example:5000/app@sha256:ab+c_d-e"]) {
      expect((await register(one)).status).toBe(200);
      expect(await listed("w")).toMatchObject({ deployment: one });
    }
    for (const one of bad) {
      const { status, body } = await register(one);
      expect({ status, error: body.error }).toEqual({ status: 400, error: rule });
    }
    expect((await register(7)).body.error).toContain("deployment");
    expect(await listed("w")).toMatchObject({ deployment: "registry.example:5000/app@sha256:ab+c_d-e" });
    expect((await register()).status).toBe(200);
    expect(await listed("w")).not.toHaveProperty("deployment");
  });

  test.each(protocols)("over a stream as %s", async (protocol) => {
    await define("f");
    const say = (id: string, deployment: string) => {
      const stream = openStreamWorker(transportOf(protocol, server.running), { key: server.adminKey, id });
      stream.say({ case: "register", value: { workerId: id, functionIds: ["f"], deployment } });
      return stream;
    };
    for (const [deployment, shown] of [
      ["v1.2", "v1.2"],
      ["", undefined],
    ] as const) {
      const id = `streamed-${deployment}`;
      const stream = say(id, deployment);
      await stream.hear("registered");
      expect((await listed(id))!.deployment).toBe(shown);
      stream.cut();
      await stream.ended;
    }
    for (const deployment of bad.slice(1))
      expect((await say("refused", deployment).ended)!.rawMessage).toBe(rule);
    expect(await listed("refused")).toBeUndefined();
  });

  test.each(["rest", "stream"] as const)("each attempt says its own, over %s", async (transport) => {
    const of = { id: `moves-${transport}`, more: { retry: { maxAttempts: 2, initialDelayMs: 10 } } };
    const { promise: left, resolve } = Promise.withResolvers<boolean>();
    const old = workerOf(
      of,
      () => {
        // It takes no second attempt.
        resolve(old.drain());
        throw new Error("of the old build");
      },
      { deployment: "build-a", transport },
    );
    await old.start();
    const runId = await begin(of.id);
    expect(await left).toBe(true);
    expect((await attemptsOf(runId))[0]).toMatchObject({ deployment: "build-a", outcome: "failed" });
    const next = workerOf(of, () => "of the new build", { deployment: "build-b", transport });
    await next.start();
    expect((await client.waitForRun(runId)).output).toBe("of the new build");
    expect(await attemptsOf(runId)).toMatchObject([
      { number: 1, workerId: old.id, deployment: "build-a", error: { message: "of the old build" } },
      { number: 2, workerId: next.id, deployment: "build-b", outcome: "completed" },
    ]);
    const detail = await server.running.domain.store.one<{ detail: string }>(
      sql`SELECT detail FROM run_history WHERE run_id = ${runId} AND type = 'run.started' ORDER BY sequence LIMIT 1`,
    );
    expect(JSON.parse(detail!.detail)).toMatchObject({ worker_id: old.id, deployment: "build-a" });
    await next.drain();
  });

  test("whichever way a run is claimed: from the queue, within a limit, paced, or at its creation", async () => {
    const ways: Record<
      string,
      { concurrency?: { limit: number }; throttle?: { limit: number; periodMs: number } }
    > = {
      queued: {},
      limited: { concurrency: { limit: 1 } },
      paced: { throttle: { limit: 100, periodMs: 1_000 } },
    };
    for (const [id, more] of Object.entries(ways)) {
      await client.registerFunction({ id, triggers: [{ event: id }], ...more });
      const waiting = await begin(id);
      const worker = workerOf({ id, more }, () => 1, { deployment: "one/build" });
      await worker.start();
      await client.waitForRun(waiting);
      const atOnce = await begin(id);
      await client.waitForRun(atOnce);
      for (const runId of [waiting, atOnce])
        expect(await attemptsOf(runId)).toMatchObject([{ workerId: worker.id, deployment: "one/build" }]);
      await worker.drain();
    }
  });

  test("a worker without one, and a process whose name another has, leave none", async () => {
    await define("unsaid");
    const instanceOf = (name: string) => ({ lease_ms: 4_000, instance: name });
    const register = (id: string, more: object) =>
      server.api(path(id, "/register"), { body: { function_ids: ["unsaid"], ...more } });
    const take = async (id: string, more: object): Promise<string> =>
      (
        await until(
          async () => {
            const { body } = await server.api(path(id, "/exchange"), {
              body: { available: 1, hold_ms: 0, ...more },
            });
            return body.jobs.length > 0 && body.jobs;
          },
          { about: "a job" },
        )
      )[0].run_id;
    await register("older", {});
    await begin("unsaid");
    const [attempt] = await attemptsOf(await take("older", {}));
    expect(attempt).toMatchObject({ workerId: "older" });
    expect(attempt).not.toHaveProperty("deployment");

    await register("shared", { ...instanceOf("one"), deployment: "one" });
    await register("shared", { ...instanceOf("two"), deployment: "two" });
    await begin("unsaid");
    expect((await attemptsOf(await take("shared", instanceOf("one"))))[0]).not.toHaveProperty("deployment");
    await begin("unsaid");
    expect(await attemptsOf(await take("shared", instanceOf("two")))).toMatchObject([{ deployment: "two" }]);
  });

  test("a run that goes to its actor's worker says that one, and no other that it was claimed for", async () => {
    // The claim is made for the one that asked first.
    const names = ["right", "left"];
    const id = "of-actors";
    const both = names.map((workerId) => ({ workerId }));
    const actors = Array.from({ length: 50 }, (_, number) => `actor-${number}`);
    const near = actors.filter((actor) => nearest(actor, both)!.workerId === "left").slice(0, 4);
    await client.registerFunction({ id, triggers: [{ event: id }], actorKey: "user" });
    const { store } = server.running.domain;
    const setStatus = (status: string) =>
      store.write((session) => session.run(sql`UPDATE functions SET status = ${status} WHERE id = ${id}`));
    const runIds = await Promise.all(near.map((user) => begin(id, { user })));
    await setStatus("paused");
    const streams = names.map((name) => {
      const stream = openStreamWorker(transportOf("connect binary", server.running), {
        ...{ key: server.adminKey, id: name },
      });
      stream.say({
        case: "register",
        value: { workerId: name, functionIds: [id], maxConcurrentJobs: 4, deployment: `of-${name}` },
      });
      return stream;
    });
    for (const stream of streams) await stream.hear("registered");
    await setStatus("active");
    await server.running.tick("workers.dispatch");
    for (const _ of runIds) await streams[1]!.hear("job");
    for (const runId of runIds)
      expect(await attemptsOf(runId)).toMatchObject([{ workerId: "left", deployment: "of-left" }]);
    for (const stream of streams) {
      stream.cut();
      await stream.ended;
    }
  });
});
