import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { moveStranded, pinnedPlaces } from "../../src/domain/engine/runs/pins/pin-rows.ts";
import {
  type Client,
  createClient,
  createFunction,
  createWorker,
  type FunctionOptions,
  type Handler,
  type Worker,
} from "../../src/sdk/index.ts";
import { makeCli } from "../support/cli.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

const silent = { debug() {}, info() {}, warn() {}, error() {} };

describe.each(engines)("pinned runs on %s", (engine) => {
  let server: TestServer;
  let client: Client;
  const workers: Worker[] = [];
  beforeAll(async () => {
    server = await startTestServer({ engine, settings: { pollHoldMs: 1_000 } });
    client = createClient({ url: server.url, apiKey: server.adminKey });
  }, 60_000);
  afterAll(async () => {
    for (const worker of workers) worker.stop();
    await server.stop();
  });

  async function start(
    deployment: string | undefined,
    options: FunctionOptions & { id: string },
    handler: Handler,
  ): Promise<Worker> {
    const worker = createWorker({
      ...{ client, handleSignals: false, log: silent, checkpoint: 0 },
      ...(deployment !== undefined && { deployment }),
      functions: [createFunction({ event: options.id, pin: true, ...options }, handler as never)],
    });
    workers.push(worker);
    await worker.start();
    return worker;
  }
  const begin = async (event: string, data = {}) => (await client.emit(event, data)).runIds[0]!;
  const look = () => server.running.tick("runs.pins");
  const wake = () => server.running.tick("runs.wake");
  const reaches = (runId: string, isIt: (run: Awaited<ReturnType<Client["getRun"]>>) => boolean) =>
    until(
      async () => {
        await look();
        const run = await client.getRun(runId, { withAttempts: true });
        return isIt(run) && run;
      },
      { about: `${runId} to get there` },
    );
  const isGone = ({ pauseReason }: { pauseReason?: string }) => pauseReason === "deployment_gone";
  const deployments = async () => (await server.api("/api/v1/deployments")).body.deployments;
  const deployment = async (name: string) =>
    (await deployments()).find((one: { name: string }) => one.name === name);

  /** Two parts, told apart by the deployment that runs them, with a signal between them. */
  const twoParts =
    (name: string): Handler =>
    async ({ step }) => {
      const first = await step.run("first", () => name);
      await step.waitForSignal("go");
      return [first, await step.run("second", () => name)];
    };
  const waits = (runId: string) => reaches(runId, ({ pauseReason }) => pauseReason === "wait_event");

  test("a run stays with its deployment while another is there, and new runs may begin at either", async () => {
    const id = "stays";
    const old = await start("v1", { id }, twoParts("v1"));
    const runId = await begin(id);
    expect(await waits(runId)).toMatchObject({ pinnedTo: "v1" });
    const next = await start("v2", { id }, twoParts("v2"));
    const others = await Promise.all(Array.from({ length: 8 }, () => begin(id)));
    for (const one of others) await waits(one);
    for (const one of [runId, ...others]) await client.runs.signal(one, "go");
    expect((await client.waitForRun(runId)).output).toEqual(["v1", "v1"]);
    for (const one of others) {
      const [first, second] = (await client.waitForRun(one)).output as string[];
      expect(second).toBe(first!);
    }
    expect((await client.getRun(runId)).pinnedTo).toBeUndefined();
    await Promise.all([old.drain(), next.drain()]);
  });

  test("once its last worker is gone it is held, and moves to the newest deployment after its time", async () => {
    const id = "moves";
    const options = { id, pinGraceMs: 300 };
    const old = await start("m1", options, twoParts("m1"));
    const runId = await begin(id);
    await waits(runId);
    const next = await start("m2", options, twoParts("m2"));
    await old.drain();
    await client.runs.signal(runId, "go");
    const held = await reaches(runId, isGone);
    expect(held).toMatchObject({ status: "paused", pinnedTo: "m1" });
    expect(Date.parse(held.movesAt!)).toBeGreaterThan(0);
    expect(await deployment("m1")).toMatchObject({ workers: 0, runs: 1, held: 1, safe_to_stop: false });
    const listed = await client.listRuns({ functionId: id, statuses: ["paused"] });
    expect(listed.runs).toMatchObject([{ id: runId, pauseReason: "deployment_gone" }]);
    await until(
      async () => {
        await wake();
        return (await client.getRun(runId)).status === "completed";
      },
      { about: "the moved run" },
    );
    expect((await client.getRun(runId)).output).toEqual(["m1", "m2"]);
    expect(await deployment("m1")).toBeUndefined();
    expect(await deployment("m2")).toMatchObject({ workers: 1, runs: 0, safe_to_stop: true });
    await next.drain();
  });

  test("a worker of its deployment that comes back has it at once", async () => {
    const id = "comes-back";
    const old = await start("c1", { id }, twoParts("c1"));
    const runId = await begin(id);
    await waits(runId);
    await old.drain();
    await client.runs.signal(runId, "go");
    await reaches(runId, isGone);
    const again = await start("c1", { id }, twoParts("c1 again"));
    const run = await reaches(runId, ({ status }) => status === "completed");
    expect(run.output).toEqual(["c1", "c1 again"]);
    await again.drain();
  });

  test("a worker of its deployment that is back when its time is over has it, whichever is newer", async () => {
    const id = "back-late";
    const options = { id, pinGraceMs: 60_000 };
    const old = await start("b1", options, twoParts("b1"));
    const runId = await begin(id);
    await waits(runId);
    await old.drain();
    await client.runs.signal(runId, "go");
    await reaches(runId, isGone);
    const again = await start("b1", options, twoParts("b1 again"));
    const next = await start("b2", options, twoParts("b2"));
    await server.running.domain.store.write((session) =>
      moveStranded(session, [runId], { now: Date.now(), since: 0 }),
    );
    const run = await reaches(runId, ({ status }) => status === "completed");
    expect(run.output).toEqual(["b1", "b1 again"]);
    await Promise.all([again.drain(), next.drain()]);
  });

  test("by choice it stays until a person moves it, and a resume says how", async () => {
    const id = "holds";
    const options = { id, pinGone: "hold" as const, pinGraceMs: 1 };
    const old = await start("h1", options, twoParts("h1"));
    const runId = await begin(id);
    await waits(runId);
    const next = await start("h2", options, twoParts("h2"));
    await old.drain();
    await client.runs.signal(runId, "go");
    const held = await reaches(runId, isGone);
    expect(held.movesAt).toBeUndefined();
    await wake();
    await look();
    expect(isGone(await client.getRun(runId))).toBe(true);
    const cli = makeCli({ SVC_SERVER_URL: server.url, SVC_API_KEY: server.adminKey });
    const why = (await cli.run(["why", runId])).out;
    expect(why).toContain(
      "it is pinned to deployment h1, of which no worker is connected: it waits until one comes, or it is moved",
    );
    expect(why).toContain(`svc run move ${runId}`);
    expect((await cli.run(["deployments"])).out).toMatch(/^h1 +0 +1 +1 +false$/m);
    cli.remove();
    const told = (await server.rpc("SvcService", "ListDeployments", {})).body.deployments;
    expect(told.find(({ name }: { name: string }) => name === "h1")).toEqual({
      ...{ name: "h1", runs: "1", held: "1" },
    });
    const resumed = await client.resumeRun(runId).catch((error) => error);
    expect(resumed.message).toContain("MoveRun (svc run move)");
    const nowhere = await client.runs.move(runId, { deployment: "h9" }).catch((error) => error);
    expect(nowhere.message).toBe("deployment: no connected worker of h9 serves the function of the run");
    expect(await client.runs.move(runId)).toMatchObject({ pinnedTo: "h2" });
    expect((await client.waitForRun(runId)).output).toEqual(["h1", "h2"]);
    const late = await client.runs.move(runId).catch((error) => error);
    expect(late.message).toBe("the run is over: it cannot be moved");
    expect((await client.runs.move("run_01kf3m8q4v7x2n9t5c6b1d0e8g").catch((error) => error)).status).toBe(
      404,
    );
    await next.drain();
  });

  test("compensations and onFailure follow the pin, and wait for it", async () => {
    const id = "undone";
    const told: string[] = [];
    const handlerOf =
      (name: string): Handler =>
      async ({ step }) => {
        await step.run("book", () => name, { compensate: () => void told.push(`${name} undoes`) });
        await step.waitForSignal("go");
        throw Object.assign(new Error("for good"), { retryable: false });
      };
    const optionsOf = (name: string) => ({
      ...{ id, retry: { maxAttempts: 1 } },
      onFailure: () => void told.push(`${name} tells`),
    });
    const old = await start("u1", optionsOf("u1"), handlerOf("u1"));
    const next = await start("u2", optionsOf("u2"), handlerOf("u2"));
    const runs = await Promise.all(Array.from({ length: 6 }, () => begin(id)));
    for (const runId of runs) await waits(runId);
    const pins = new Map<string, string>();
    for (const runId of runs) pins.set(runId, (await client.getRun(runId)).pinnedTo!);
    for (const runId of runs) await client.runs.signal(runId, "go");
    for (const runId of runs) await reaches(runId, ({ status }) => status === "failed");
    for (const name of ["u1", "u2"]) {
      const own = [...pins.values()].filter((one) => one === name).length;
      expect(told.filter((one) => one === `${name} undoes`)).toHaveLength(own);
      expect(told.filter((one) => one === `${name} tells`)).toHaveLength(own);
    }
    await Promise.all([old.drain(), next.drain()]);
  });

  test("a later attempt follows as well, and a worker that says no deployment takes none of the others'", async () => {
    const id = "again";
    const flaky =
      (name: string): Handler =>
      async ({ run, step }) => {
        await step.run("first", () => name);
        if (run.attempt === 1) throw new Error("once");
        return name;
      };
    const options = { id, retry: { maxAttempts: 2, delay: 50 } };
    const named = await start("a1", options, flaky("a1"));
    const runs = await Promise.all(Array.from({ length: 5 }, () => begin(id)));
    const path = "/api/v1/workers/unsaid";
    await server.api(`${path}/register`, { body: { function_ids: [id] } });
    for (const runId of runs) {
      const { body } = await server.api(`${path}/exchange`, { body: { available: 5, hold_ms: 0 } });
      for (const job of body?.jobs ?? []) expect(runs).not.toContain(job.run_id);
      expect((await reaches(runId, ({ status }) => status === "completed")).output).toBe("a1");
    }
    await named.drain();
  });

  test("with a limit, a key, a priority and a throttle, and what began before the function was pinned", async () => {
    const id = "limited";
    const options = {
      ...{ id, concurrency: { limit: 2, key: "of" }, priority: 5 },
      throttle: { limit: 1_000, period: "1s", burst: 1_000, key: "of" },
    } as const;
    const unpinned = await start("l1", { ...options, pin: false }, twoParts("l1"));
    const before = await begin(id, { of: "a" });
    await waits(before);
    expect((await client.getRun(before)).pinnedTo).toBeUndefined();
    const pinned = await start("l2", options, twoParts("l2"));
    const runs = await Promise.all(["a", "a", "b", "c"].map((of) => begin(id, { of })));
    for (const runId of runs) expect((await waits(runId)).pinnedTo).toMatch(/^l[12]$/);
    for (const runId of [before, ...runs]) await client.runs.signal(runId, "go");
    for (const runId of runs) {
      const [first, second] = (await client.waitForRun(runId)).output as string[];
      expect(second).toBe(first!);
    }
    expect((await client.waitForRun(before)).status).toBe("completed");
    await Promise.all([unpinned.drain(), pinned.drain()]);
  });

  test("a function that is pinned no more frees its runs", async () => {
    const id = "freed";
    const old = await start("f1", { id }, twoParts("f1"));
    const runId = await begin(id);
    await waits(runId);
    await old.drain();
    await client.runs.signal(runId, "go");
    await reaches(runId, isGone);
    const next = await start("f2", { id, pin: false }, twoParts("f2"));
    expect((await reaches(runId, ({ status }) => status === "completed")).output).toEqual(["f1", "f2"]);
    await next.drain();
  });

  test("a look goes on behind any place, so that many places of one tenant hide none of another", async () => {
    const ids = ["places-a", "places-b"];
    for (const id of ids) {
      for (const name of ["v1", "v2"]) {
        const worker = await start(name, { id }, twoParts(name));
        await waits(await begin(id));
        await worker.drain();
      }
    }
    const { store } = server.running.domain;
    const all = await pinnedPlaces(store);
    expect(ids.flatMap((id) => all.filter(({ functionId }) => functionId === id))).toMatchObject(
      ids.flatMap((functionId) => [
        { functionId, deployment: "v1", state: "waiting" },
        { functionId, deployment: "v2", state: "waiting" },
      ]),
    );
    for (const [at, after] of all.entries())
      expect(await pinnedPlaces(store, { after })).toEqual(all.slice(at + 1));
  });

  test("what is refused names its field, and a pin is no part of the definition's hash", async () => {
    const register = async (more: object) => {
      const { body } = await server.rpc("SvcService", "RegisterFunction", { id: "r", ...more });
      return body;
    };
    const push = { endpointUrl: "https://example.com/svc", preferredMode: "EXECUTION_MODE_PUSH" };
    expect((await register({ ...push, pin: true })).message).toBe("pin: needs a function in pull mode");
    expect((await register({ pinGraceMs: 5 })).message).toBe("pinGraceMs: needs pin");
    expect((await register({ pinGone: "hold" })).message).toBe("pinGone: needs pin");
    expect((await register({ pin: true, pinGone: "x" })).message).toBe("pinGone: must be move or hold");
    expect((await register({ pin: true, pinGraceMs: 2 ** 31 - 1 })).message).toContain("pinGraceMs: ");
    const plain = await register({});
    const pinned = await register({ pin: true });
    expect(pinned.function).toMatchObject({ pin: true, pinGraceMs: 600_000, pinGone: "move" });
    expect(pinned.definitionHash).toBe(plain.definitionHash);
  });
});
