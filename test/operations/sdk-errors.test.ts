import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import {
  type Client,
  createClient,
  createFunction,
  createWorker,
  NonRetryableError,
  type Run,
  type SvcFunction,
  WaitTimeoutError,
  type Worker,
} from "../../src/sdk/index.ts";
import { testFunction } from "../../src/sdk/testing/testing.ts";
import { type Assignment, pullWorker } from "../support/pull-worker.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";

const silent = { debug() {}, info() {}, warn() {}, error() {} };
const patience = { timeoutMs: 20_000 };
const retry = { maxAttempts: 3, initialDelayMs: 1 };

class CardDeclined extends NonRetryableError {
  constructor() {
    super("declined", { code: "CARD" });
    this.name = "CardDeclined";
  }
}

class TooLate extends WaitTimeoutError {
  constructor() {
    super("nobody answered");
    this.name = new.target.name;
  }
}

/** As another copy of the package throws it. */
const ofAnotherCopy = () => Object.assign(new Error("no"), { [Symbol.for("svc.final")]: true });

const withCause = () =>
  new Error("outer", {
    cause: Object.assign(new Error("socket closed"), { code: "ECONNRESET", name: "SocketError" }),
  });

/** What is thrown, how often the handler is entered, and the error of its run. */
const cases: [name: string, thrown: () => unknown, attempts: number, error: object][] = [
  ["emoji", () => new Error("😀".repeat(30_000)), 3, { message: `${"😀".repeat(7_999)}…` }],
  ["half", () => new Error("half \ud83d"), 3, { message: "half \ufffd" }],
  [
    "nul",
    () => Object.assign(new Error("a\0b"), { code: "E\0\ud83d" }),
    3,
    { message: "a\0b", code: "E\0\ufffd" },
  ],
  ["bare", () => Object.create(null), 3, { message: "{}" }],
  [
    "text that throws",
    () => ({
      toString() {
        throw new Error("no text");
      },
    }),
    3,
    { message: "{}" },
  ],
  [
    "message that throws",
    () =>
      Object.defineProperty(new TypeError("x"), "message", {
        get() {
          throw new Error("no message");
        },
      }),
    3,
    { name: "TypeError" },
  ],
  [
    "plain",
    () => ({ code: "42P01", message: "relation does not exist" }),
    3,
    { message: "relation does not exist", code: "42P01" },
  ],
  ["number as message", () => Object.assign(new Error("x"), { message: 42 }), 3, { message: "42" }],
  ["object as message", () => ({ message: { status: 500 } }), 3, { message: '{"status":500}' }],
  ["object as stack", () => Object.assign(new Error("x"), { stack: { at: 1 } }), 3, { message: "x" }],
  ["nothing", () => undefined, 3, { message: "undefined" }],
  [
    "circle",
    () => {
      const circle: Record<string, unknown> = {};
      circle.self = circle;
      return circle;
    },
    3,
    { message: "[object Object]" },
  ],
  [
    "cause",
    withCause,
    3,
    { message: "outer", cause: { name: "SocketError", message: "socket closed", code: "ECONNRESET" } },
  ],
  [
    "cause in a circle",
    () => {
      const error: Error & { cause?: unknown } = new Error("round");
      error.cause = error;
      return error;
    },
    3,
    { message: "round", cause: { message: "round" } },
  ],
  [
    "aggregate",
    () => new AggregateError([new RangeError("one"), "two"], "both failed"),
    3,
    {
      name: "AggregateError",
      message: "both failed",
      errors: [{ name: "RangeError", message: "one" }, { message: "two" }],
    },
  ],
  ["subclass", () => new CardDeclined(), 1, { name: "CardDeclined", message: "declined", code: "CARD" }],
  ["late subclass", () => new TooLate(), 1, { name: "TooLate", code: "WAIT_TIMEOUT" }],
  ["other copy", ofAnotherCopy, 1, { message: "no" }],
];

describe.each(engines)("what handlers throw, on %s", (engine) => {
  let server: TestServer;
  let client: Client;
  const workers: Worker[] = [];

  beforeAll(async () => {
    server = await startTestServer({ engine });
    client = createClient({ url: server.url, apiKey: server.adminKey });
  });
  afterAll(async () => {
    for (const worker of workers) worker.stop();
    await server.stop();
  });

  const work = async (functions: SvcFunction[], transport: "rest" | "stream") => {
    const worker = createWorker({ client, functions, transport, handleSignals: false, log: silent });
    workers.push(worker);
    await worker.start();
  };
  const runOf = async (event: string, data: unknown): Promise<Run> =>
    client.waitForRun((await client.emit(event, data)).runIds[0]!, patience);

  test("failures are grouped by the line of the user that threw, also behind a step's tries", async () => {
    const chargeCard = () => {
      throw new Error("declined");
    };
    const once = { maxAttempts: 1 };
    const charged = createFunction({ id: "charged", event: "charged", retry: once }, ({ step }) =>
      step.run("charge", () => chargeCard(), { retry: { maxAttempts: 2, delay: 0 } }),
    );
    const plain = createFunction({ id: "plain", event: "charged", retry: once }, ({ step }) =>
      step.run("charge", () => chargeCard()),
    );
    await work([charged, plain], "stream");
    const { runIds } = await client.emit("charged", {});
    for (const id of runIds)
      expect(await client.waitForRun(id, patience)).toMatchObject({ status: "failed" });
    for (const functionId of ["charged", "plain"]) {
      const { groups } = await client.errors.list({ functionId });
      expect(groups.map(({ frame }) => frame)).toEqual(["chargeCard (sdk-errors.test.ts)"]);
    }
  });

  test.each(["rest", "stream"] as const)(
    "each is tried again and told as it is, over %s",
    async (transport) => {
      const event = `thrown.${transport}`;
      const entered = new Map<string, number>();
      const thrown = createFunction(
        { id: `thrown-${transport}`, event, retry },
        async ({ event: { data }, step }) => {
          const { at, inStep } = data as { at: number; inStep: boolean };
          const name = `${cases[at]![0]} ${inStep}`;
          entered.set(name, (entered.get(name) ?? 0) + 1);
          const fail = () => {
            throw cases[at]![1]();
          };
          return inStep ? step.run("fails", fail) : fail();
        },
      );
      await work([thrown], transport);
      for (const inStep of [false, true]) {
        const found = await Promise.all(
          cases.map(async ([name], at) => {
            const run = await runOf(event, { at, inStep });
            return {
              name,
              status: run.status,
              entered: entered.get(`${name} ${inStep}`),
              attempt: run.attempt,
              error: run.error,
            };
          }),
        );
        for (const [at, [name, , attempts, error]] of cases.entries()) {
          const wanted = { name, status: "failed", entered: attempts, attempt: attempts };
          expect(found[at]).toMatchObject({ ...wanted, error: { retryable: attempts > 1, ...error } });
        }
      }
    },
    60_000,
  );

  test("a step that cannot say what it threw is tried as often as it may be, and says so", async () => {
    let tries = 0;
    const tried = createFunction({ id: "tried", event: "tried", retry: { maxAttempts: 1 } }, ({ step }) =>
      step.run(
        "fails",
        () => {
          tries++;
          throw Object.create(null);
        },
        { retry: { maxAttempts: 3, delay: 0 } },
      ),
    );
    await work([tried], "rest");
    const run = await runOf("tried", {});
    expect([run.status, tries, run.error?.code]).toEqual(["failed", 3, "STEP_FAILED"]);
    expect(run.error?.cause).toEqual({ message: "{}" });
  });

  test.each(["rest", "stream"] as const)(
    "a caught error of a step is the same after a replay, over %s",
    async (transport) => {
      const event = `caught.${transport}`;
      const seen = new Map<string, unknown[]>();
      const told = (error: unknown): unknown =>
        error instanceof Error
          ? {
              ...{ name: error.name, message: error.message, code: (error as { code?: string }).code },
              cause: told(error.cause),
              errors: error instanceof AggregateError ? error.errors.map(told) : undefined,
            }
          : error;
      const causes = {
        tried: withCause,
        aggregate: () => new AggregateError([new Error("one")], "both"),
        final: () => new NonRetryableError("no", { code: "NO", cause: withCause() }),
        declined: () => new CardDeclined(),
      };
      const caught = createFunction({ id: `caught-${transport}`, event }, async ({ step, run }) => {
        for (const [name, make] of Object.entries(causes)) {
          const fail = () => {
            throw make();
          };
          const error = await step
            .run(name, fail, { retry: { maxAttempts: 2, delay: 0 } })
            .catch((thrown) => thrown);
          seen.set(name, [...(seen.get(name) ?? []), told(error)]);
        }
        await step.sleep("nap", 1);
        return run.id;
      });
      await work([caught], transport);
      expect((await runOf(event, {})).status).toBe("completed");
      for (const name of Object.keys(causes)) {
        const [first, again, ...more] = seen.get(name)!;
        expect(more).toEqual([]);
        expect([name, again]).toEqual([name, first]);
      }
      expect(seen.get("tried")![0]).toMatchObject({
        cause: { message: "outer", cause: { code: "ECONNRESET" } },
      });
      seen.clear();
      await testFunction(caught).run({});
      for (const name of Object.keys(causes)) expect(seen.get(name)![1]).toEqual(seen.get(name)![0]);
    },
  );

  test("texts of errors of any client are stored as far as people read them", async () => {
    const worker = pullWorker(server, "rough");
    await client.registerFunction({ id: "rough", triggers: [{ event: "rough" }], retry: { maxAttempts: 1 } });
    await worker.register("rough");
    const { runIds } = await client.emit("rough", {});
    const [job] = (await worker.poll()) as [Assignment];
    const escaped = (text: string) => JSON.stringify(text);
    const error = `{"message":${escaped("half \ud83d and \0")},"code":"\\ud83d","stack":${escaped("s".repeat(100_000))},"cause":{"message":"\\udc00"},"retryable":false}`;
    const step = `{"id":"${job.run_id}:a:0","name":"a","type":"invoke","status":"failed","error":${error}}`;
    const fence = `"execution_seq":${job.execution_seq},"lease_token":"${job.lease_token}"`;
    const answer = await fetch(`${server.url}/api/v1/workers/rough/exchange`, {
      method: "POST",
      headers: { authorization: `Bearer ${server.adminKey}`, "content-type": "application/json" },
      body: `{"reports":[{"job_id":"${job.job_id}",${fence},"status":"failed","error":${error},"steps":[${step}]}]}`,
    });
    expect(await answer.json()).toMatchObject({ results: [{ status: "ok" }] });
    const run = await client.waitForRun(runIds[0]!, patience);
    const wanted = { message: "half \ufffd and \0", code: "\ufffd", cause: { message: "\ufffd" } };
    expect(run.error).toMatchObject({ ...wanted, retryable: false });
    expect((await client.getRunSteps(run.id))[0]!.error).toMatchObject(wanted);
    const { error: whole } = (await server.rpc("SvcService", "GetRun", { id: run.id })).body;
    expect(whole.stack.length).toBeLessThan(10_000);
  });

  test.each(cases)("%s is the same in memory", async (name, thrown, attempts, error) => {
    const fails = createFunction(
      { id: `memory-${name.replaceAll(" ", "-")}`, event: "memory", retry },
      () => {
        throw thrown();
      },
    );
    const found = await testFunction(fails).run({});
    expect(found).toMatchObject({ status: "failed", attempts, error: { retryable: attempts > 1, ...error } });
  });
});
