import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { createClient } from "../../src/sdk/index.ts";
import { type PullWorker, pullWorker } from "../support/pull-worker.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

describe.each(engines)("finding runs by what their errors say, on %s", (engine) => {
  let server: TestServer;
  let worker: PullWorker;
  beforeAll(async () => {
    server = await startTestServer({ engine, settings: { pollHoldMs: 0 } });
    worker = pullWorker(server, "w-said");
    await server.rpc("SvcService", "RegisterFunction", {
      ...{
        id: "said",
        triggers: [{ event: "said.now" }, { event: "said.later" }],
        retry: { maxAttempts: 1 },
      },
    });
    await worker.register("said");
  }, 120_000);
  afterAll(() => server.stop());

  type Filter = Parameters<ReturnType<typeof createClient>["listRuns"]>[0];
  const found = async (filter: Filter): Promise<string[]> => {
    const client = createClient({ url: server.url, apiKey: server.adminKey });
    return (await client.listRuns({ limit: 200, ...filter })).runs.map(({ id }) => id);
  };
  const fail = async (
    error: { message: string; code?: string; stack?: string },
    event = "said.now",
  ): Promise<string> => {
    const { body } = await server.rpc("SvcService", "Emit", { event });
    const job = await until(async () => (await worker.poll())[0], { about: "the job" });
    await worker.report(job, { status: "failed", error: { retryable: false, ...error } });
    return body.runIds[0];
  };

  test("a part of the message, the code or the stack finds a failure, in either case", async () => {
    const message = 'Zoë\'s "card" 100%_\\ was DECLINED\u0000by\nthe bank';
    const declined = await fail({ message, code: "CARD_17", stack: "at charge (/app/till.ts:41:11)" });
    const named = await fail({ message: "message" }, "said.later");
    for (const errorText of ['ZOË\'s "CARD"', "100%_\\ was", "card_17", "till.ts:41", "\u0000by\nthe"])
      expect([errorText, await found({ errorText })]).toEqual([errorText, [declined]]);
    // Neither what stands around the words of an error, nor a sign for any letter.
    for (const errorText of ["100%x", "retryable", "false", "stack", "zoe's"])
      expect([errorText, await found({ errorText })]).toEqual([errorText, []]);
    expect(await found({ errorText: "message" })).toEqual([named]);
    expect(await found({ errorText: "declined", statuses: ["completed"] })).toEqual([]);
    expect(await found({ errorText: "declined", statuses: ["completed", "failed"] })).toEqual([declined]);
  });

  test("an event's name finds the runs that it started, and a repair selects so", async () => {
    const now = await fail({ message: "the depot is away" });
    const later = await fail({ message: "the depot is away" }, "said.later");
    expect(await found({ errorText: "depot" })).toEqual([later, now]);
    expect(await found({ errorText: "depot", eventName: "said.later" })).toEqual([later]);
    expect(await found({ eventName: "said.late" })).toEqual([]);
    const asked = { action: "resume", filter: { event_name: "said.now", error_text: "THE DEPOT" } };
    const { body } = await server.api("/api/v1/repairs/preview", { body: asked });
    expect(body).toMatchObject({ total_count: 1, samples: [{ run_id: now }] });
    const filter = { eventName: "said.later", errorText: "the depot" };
    const over = await server.rpc("RepairService", "PreviewRepair", { action: "resume", filter });
    expect(over.body.samples.map(({ runId }: { runId: string }) => runId)).toEqual([later]);
  });

  test("groups of failures are read behind a position that the query names", async () => {
    const { headers } = await server.rpc("SvcService", "Emit", { event: "said.not" });
    const { status, body } = await server.api(`/api/v1/errors?minSequence=${headers.get("x-svc-sequence")}`);
    expect([status, body.error]).toEqual([200, undefined]);
  });

  test("a text that is too long is refused", async () => {
    for (const name of ["errorText", "eventName", "search"]) {
      const { status, body } = await server.rpc("SvcService", "ListRuns", { [name]: "x".repeat(3_000) });
      expect([name, status, body.message]).toEqual([name, 400, expect.stringContaining(name)]);
    }
  });
});
