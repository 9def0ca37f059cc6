import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { sql } from "../../src/kit/sql.ts";
import type { Session, Store } from "../../src/store/store.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

const count = 14;
const text = "x".repeat(900_000);
/** What loops read at once, and one event more. */
const charsMax = 8 * 1024 * 1024 + 1_000_000;

describe.each(engines)("large events on %s", (engine) => {
  let server: TestServer;
  /** Of one statement. */
  let most = 0;
  const measured =
    (all: Session["all"]): Session["all"] =>
    async (query) => {
      const rows = await all<Record<string, unknown>>(query);
      const chars = rows
        .flatMap((row) => Object.values(row))
        .reduce((sum: number, one) => sum + (typeof one === "string" ? one.length : 0), 0);
      most = Math.max(most, chars);
      return rows as never;
    };
  const aroundStore = (store: Store): Store => ({
    ...store,
    all: measured(store.all),
    write: (work) =>
      store.write((session) =>
        work(Object.assign(Object.create(session), { all: measured(session.all.bind(session)) })),
      ),
  });

  beforeAll(async () => {
    server = await startTestServer({ engine, aroundStore, settings: { pushAllowPrivate: "all" } });
  });
  afterAll(() => server.stop());

  const rpc = async (method: string, body: unknown) => {
    const answer = await server.rpc("SvcService", method, body);
    expect(answer.body).not.toHaveProperty("code");
    return answer.body;
  };
  const emitAll = async (event: string, more: object = {}) => {
    await Promise.all(
      Array.from({ length: count }, (_, n) => rpc("Emit", { event, data: { key: `${n}`, text }, ...more })),
    );
    most = 0;
  };
  const runsOf = async (functionId: string) => {
    const runs = sql`SELECT count(*) AS count FROM runs WHERE function_id = ${functionId}`;
    return (await server.running.domain.store.one<{ count: number }>(runs))!.count === count;
  };

  test("starts that come due together are read a few at a time: debounced, batched and delayed", async () => {
    const triggers = (event: string) => ({ triggers: [{ event }] });
    await rpc("RegisterFunction", {
      ...{ id: "debounced", ...triggers("deb") },
      debounce: { periodMs: 60_000, key: "key" },
    });
    await rpc("RegisterFunction", {
      ...{ id: "batched", ...triggers("bat") },
      batch: { size: 5, timeoutMs: 60_000, key: "key" },
    });
    await rpc("RegisterFunction", {
      ...{ id: "delayed", ...triggers("del") },
      attributes: [{ name: "size", path: "key" }],
    });
    const { store } = server.running.domain;
    for (const [event, id, { due, loop }, more] of [
      ["deb", "debounced", { due: sql`debounces SET fires_at = 1`, loop: "debounce.fire" }, {}],
      ["bat", "batched", { due: sql`batches SET timeout_ms = 0, closes_at = 1`, loop: "batches.close" }, {}],
      [
        "del",
        "delayed",
        { due: sql`delayed_events SET wake_at = 1`, loop: "events.delayed" },
        { delayMs: 60_000 },
      ],
    ] as const) {
      await emitAll(event, more);
      if (event === "del")
        expect((await server.api("/api/v1/delayed-events")).body.events).toHaveLength(count);
      await store.write((session) => session.run(sql`UPDATE ${due}`));
      const begin = async () => {
        await server.running.tick(loop);
        return runsOf(id);
      };
      await until(begin, { about: `the runs of ${id}` });
      expect(most, id).toBeLessThan(charsMax);
    }
  }, 120_000);

  test("a page of runs has no more than 24 MiB, and goes on behind them by its cursor alone", async () => {
    const { store } = server.running.domain;
    const output = `"${"x".repeat(2_100_000)}"`;
    await store.write((session) =>
      session.run(sql`UPDATE runs SET output = ${output} WHERE function_id = 'delayed'`),
    );
    for (const more of [{}, { orderBy: { name: "size" } }]) {
      const pages: string[][] = [];
      let cursor: string | undefined;
      do {
        const page = await rpc("ListRuns", { functionId: "delayed", limit: 100, cursor, ...more });
        pages.push((page.runs ?? []).map(({ id }: { id: string }) => id));
        cursor = page.nextCursor || undefined;
      } while (cursor !== undefined);
      expect(pages.map(({ length }) => length)).toEqual([9, count - 9]);
      expect(new Set(pages.flat()).size).toBe(count);
    }
    const byNumber = { functionId: "delayed", limit: 100, offset: 1 };
    const refused = await server.rpc("SvcService", "ListRuns", byNumber);
    expect([refused.status, refused.body.message]).toEqual([400, expect.stringContaining("limit: only 9")]);
  }, 120_000);

  test("inputs and outputs of children are read a few at a time", async () => {
    const { store } = server.running.domain;
    const runs = sql`FROM runs r WHERE r.function_id = 'delayed'`;
    await store.write(async (session) => {
      // Nothing waits for these children any more: they are only looked at.
      await session.run(sql`INSERT INTO steps (run_id, step_id, environment_id, name, type, sequence, status, input, attempt,
          started_at, created_at, updated_at)
        SELECT r.id, 's', r.environment_id, 's', 'invoke_function', 1, 'completed', ${text}, 1, 1, 1, 1 ${runs}`);
      await session.run(sql`INSERT INTO invocations (parent_run_id, step_id, environment_id, function_id, kind, due_at, created_at)
        SELECT r.id, 's', r.environment_id, 'delayed', 'invoke', 1, 1 ${runs}`);
      await session.run(sql`UPDATE runs SET output = ${text}, parent_run_id = 'run_gone', parent_step_id = 's'
        WHERE function_id = 'delayed'`);
      await session.run(sql`INSERT INTO child_ends (child_run_id, environment_id, ended_at)
        SELECT r.id, r.environment_id, 1 ${runs}`);
    });
    most = 0;
    for (const table of ["invocations", "child_ends"])
      await until(
        async () => {
          await server.running.tick("runs.children");
          return (await store.all(sql`SELECT * FROM ${sql.raw(table)}`)).length === 0;
        },
        { about: `the end of ${table}` },
      );
    expect(most).toBeLessThan(charsMax);
  });

  test("an endpoint's backlog is read by its size", async () => {
    const { promise: released, resolve: release } = Promise.withResolvers<void>();
    let asked = 0;
    const endpoint = Bun.serve({
      port: 0,
      hostname: "127.0.0.1",
      idleTimeout: 0,
      async fetch() {
        asked++;
        await released;
        return new Response();
      },
    });
    try {
      const url = `http://127.0.0.1:${endpoint.port}/`;
      const made = await server.rpc("WebhookEndpointService", "CreateWebhookEndpoint", {
        url,
        pattern: "hook",
      });
      expect(made.status).toBe(200);
      await rpc("Emit", { event: "hook", data: {} });
      await until(() => asked === 1, { about: "the first call" });
      await emitAll("hook");
      release();
      await until(() => asked === 1 + count, { about: "all calls" });
      expect(most).toBeLessThan(5 * text.length);
    } finally {
      endpoint.stop(true);
    }
  }, 120_000);

  test("a page of dead letters has as many as are read at once, and says so", async () => {
    await server.running.domain.store.write((session) =>
      session.run(sql`INSERT INTO outbox (id, environment_id, event_id, topic, kind, payload, metadata, created_at, attempts,
          due_at, dead_at) WITH RECURSIVE n(at) AS (SELECT 1 UNION ALL SELECT at + 1 FROM n WHERE at < ${count})
        SELECT 'ob_' || at, ${server.env}, 'ev_' || at, 'events:large', 'delayed', ${text}, '{}', 1, 1, 1, at FROM n`),
    );
    most = 0;
    const seen: string[] = [];
    for (let pages = 1; ; pages++) {
      const path = `/api/v1/outbox/dead-letter?env=${server.env}&limit=50&offset=${seen.length}`;
      const { items, limit } = (await server.api(path)).body;
      seen.push(...items.map(({ id }: { id: string }) => id));
      if (items.length === limit) continue;
      expect(pages).toBe(2);
      break;
    }
    expect(new Set(seen).size).toBe(count);
    expect(most).toBeLessThan(charsMax);
  });
});
