import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { sql } from "../../src/kit/sql.ts";
import {
  type Client,
  createClient,
  createFunction,
  createWorker,
  type HandlerContext,
  NonRetryableError,
  type RunLogs,
  serve,
  type Worker,
} from "../../src/sdk/index.ts";
import { pullWorker } from "../support/pull-worker.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

const silent = { debug() {}, info() {}, warn() {}, error() {} };
type Work = (context: HandlerContext) => Promise<unknown>;
const transports = ["rest", "stream"] as const;
const secret = "s3cr3t-of-the-house";

describe.each(engines)("what runs tell of themselves on %s", (engine) => {
  let server: TestServer;
  let client: Client;
  beforeAll(async () => {
    server = await startTestServer({
      engine,
      settings: { leaseMs: 60_000, pushAllowPrivate: "all" },
    });
    client = createClient({ url: server.url, apiKey: server.adminKey });
    const made = await server.api("/api/v1/secrets", { body: { name: "token", value: secret } });
    expect(made.status).toBe(201);
  }, 60_000);
  afterAll(() => server.stop());

  const workerOf = async (
    id: string,
    work: Work,
    transport: (typeof transports)[number],
  ): Promise<Worker> => {
    const worker = createWorker({
      ...{
        client,
        handleSignals: false,
        log: silent,
        transport,
        workerId: `w"\\${id}`,
        captureConsole: true,
      },
      functions: [
        createFunction(
          {
            ...{ id, event: `${id}.asked`, secrets: ["token"] },
            retry: { maxAttempts: 3, initialDelayMs: 10, backoffFactor: 1 },
          },
          work,
        ),
      ],
    });
    await worker.start();
    return worker;
  };
  const begin = async (id: string) => (await client.emit(`${id}.asked`, {})).runIds[0]!;
  const textsOf = ({ lines }: RunLogs) => lines.map(({ text }) => text);

  describe.each(transports)("over %s", (transport) => {
    test("a step of three tries in a run of three attempts, with its lines and without secrets", async () => {
      const id = `told-${transport}`;
      let tries = 0;
      const worker = await workerOf(
        id,
        async ({ step, log, run, secrets }) => {
          log.info(`attempt ${run.attempt}`, { token: secrets.token, nested: [{ at: `x${secrets.token}` }] });
          await step.run(
            "tried",
            () => {
              tries++;
              log.warn(`try ${tries} with ${secrets.token}`);
              if (tries < 3) throw new Error(`no ${tries}`);
              return tries;
            },
            { retry: { maxAttempts: 3, delay: "10ms" } },
          );
          if (run.attempt < 3) throw new Error(`attempt ${run.attempt} failed`);
          console.log("the %s", "end", secrets.token);
          return "done";
        },
        transport,
      );
      const runId = await begin(id);
      try {
        expect((await client.waitForRun(runId)).output).toBe("done");
      } finally {
        await worker.drain();
      }
      const logs = await client.getRunLogs(runId);
      expect(logs.leftOut).toBe(0);
      expect(logs.lines).toMatchObject([
        { level: "info", text: "attempt 1", attempt: 1, fields: { token: "***", nested: [{ at: "x***" }] } },
        { level: "warn", text: "try 1 with ***", step: "tried", attempt: 1 },
        { level: "warn", text: "try 2 with ***", step: "tried", attempt: 1 },
        { level: "warn", text: "try 3 with ***", step: "tried", attempt: 1 },
        { level: "info", text: "attempt 2", attempt: 2 },
        { level: "info", text: "attempt 3", attempt: 3 },
        { level: "info", text: "the end ***", attempt: 3, workerId: `w"\\${id}` },
      ]);
      expect(textsOf(await client.getRunLogs(runId, { after: logs.cursor }))).toEqual([]);
      const { attemptLog = [] } = await client.getRun(runId, { withAttempts: true });
      expect(attemptLog).toMatchObject([
        {
          number: 1,
          outcome: "failed",
          error: { message: "attempt 1 failed" },
          retryInMs: expect.any(Number),
        },
        { number: 2, outcome: "failed", error: { message: "attempt 2 failed" }, workerId: `w"\\${id}` },
        { number: 3, outcome: "completed", executions: 1 },
      ]);
      expect(await client.getRun(runId)).not.toHaveProperty("attemptLog");
      const [tried] = await client.getRunSteps(runId, { withTries: true });
      expect(tried).toMatchObject({
        ...{ name: "tried", status: "completed" },
        tryLog: [
          { number: 1, attempt: 1, error: { message: "no 1" }, retryAt: expect.any(String) },
          { number: 2, attempt: 1, error: { message: "no 2" } },
        ],
      });
      const stored = await server.running.domain.store.all<{ lines: string }>(
        sql`SELECT lines FROM run_logs WHERE run_id = ${runId}`,
      );
      expect(stored.map(({ lines }) => lines).join()).not.toContain(secret);
    }, 30_000);

    test("what a replay writes again is not kept twice, and a long step is told within seconds", async () => {
      const id = `replayed-${transport}`;
      const { promise: held, resolve: goOn } = Promise.withResolvers<void>();
      const worker = await workerOf(
        id,
        async ({ step, log }) => {
          log.info("begins");
          await step.run("first", () => log.info("in first"));
          log.info("between");
          await step.sleep("nap", "1ms");
          log.info("slept");
          await step.run("long", async () => {
            log.info("long began");
            await held;
          });
          await step.sleep("again", "1ms");
          log.info("last");
        },
        transport,
      );
      const runId = await begin(id);
      try {
        await until(async () => textsOf(await client.getRunLogs(runId)).includes("long began"), {
          about: "the line of a step that goes on",
        });
        goOn();
        await client.waitForRun(runId);
      } finally {
        await worker.drain();
      }
      const texts = textsOf(await client.getRunLogs(runId));
      expect(texts).toEqual(["begins", "in first", "between", "slept", "long began", "last"]);
    }, 30_000);

    test("lines beyond the bounds are counted, and what cannot be written fails no run", async () => {
      const id = `many-${transport}`;
      const worker = await workerOf(
        id,
        async ({ log }) => {
          const circle: Record<string, unknown> = { big: 10n ** 20n, bad: "\ud800", nul: "\0" };
          circle.self = circle;
          log.info("odd \0 \ud800", circle);
          log.error("thrown", {
            error: new Error("inner"),
            get bad(): string {
              throw new Error("getter");
            },
          });
          log.info("x".repeat(5_000));
          for (let n = 0; n < 300; n++) log.info(`line ${n}`);
          throw new NonRetryableError("over");
        },
        transport,
      );
      const runId = await begin(id);
      try {
        expect((await client.waitForRun(runId)).error?.message).toBe("over");
      } finally {
        await worker.drain();
      }
      const { lines, leftOut } = await client.getRunLogs(runId);
      expect([lines.length, leftOut]).toEqual([200, 103]);
      expect(lines[0]).toMatchObject({ fields: { big: "100000000000000000000", self: "…" } });
      expect(Buffer.byteLength(JSON.stringify(lines[2]!.text))).toBeLessThan(1_024);
    }, 30_000);
  });

  test("each of several branches that are met together has its line, and a wait before them none twice", async () => {
    const child = await workerOf("leaf", async ({ event }) => (event.data as { n: number }).n, "rest");
    const worker = await workerOf(
      "wide",
      async ({ step, log }) => {
        log.info("begins");
        await step.sleep("nap", "1ms");
        await step.map("each", [1, 2, 3, 4, 5], async (n) => {
          await step.invoke("leaf", { input: { n } });
          log.info(`done ${n}`);
        });
        await step.sleep("again", "1ms");
        log.info("ends");
      },
      "rest",
    );
    try {
      const runId = await begin("wide");
      await client.waitForRun(runId);
      const texts = textsOf(await client.getRunLogs(runId));
      expect(texts.toSorted()).toEqual(
        ["begins", ...[1, 2, 3, 4, 5].map((n) => `done ${n}`), "ends"].toSorted(),
      );
    } finally {
      await Promise.all([worker.drain(), child.drain()]);
    }
  }, 30_000);

  test("no form of a secret is kept: in JSON, split at its lines, or cut", async () => {
    const pem = `first "line" of it\nsecond line of it\n"third\\n line of it's"\n`;
    await server.api("/api/v1/secrets", { body: { name: "pem", value: pem } });
    const told = createFunction(
      { id: "sealed", event: "sealed.asked", secrets: ["pem", "token"] },
      async (context) => {
        const { log, secrets } = context;
        log.info(JSON.stringify({ pem: secrets.pem }), { again: JSON.stringify(secrets) });
        console.log({ pem: secrets.pem });
        log.info(`${"x".repeat(890)}${secrets.token}`);
        log.info(Object.create(null), {
          deep: Array.from({ length: 60 }).reduce((inner) => ({ inner }), {}) as object,
        });
        log.info("token", { [secrets.token!]: [secrets.token] });
      },
    );
    const worker = createWorker({
      client,
      handleSignals: false,
      log: silent,
      captureConsole: true,
      functions: [told],
    });
    await worker.start();
    try {
      const runId = await begin("sealed");
      expect((await client.waitForRun(runId)).status).toBe("completed");
      const stored = JSON.stringify(await client.getRunLogs(runId));
      for (const part of ["line of it", "first", secret.slice(0, 6)]) expect(stored).not.toContain(part);
      expect(textsOf(await client.getRunLogs(runId)).at(-1)).toBe("token");
    } finally {
      await worker.drain();
    }
  }, 30_000);

  test("lines of an endpoint come with its answer", async () => {
    const told = createFunction(
      { id: "pushed", event: "pushed.asked", secrets: ["token"] },
      async (context) => {
        context.log.info("before", { token: context.secrets.token });
        await context.step.sleep("nap", "1ms");
        console.log("after", context.run.attempt);
        return 1;
      },
    );
    const handler = serve({ client, functions: [told], signingKey: null, captureConsole: true, log: silent });
    const endpoint = Bun.serve({ port: 0, hostname: "127.0.0.1", fetch: handler });
    try {
      await handler.register(`http://127.0.0.1:${endpoint.port}`);
      const runId = await begin("pushed");
      expect((await client.waitForRun(runId)).status).toBe("completed");
      const { lines } = await client.getRunLogs(runId);
      expect(lines).toMatchObject([{ text: "before", fields: { token: "***" } }, { text: "after 1" }]);
    } finally {
      endpoint.stop(true);
    }
  });

  test("any client may send lines; those that are none are left out, and secrets never stored", async () => {
    const worker = pullWorker(server, "plain");
    await server.rpc("SvcService", "RegisterFunction", {
      id: "plain",
      triggers: [{ event: "plain.asked" }],
      secrets: ["token"],
    });
    await worker.register("plain");
    await client.emit("plain.asked", {});
    const job = await until(async () => (await worker.poll())[0], { about: "the job" });
    const lines = {
      logs: [{ at: "x", level: "loud", text: `a ${secret} b` }, 7, null, { text: 1 }],
      log_offset: 0,
    };
    for (let n = 0; n < 2; n++)
      expect((await worker.report(job, { status: "progress", steps: [], ...lines })).status).toBe(200);
    expect(
      (
        await worker.report(job, {
          status: "completed",
          output: 1,
          logs: "none",
          log_offset: {},
          log_lost: -1,
        })
      ).status,
    ).toBe(200);
    const { body } = await server.api(`/api/v1/runs/${job.run_id}/logs`);
    expect(body).toMatchObject({
      lines: [{ level: "info", text: "a *** b", worker_id: "plain" }],
      left_out: 3,
    });
    expect((await server.api(`/api/v1/runs/${job.run_id}/logs?after=${body.cursor}`)).body.lines).toEqual([]);
    expect((await server.api(`/api/v1/runs/${job.run_id}/logs?after=x`)).status).toBe(400);
    expect((await server.api("/api/v1/runs/run_none/logs")).status).toBe(404);
  });
});
