import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import {
  type Client,
  createClient,
  createFunction,
  createWorker,
  type Run,
  serve,
  type Worker,
} from "../../src/sdk/index.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";

const silent = { debug() {}, info() {}, warn() {}, error() {} };
const patience = { timeoutMs: 100_000 };
const mib = 1024 * 1024;
const signingKey = "k".repeat(40);

describe.each(engines)("what a run ends with, as large as it may be and larger, on %s", (engine) => {
  let server: TestServer;
  let client: Client;
  const workers: Worker[] = [];

  beforeAll(async () => {
    server = await startTestServer({
      engine,
      settings: { pushAllowPrivate: ["127.0.0.0/8"], signingKey },
    });
    client = createClient({ url: server.url, apiKey: server.adminKey });
  });
  afterAll(async () => {
    for (const worker of workers) worker.stop();
    await server.stop();
  });

  const ended = (runId: string) => client.waitForRun(runId, patience);

  describe.each(["rest", "stream"] as const)("over %s", (transport) => {
    const given = new Map<string, () => unknown>();
    const event = `large.${transport}`;
    const retry = { maxAttempts: 2, initialDelayMs: 1 };

    beforeAll(async () => {
      const large = createFunction(
        { id: `large-${transport}`, event, retry },
        async ({ event: { data }, step }) => {
          const { kind } = data as { kind: string };
          if (kind === "small") return step.run("a", () => 1);
          if (kind === "steps") {
            for (const name of ["a", "b", "c"]) await step.run(name, given.get(kind)! as () => unknown);
            return given.get(kind)!();
          }
          if (kind === "wait")
            return step.waitForEvent("never", { match: "a", matchValue: given.get(kind)!(), timeout: "1s" });
          return given.get(kind)!();
        },
      );
      const worker = createWorker({
        client,
        functions: [large],
        transport,
        handleSignals: false,
        log: silent,
      });
      workers.push(worker);
      await worker.start();
    });

    /** How the run ends, while small ones beside it begin and complete. */
    async function endOf(kind: string, make: () => unknown): Promise<Run> {
      given.set(kind, make);
      const { runIds } = await client.emit(event, { kind });
      const beside = await client.emitMany(
        Array.from({ length: 5 }, () => ({ event, data: { kind: "small" } })),
      );
      const run = await ended(runIds[0]!);
      for (const { runIds: ids } of beside) expect((await ended(ids[0]!)).status).toBe("completed");
      return run;
    }

    const text = (run: Run): [string, number] => [run.status, String(run.output).length];

    test("a result counts as JSON, whatever its letters cost on the way", async () => {
      expect(text(await endOf("quotes", () => '"'.repeat(1_100_000)))).toEqual(["completed", 1_100_000]);
      expect(text(await endOf("lines", () => "\n".repeat(1.5 * mib)))).toEqual(["completed", 1.5 * mib]);
      expect(text(await endOf("nearly", () => "x".repeat(4 * mib - 12)))).toEqual([
        "completed",
        4 * mib - 12,
      ]);
      expect(text(await endOf("all quotes", () => '"'.repeat(2 * mib - 1)))).toEqual([
        "completed",
        2 * mib - 1,
      ]);
    }, 300_000);

    test("steps beside a result go ahead of it", async () => {
      const run = await endOf("steps", () => '"'.repeat(1.9 * mib));
      expect(text(run)).toEqual(["completed", Math.floor(1.9 * mib)]);
      expect((await client.getRunSteps(run.id)).map(({ status }) => status)).toEqual(
        Array(3).fill("completed"),
      );
    }, 300_000);

    test("a larger result fails its own run", async () => {
      for (const make of [() => "x".repeat(4 * mib), () => "\n".repeat(3 * mib)]) {
        const { status, attempt, error } = await endOf("over", make);
        expect([status, attempt, error?.code]).toEqual(["failed", 1, "OUTPUT_TOO_LARGE"]);
      }
    }, 300_000);

    test("an error's text is cut, and its run is tried again", async () => {
      const { status, attempt, error } = await endOf("error", () => {
        throw new Error("m".repeat(4.5 * mib));
      });
      expect([status, attempt, error?.message.slice(0, 20)]).toEqual(["failed", 2, "m".repeat(20)]);
      expect(error!.message.length).toBeLessThan(20_000);
    }, 300_000);

    test("what no message holds fails its own run, and the text says the limit", async () => {
      const { status, attempt, error } = await endOf("wait", () => "x".repeat(12 * mib));
      expect([status, attempt, error?.code]).toEqual(["failed", 1, "REPORT_TOO_LARGE"]);
      expect(error?.message).toContain(String(9 * mib + 64 * 1024));
    }, 300_000);
  });

  test("an endpoint answers a result and a step of 4 MiB each", async () => {
    const large = createFunction({ id: "large-push", event: "large.push" }, async ({ step }) => {
      await step.run("a", () => "x".repeat(4 * mib - 12));
      return "x".repeat(4 * mib - 12);
    });
    const handler = serve({ client, functions: [large], signingKey, log: silent });
    const endpoint = Bun.serve({ port: 0, hostname: "127.0.0.1", fetch: handler });
    try {
      const endpointUrl = `http://127.0.0.1:${endpoint.port}`;
      await client.registerFunction({ ...large.definition, endpointUrl });
      await server.running.tick("push.look");
      const { runIds } = await client.emit("large.push", {});
      const run = await ended(runIds[0]!);
      expect([run.status, String(run.output).length]).toEqual(["completed", 4 * mib - 12]);
    } finally {
      endpoint.stop(true);
    }
  }, 300_000);
});
