import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { pullWorker } from "../support/pull-worker.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

describe.each(engines)("a wait with on_timeout on %s", (engine) => {
  let server: TestServer;
  beforeAll(async () => {
    server = await startTestServer({ engine, settings: { pollHoldMs: 50 } });
  }, 120_000);
  afterAll(() => server.stop());

  const filters = {
    event: {
      type: "wait_for_event",
      event_filter: { event: "never", timeout: "50ms", on_timeout: "null" },
    },
    conditions: {
      ...{ type: "wait_for_events", mode: "any", timeout: "50ms", on_timeout: "null" },
      conditions: [{ name: "paid", stream: { entity_id: "nothing", version: 1 } }],
    },
  };

  test.each(Object.keys(filters) as (keyof typeof filters)[])(
    "for an %s is over for each worker, whatever SDK it names",
    async (kind) => {
      for (const [sdk, status] of [
        ["", "completed"],
        ["0.36.0", "completed"],
        ["0.41.0", "timed_out"],
      ] as const) {
        const id = `told-${kind}-${sdk}`;
        const worker = pullWorker(server, id, sdk);
        await server.rpc("SvcService", "RegisterFunction", { id });
        if (sdk === "") await server.api(`/api/v1/workers/${id}/register`, { body: { function_ids: [id] } });
        else await worker.register(id);
        await server.rpc("SvcService", "InvokeFunction", { functionId: id, data: {} });
        const next = () => until(async () => (await worker.poll())[0], { about: "the job" });
        const job = await next();
        const left = await worker.leave(job, "w", { step_name: "w", ...filters[kind] });
        expect(left.status).toBeLessThan(300);
        const again = await next();
        expect(again.completed_steps).toMatchObject([{ name: "w", status, output: null }]);
        expect((await worker.complete(again)).status).toBeLessThan(300);
      }
    },
  );
});
