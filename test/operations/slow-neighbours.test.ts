import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { sql } from "../../src/kit/sql.ts";
import { pullWorker } from "../support/pull-worker.ts";
import { type CallOptions, engines, startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

/** 4,500 items are within what one evaluation may look at. */
const heavy = (mark: number) =>
  `data.l.exists(x, x.b.contains('zzz${mark}') || x.b.startsWith('q') || x.b.endsWith('w') || x.a > 1000000)`;
const heavyData = { l: Array.from({ length: 4_500 }, (_, a) => ({ a, b: `item ${a}` })) };

describe.each(engines)("a neighbour's waits on %s", (engine) => {
  let server: TestServer;
  beforeAll(async () => {
    server = await startTestServer({ engine, settings: { pollHoldMs: 0, leaseMs: 60_000 } });
  }, 120_000);
  afterAll(() => server.stop());

  async function tenant(name: string) {
    const { body } = await server.api("/api/v1/environments", { body: { name } });
    const { id } = body.environment ?? body;
    const made = await server.api("/api/v1/apikeys", {
      body: { name, role_ids: ["role_developer"], env_id: id },
    });
    const own = { key: made.body.key as string };
    const rpc = (method: string, asked: object) => server.rpc("SvcService", method, asked, own);
    await rpc("RegisterFunction", { id: name, triggers: [{ event: `${name}.asked` }] });
    const worker = pullWorker(
      { api: (path: string, options: CallOptions = {}) => server.api(path, { ...options, ...own }) },
      name,
    );
    await worker.register(name);
    return {
      id: id as string,
      worker,
      emit: (event: string, data: unknown = {}) => rpc("Emit", { event, data }),
    };
  }
  test("that cost minutes to compare hold up nobody's waits, sleeps and times", async () => {
    const { store } = server.running.domain;
    const greedy = await tenant("greedy");
    const modest = await tenant("modest");
    const waits = 150;
    for (let number = 0; number < waits; number++) await greedy.emit("greedy.asked");
    for (let number = 0; number < waits; ) {
      for (const job of await greedy.worker.poll(50)) {
        const filter = { event: "greedy.slow", match: heavy(number++), timeout: "1h" };
        await greedy.worker.leave(job, "w", { type: "wait_for_event", event_filter: filter });
      }
    }
    await server.running.tick("runs.matcher");
    await modest.emit("modest.asked");
    await modest.emit("modest.asked");
    const [asleep, waiting] = await modest.worker.poll(2);
    const comes = { event: "modest.comes", timeout: "1h" };
    await modest.worker.leave(asleep!, "s", {
      type: "sleep",
      until: new Date(Date.now() + 3_600_000).toISOString(),
    });
    await modest.worker.leave(waiting!, "w", { type: "wait_for_event", event_filter: comes });
    await server.running.tick("runs.matcher");

    for (let number = 0; number < 10; number++) await greedy.emit("greedy.slow", heavyData);
    await modest.emit("modest.comes");
    // The time of all of the greedy one's waits, and of the modest one's sleep, is over after these events.
    await store.write((session) =>
      session.run(
        sql`UPDATE executions SET wake_at = ${sql.bigint(Date.now())} WHERE state = 'sleeping' OR environment_id = ${greedy.id}`,
      ),
    );
    const isBehind = async () => {
      const [row] = await store.all<{
        position: number;
        head: number;
      }>(sql`SELECT m.position, h.position AS head
        FROM matchers m JOIN heads h ON h.environment_id = m.environment_id WHERE m.environment_id = ${greedy.id}`);
      return row!.position < row!.head;
    };
    const back: string[] = [];
    await until(
      async () => {
        back.push(...(await modest.worker.poll(2)).map(({ run_id }) => run_id));
        return back.length === 2;
      },
      { about: "the modest one's runs to go on" },
    );
    expect(back.sort()).toEqual([asleep!.run_id, waiting!.run_id].sort());
    expect(await isBehind()).toBe(true);
    // What is still being looked through has not timed out.
    const [still] = await store.all<{ count: number }>(
      sql`SELECT count(*) AS count FROM executions WHERE environment_id = ${greedy.id} AND state = 'waiting'`,
    );
    expect(still!.count).toBe(waits);
  }, 120_000);
});
