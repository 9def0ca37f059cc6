import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { signalDataBytesMax, signalsKeptMax } from "../../src/domain/engine/runs/signals/limits.ts";
import { sql } from "../../src/kit/sql.ts";
import {
  type Client,
  createClient,
  createFunction,
  createWorker,
  testFunction,
  type Worker,
} from "../../src/sdk/index.ts";
import { canonical, probesOf } from "../attack/doors-values.ts";
import { pullWorker } from "../support/pull-worker.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { lookerKey } from "../support/thing-doors.ts";
import { until } from "../support/until.ts";

const silent = { debug() {}, info() {}, warn() {}, error() {} };
const patience = { timeoutMs: 20_000 };

const approves = createFunction({ id: "approves" }, async ({ step }) => {
  const answer = await step.waitForSignal<{ by: string }>("approve", { timeout: "1h" });
  const next = await step.waitForSignal("approve", { name: "again" });
  return [answer?.by, next];
});
const impatient = createFunction({ id: "impatient" }, async ({ step }) => {
  const none = await step.waitForSignal("late", { timeout: 30 });
  const thrown = await step
    .waitForSignal("late", { name: "strict", timeout: 30, onTimeout: "throw" })
    .catch((error: Error) => error.message);
  await step.waitForSignal("go");
  return [none, thrown, await step.waitForSignal("late", { name: "then" })];
});
const side = createFunction({ id: "side" }, ({ step }) =>
  step.parallel("all", {
    first: (own) => own.waitForSignal("turn"),
    second: (own) => own.waitForSignal("turn"),
    other: (own) => own.waitForSignal("else"),
  }),
);
const races = createFunction({ id: "races" }, async ({ step }) => {
  const got: unknown[] = [];
  for (let round = 0; round < 6; round++)
    got.push(await step.waitForSignal("race", { name: `race ${round}`, timeout: 5 }));
  while (got.filter((one) => one !== null).length < 6)
    got.push(await step.waitForSignal("race", { name: "rest" }));
  return got.filter((one) => one !== null);
});
/** A wait that lost a round goes on, and is asked again. */
const rounds = createFunction({ id: "rounds" }, async ({ step }) => {
  const got: unknown[] = [];
  const next = (name: string) =>
    step.waitForSignal(name, { name: `${name} ${got.length}` }).then((data) => ({ name, data }));
  const open = new Map(["left", "right"].map((name) => [name, next(name)]));
  while (got.length < 8) {
    const asleep = step.sleep(`asleep ${got.length}`, 20).then(() => undefined);
    const first = await Promise.race([...open.values(), asleep]);
    if (!first) continue;
    got.push(first.data);
    open.set(first.name, next(first.name));
  }
  return got;
});
const many = createFunction({ id: "many" }, async ({ step }) => {
  const got: unknown[] = [];
  for (let count = 0; count < 40; count++) got.push(await step.waitForSignal("one"));
  return got;
});
const undoes = createFunction({ id: "undoes" }, async ({ step }) => {
  await step.run("made", () => 1, {
    compensate: async () => {
      await undoing;
    },
  });
  await step.waitForSignal("never", { timeout: 20, onTimeout: "throw" });
});
let undoing: Promise<void> = Promise.resolve();

describe.each(engines)("signals on %s", (engine) => {
  let server: TestServer;
  let client: Client;
  let worker: Worker;
  beforeAll(async () => {
    server = await startTestServer({ engine });
    client = createClient({ url: server.url, apiKey: server.adminKey });
    const functions = [approves, impatient, side, races, rounds, many, undoes];
    worker = createWorker({ client, functions, handleSignals: false, log: silent });
    await worker.start();
  }, 60_000);
  afterAll(async () => {
    await worker.drain({ timeoutMs: 2_000 });
    await server.stop();
  });

  const start = async (id: string) => (await client.invokeFunction(id, {})).runId;
  const ended = (runId: string) => client.waitForRun(runId, patience);
  const waitingAt = (runId: string, name: string) =>
    until(
      async () => {
        const steps = await client.getRunSteps(runId);
        return steps.some((step) => step.name === name && step.status === "waiting");
      },
      { about: `${runId} to wait at ${name}` },
    );

  test("one that comes is taken, one that came before is kept for the next wait of its name", async () => {
    const runId = await start("approves");
    await waitingAt(runId, "approve");
    expect(await client.runs.signal(runId, "other", [1])).toBe("kept");
    expect(await client.runs.signal(runId, "approve", { by: "Ada" }, { idempotencyKey: "a" })).toBe("taken");
    await waitingAt(runId, "again");
    // The same signal once more is no second one.
    expect(await client.runs.signal(runId, "approve", { by: "Ada" }, { idempotencyKey: "a" })).toBe("taken");
    expect(await client.runs.signal(runId, "approve", "yes")).toBe("taken");
    expect(await ended(runId)).toMatchObject({ status: "completed", output: ["Ada", "yes"] });
    const { signals, kept, hasMore } = await client.runs.signals(runId);
    expect({ kept, hasMore }).toEqual({ kept: 1, hasMore: false });
    expect(signals).toMatchObject([
      { number: 3, name: "approve", state: "taken", stepId: `${runId}:again:0` },
      { number: 2, name: "approve", state: "taken", stepId: `${runId}:approve:0` },
      { number: 1, name: "other", state: "kept", data: [1] },
    ]);
    const rest = await server.api(`/api/v1/runs/${runId}/signals?limit=1&before=3`);
    expect(rest.body).toMatchObject({ signals: [{ number: 2, state: "taken" }], kept: 1, has_more: true });
    // A repeat is answered when the run is over; another signal is refused.
    expect(await client.runs.signal(runId, "approve", 1, { idempotencyKey: "a" })).toBe("taken");
    expect(client.runs.signal(runId, "approve", 1)).rejects.toMatchObject({ code: "failed_precondition" });
  }, 30_000);

  test("its data is whatever JSON every door takes, and comes back as it was", async () => {
    await server.rpc("SvcService", "RegisterFunction", { id: "unserved", triggers: [] });
    const runId = await start("unserved");
    const probes = probesOf(() => 0.5, false).filter(
      ({ textOnly, text }) => !textOnly && text.length <= signalDataBytesMax,
    );
    const answers = await Promise.all(
      probes.map(({ text }, at) =>
        fetch(`${server.url}/svc.v1.SvcService/SignalRun`, {
          method: "POST",
          headers: { authorization: `Bearer ${server.adminKey}`, "content-type": "application/json" },
          body: `{"runId":"${runId}","name":"n${at}","data":${text}}`,
        }),
      ),
    );
    const refused = probes.filter((_, at) => !answers[at]!.ok).map(({ name }) => name);
    expect(refused).toEqual(probes.filter(({ fits }) => !fits).map(({ name }) => name));
    const listed = new Map<string, { data?: unknown }>();
    for (let before = ""; ; ) {
      const { body } = await server.api(`/api/v1/runs/${runId}/signals?limit=200${before}`);
      for (const one of body.signals) listed.set(one.name, one);
      if (!body.has_more) break;
      before = `&before=${body.signals.at(-1).number}`;
    }
    for (const [at, { name, text, fits }] of probes.entries()) {
      const shown = listed.get(`n${at}`);
      expect([name, shown !== undefined]).toEqual([name, fits]);
      if (shown && "data" in shown)
        expect([name, canonical(shown.data)]).toEqual([name, canonical(JSON.parse(text))]);
    }
  }, 30_000);

  test("kept signals are taken in the order in which they came, exactly once, by all branches", async () => {
    const runId = await start("many");
    const numbers = Array.from({ length: 40 }, (_, at) => at);
    for (const number of numbers) await client.runs.signal(runId, "one", number);
    expect((await ended(runId)).output).toEqual(numbers);
    const branches = await start("side");
    await until(
      async () =>
        (await client.getRunSteps(branches)).filter(({ status }) => status === "waiting").length === 3,
      { about: "three waits" },
    );
    expect(await client.runs.signal(branches, "turn", 1)).toBe("taken");
    expect(await client.runs.signal(branches, "turn", 2)).toBe("taken");
    expect(await client.runs.signal(branches, "turn", 3)).toBe("kept");
    expect(await client.runs.signal(branches, "else", 0)).toBe("taken");
    expect((await ended(branches)).output).toEqual({ first: 1, second: 2, other: 0 });
    expect(await client.runs.signals(branches)).toMatchObject({
      kept: 1,
      signals: [{}, { state: "kept" }, {}, {}],
    });
  }, 60_000);

  test("a wait that is over gives null or throws; what comes later is kept, and none is lost to a race", async () => {
    const runId = await start("impatient");
    await waitingAt(runId, "go");
    expect(await client.runs.signal(runId, "late", "kept")).toBe("kept");
    expect(await client.runs.signal(runId, "go")).toBe("taken");
    const message = "step strict: timed out waiting for signal late";
    expect((await ended(runId)).output).toEqual([null, message, "kept"]);
    const raced = await Promise.all(
      Array.from({ length: 4 }, async () => {
        const id = await start("races");
        for (let number = 0; number < 6; number++) await client.runs.signal(id, "race", number);
        return ended(id);
      }),
    );
    for (const { output } of raced) expect(output).toEqual([0, 1, 2, 3, 4, 5]);
  }, 60_000);

  test("a wait that loses its race goes on and takes the next one: none is lost, none comes twice", async () => {
    const numbers = [1, 2, 3, 4, 5, 6, 7, 8];
    const nameOf = (number: number) => (number % 3 === 0 ? "left" : "right");
    const runId = await start("rounds");
    for (const number of numbers) await client.runs.signal(runId, nameOf(number), number);
    const { status, output } = await ended(runId);
    expect([status, (output as number[]).toSorted()]).toEqual(["completed", numbers]);
    for (const name of ["left", "right"]) {
      const own = (output as number[]).filter((number) => nameOf(number) === name);
      expect(own).toEqual(numbers.filter((number) => nameOf(number) === name));
    }
    expect(await client.runs.signals(runId)).toMatchObject({ kept: 0 });
    let told = testFunction(rounds);
    for (const number of numbers) told = told.signal(nameOf(number), number);
    expect(((await told.run()).output as number[]).toSorted()).toEqual(numbers);
  }, 60_000);

  test("a resume that runs a step again gives back the signal that it had taken", async () => {
    const runId = await start("approves");
    await waitingAt(runId, "approve");
    await client.runs.signal(runId, "approve", { by: "Ada" });
    await waitingAt(runId, "again");
    expect(await client.pauseRun(runId)).toBe("paused");
    await client.resumeRun(runId, { fromStep: "approve" });
    await waitingAt(runId, "again");
    expect(await client.runs.signals(runId)).toMatchObject({ kept: 0, signals: [{ state: "taken" }] });
    await client.runs.signal(runId, "approve", 2);
    expect((await ended(runId)).output).toEqual(["Ada", 2]);
  }, 30_000);

  test("a run that a person holds keeps them until it is resumed", async () => {
    const runId = await start("approves");
    await waitingAt(runId, "approve");
    expect(await client.pauseRun(runId)).toBe("paused");
    expect(await client.runs.signal(runId, "approve", { by: "Eve" })).toBe("kept");
    expect(await client.runs.signal(runId, "approve", 2)).toBe("kept");
    await server.running.tick("runs.states");
    expect(await client.runs.signals(runId)).toMatchObject({ kept: 2 });
    await client.resumeRun(runId);
    expect((await ended(runId)).output).toEqual(["Eve", 2]);
  }, 30_000);

  test("at most 1,000 are kept, of 64 KiB each; names and runs that are none are refused", async () => {
    const runId = await start("approves");
    await waitingAt(runId, "approve");
    await server.running.domain.store.write((session) =>
      session.run(sql`INSERT INTO run_signals (run_id, sequence, environment_id, name, data, sent_by, sent_at)
        WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < ${signalsKeptMax})
        SELECT ${runId}, n, ${server.env}, 'idle', 'null', 'x', 1 FROM n`),
    );
    const refused = client.runs.signal(runId, "approve", 1, { idempotencyKey: "full" });
    expect(refused).rejects.toMatchObject({ code: "resource_exhausted" });
    const signal = (body: object) => server.rpc("SvcService", "SignalRun", { runId, name: "n", ...body });
    for (const [body, field] of [
      [{ name: "" }, "name"],
      [{ name: "é".repeat(101) }, "name"],
      [{ name: "a\nb" }, "name"],
      [{ data: "x".repeat(64 * 1024) }, "data"],
      [{ idempotencyKey: "k".repeat(256) }, "idempotencyKey"],
    ] as const) {
      const { status, body: answer } = await signal(body);
      expect([status, JSON.stringify(answer)]).toEqual([400, expect.stringContaining(field)]);
    }
    expect((await signal({ runId: "run_none" })).status).toBe(404);
    await client.cancelRun(runId);
    const gone = await signal({});
    expect([gone.status, gone.body.message]).toEqual([400, "the run is cancelled and takes no signal"]);
  }, 30_000);

  test("a run that is being undone takes none", async () => {
    const { promise, resolve } = Promise.withResolvers<void>();
    undoing = promise;
    const runId = await start("undoes");
    await until(async () => (await client.getRun(runId)).phase === "compensating", { about: "the undoing" });
    expect(client.runs.signal(runId, "never")).rejects.toThrow("is being undone");
    resolve();
    expect((await ended(runId)).status).toBe("failed");
  }, 30_000);

  test("policies ask about the run; another tenant's is none; a viewer reads and does not send", async () => {
    const runId = await start("approves");
    await waitingAt(runId, "approve");
    const denied = await lookerKey(server, "no-signals", {
      actions: "runs:signal",
      resources: `run:*:${runId}`,
    });
    const send = (key: string) =>
      server.rpc("SvcService", "SignalRun", { runId, name: "approve", data: 1 }, { key });
    expect((await send(denied.key)).status).toBe(403);
    const { tenancy, keys } = server.running.domain;
    const { id: environmentId } = await tenancy.createEnvironment({
      ...{ orgId: "org_default", projectId: "proj_default", name: "elsewhere" },
    });
    const keyOf = (roleIds: string[], environment = environmentId) =>
      keys.create({ orgId: "org_default", environmentId: environment, name: "other", roleIds });
    const foreign = (await keyOf(["role_admin"])).key;
    const missing = await server.rpc(
      ...(["SvcService", "SignalRun", { runId: "run_none", name: "approve" }] as const),
      { key: foreign },
    );
    const other = await send(foreign);
    expect([other.status, other.body.code]).toEqual([missing.status, missing.body.code]);
    expect((await server.api(`/api/v1/runs/${runId}/signals`, { key: foreign })).status).toBe(404);
    const viewer = (await keyOf(["role_viewer"], server.env)).key;
    expect((await send(viewer)).status).toBe(403);
    const seen = await server.api(`/api/v1/runs/${runId}/signals`, { key: viewer });
    expect([seen.status, seen.body]).toEqual([200, { signals: [], kept: 0, has_more: false }]);
    await client.cancelRun(runId);
  }, 30_000);

  test("by hand: the yield is refused with its field, and its step is given the data", async () => {
    await server.rpc("SvcService", "RegisterFunction", { id: "hand" });
    const hand = pullWorker(server, "hand");
    await hand.register("hand");
    const runId = await start("hand");
    const [job] = await until(
      async () => {
        const jobs = await hand.poll();
        return jobs.length > 0 && jobs;
      },
      { about: "the job" },
    );
    for (const signal of [undefined, "", "a\u0007"]) {
      const { status, body } = await hand.leave(job!, "w", { type: "wait_for_signal", signal });
      expect([status, JSON.stringify(body)]).toEqual([400, expect.stringContaining("yield.signal")]);
    }
    await hand.leave(job!, "w", { type: "wait_for_signal", signal: "s", timeout: "1h" });
    const { steps } = (await server.rpc("SvcService", "GetRunSteps", { runId })).body;
    expect(steps).toMatchObject([{ waitEventName: "signal s" }]);
    expect(await client.runs.signal(runId, "s", { n: 1 })).toBe("taken");
    const again = await until(async () => (await hand.poll())[0], { about: "the run again" });
    expect(again.completed_steps).toMatchObject([{ status: "completed", output: { n: 1 } }]);
    await hand.complete(again);
  }, 30_000);
});

describe("signals in a test", () => {
  test("are taken in order, on the virtual clock, and a name that nothing waits for is a mistake", async () => {
    const told = testFunction(approves).signal("approve", { by: "Ada" });
    const { output, elapsedMs } = await told.signal("approve", 2, { after: "3d" }).run();
    expect([output, elapsedMs]).toEqual([["Ada", 2], 3 * 86_400_000]);
    const late = await testFunction(impatient).signal("go").signal("late", 1, { after: "1s" }).run();
    expect(late.output).toEqual([null, "step strict: timed out waiting for signal late", 1]);
    const both = testFunction(side).signal("turn", 1).signal("turn", 2).signal("turn", 3);
    expect((await both.signal("else", 0).run()).output).toEqual({ first: 1, second: 2, other: 0 });
    expect(testFunction(approves).signal("aprove").run()).rejects.toThrow('signal("aprove") matches nothing');
  });
});
