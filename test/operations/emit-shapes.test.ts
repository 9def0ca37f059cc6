import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

/** What makes a part of the one statement that events are written with. */
const kinds = {
  limited: { concurrency: { limit: 100 } },
  cancelled: { cancelOn: [{ event: "stop", match: "data.id" }] },
  debounced: { debounce: { periodMs: 60_000, key: "data.key" } },
};
type Kind = keyof typeof kinds;
const shapes = Array.from({ length: 8 }, (_, bits) =>
  (Object.keys(kinds) as Kind[]).filter((_, at) => bits & (1 << at)),
);
const eventOf = (shape: readonly Kind[]) => ["shape", ...shape].join(".");

describe.each(engines)("whatever an event starts, while a worker waits, on %s", (engine) => {
  let server: TestServer;
  let polling: Promise<unknown> = Promise.resolve();
  let over = false;
  const worker = "/api/v1/workers/w";

  beforeAll(async () => {
    server = await startTestServer({ engine, settings: { pollHoldMs: 2_000 } });
    for (const [id, more] of Object.entries(kinds)) {
      const triggers = shapes.flatMap((shape) =>
        shape.includes(id as Kind) ? { event: eventOf(shape) } : [],
      );
      const made = await server.rpc("SvcService", "RegisterFunction", { id, triggers, ...more });
      expect(made.status, JSON.stringify(made.body)).toBe(200);
    }
    const body = { function_ids: Object.keys(kinds), max_concurrent_jobs: 100 };
    expect((await server.api(`${worker}/register`, { body })).status).toBe(200);
    polling = (async () => {
      while (!over) await server.api(`${worker}/jobs?available=100`);
    })();
  });
  afterAll(async () => {
    over = true;
    await polling;
    await server.stop();
  });
  /** Whoever got these is on its way back for more, and the next runs are born with it. */
  const claimed = async (runIds: readonly string[] = []) => {
    for (const id of runIds)
      await until(
        async () => (await server.rpc("SvcService", "GetRun", { id })).body.status === "RUN_STATUS_RUNNING",
        {
          about: "the worker to have the run",
        },
      );
  };

  for (const shape of shapes)
    test(`${eventOf(shape)}, with a key, without, and in a batch`, async () => {
      const event = eventOf(shape);
      const runs = shape.filter((kind) => kind !== "debounced").length;
      for (const key of [undefined, `${event}-1`]) {
        const data = { id: "x", key: event };
        const answer = await server.rpc("SvcService", "Emit", {
          event,
          data,
          ...(key && { idempotencyKey: key }),
        });
        expect(answer.status, JSON.stringify(answer.body)).toBe(200);
        expect(answer.body.runIds ?? []).toHaveLength(runs);
        await claimed(answer.body.runIds);
      }
      const events = [
        { event, data: {}, idempotencyKey: `${event}-2` },
        { event, data: {} },
      ];
      const answer = await server.rpc("SvcService", "TriggerBatch", { events });
      expect(answer.status, JSON.stringify(answer.body)).toBe(200);
      for (const functionId of shape) {
        const started = { functionId, data: {}, idempotencyKey: `${event}-${functionId}` };
        const invoked = await server.rpc("SvcService", "InvokeFunction", started);
        expect(invoked.status, JSON.stringify(invoked.body)).toBe(200);
        await claimed([invoked.body.runId]);
      }
    }, 120_000);
});
