import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { type CallOptions, engines, startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

describe.each(engines)("starts that wait for the end, on %s", (engine) => {
  let server: TestServer;
  const rpc = (method: string, body: unknown, options: CallOptions = {}) =>
    server.rpc("SvcService", method, body, options);
  const register = (id: string, more: object = {}) => rpc("RegisterFunction", { id, ...more });
  const poll = async (worker: string) => {
    const { body } = await server.api(`/api/v1/workers/${worker}/jobs?available=5`);
    return (body?.jobs ?? []) as {
      job_id: string;
      execution_seq: number;
      lease_token: string;
      run_id: string;
    }[];
  };
  /** Takes jobs until `count` were reported. */
  const work = async (functionId: string, report: object, count = 1) => {
    const worker = `w-${functionId}`;
    await server.api(`/api/v1/workers/${worker}/register`, { body: { function_ids: [functionId] } });
    let done = 0;
    await until(
      async () => {
        for (const { job_id, execution_seq, lease_token } of await poll(worker)) {
          const { status } = await server.api(`/api/v1/workers/${worker}/jobs/${job_id}`, {
            method: "PUT",
            body: { execution_seq, lease_token, ...report },
          });
          expect(status).toBe(200);
          done++;
        }
        return done >= count;
      },
      { about: `a job of ${functionId}` },
    );
  };

  beforeAll(async () => {
    server = await startTestServer({ engine });
  });
  afterAll(() => server.stop());

  test("InvokeFunctionSync answers with the run's end", async () => {
    await register("sum");
    const asked = rpc("InvokeFunctionSync", { function_id: "sum", data: { a: 1 }, timeout_ms: 20_000 });
    await work("sum", { status: "completed", output: { b: 2 } });
    const { status, body } = await asked;
    expect({ status, body }).toMatchObject({
      status: 200,
      body: { result: { functionId: "sum", status: "RUN_STATUS_COMPLETED", output: { b: 2 } } },
    });
    expect(body.result.durationMs).toBeNumber();
    expect(body.result.waitTimedOut).toBeUndefined();
    for (const [output, field] of [
      [[1], "outputValue"],
      ["text", "outputValue"],
      [null, "outputValue"],
    ] as const) {
      const other = rpc("InvokeFunctionSync", { functionId: "sum", timeoutMs: "20000" });
      await work("sum", { status: "completed", output });
      expect((await other).body.result[field]).toEqual(output);
    }
  });

  test("a failed run is a result with its error", async () => {
    await register("fails");
    const asked = rpc("InvokeFunctionSync", { functionId: "fails" });
    await work("fails", { status: "failed", error: { message: "no", code: "BAD", retryable: false } });
    expect((await asked).body.result).toMatchObject({
      status: "RUN_STATUS_FAILED",
      error: { message: "no", code: "BAD" },
    });
  });

  test("TriggerSync answers one result a run, and none for an event nobody wants", async () => {
    await register("one", { triggers: [{ event: "both" }] });
    await register("two", { triggers: [{ event: "both" }] });
    const asked = rpc("TriggerSync", { event: "both", data: {} });
    await Promise.all([
      work("one", { status: "completed", output: { n: 1 } }),
      work("two", { status: "completed", output: { n: 2 } }),
    ]);
    const { body } = await asked;
    expect(body.eventId).toStartWith("evt_");
    expect(body.results.map((r: { functionId: string }) => r.functionId).sort()).toEqual(["one", "two"]);
    const nobody = await rpc("TriggerSync", { event: "nobody.wants" });
    expect(nobody).toMatchObject({ status: 200, body: { results: [] } });
  });

  test("when the time is over the run is answered as it stands", async () => {
    await register("slow");
    const { status, body } = await rpc("InvokeFunctionSync", { functionId: "slow", timeoutMs: 30 });
    expect({ status, body }).toMatchObject({
      status: 200,
      body: { result: { status: "RUN_STATUS_WAITING_FOR_CAPACITY", waitTimedOut: true } },
    });
    expect(body.result.durationMs).toBeNumber();
  });

  test("a repeated key answers the first run's end, also when it is over", async () => {
    await register("again");
    const ask = () =>
      rpc(
        "InvokeFunctionSync",
        { functionId: "again", timeoutMs: 20_000 },
        { headers: { "Idempotency-Key": "s1" } },
      );
    const both = [ask(), ask()];
    await work("again", { status: "completed", output: { n: 1 } });
    const [first, second] = await Promise.all(both);
    const third = await ask();
    expect(second!.body).toEqual(first!.body);
    expect(third.body).toEqual(first!.body);
    expect((await rpc("InvokeFunction", { functionId: "again", idempotencyKey: "s1" })).body.runId).toBe(
      first!.body.result.runId,
    );
    expect((await rpc("TriggerSync", { event: "again", idempotencyKey: "s1" })).body.code).toBe(
      "already_exists",
    );
  });

  test("bad requests start nothing", async () => {
    await register("debounced", { triggers: [{ event: "bounce" }], debounce: { periodMs: 1000 } });
    for (const [method, input, code] of [
      ["TriggerSync", { event: "bounce" }, "failed_precondition"],
      ["TriggerSync", { event: "" }, "invalid_argument"],
      ["TriggerSync", { event: "a", timeoutMs: -1 }, "invalid_argument"],
      ["InvokeFunctionSync", { functionId: "sum", timeoutMs: 100_000_000 }, "invalid_argument"],
      ["InvokeFunctionSync", { functionId: "nobody" }, "not_found"],
    ] as const) {
      const { body } = await rpc(method, input);
      expect(body.code).toBe(code);
    }
    const { events } = (await server.api("/api/v1/events?name=bounce")).body;
    expect(events).toEqual([]);
  });
});
