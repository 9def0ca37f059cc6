import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { sql } from "../../src/kit/sql.ts";
import { projectionCaller } from "../support/projections.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

const table = (name: string) =>
  `CREATE TABLE proj_${name} (id text PRIMARY KEY, total numeric NOT NULL DEFAULT 0, n int CHECK (n < 100), ok boolean, at timestamptz)`;
const handlers = (name: string) => ({
  "order.placed": `INSERT INTO proj_${name} (id, total, n, ok, at)
    VALUES (:data.id, :data.total, 1, :data.ok, :timestamp)
    ON CONFLICT (id) DO UPDATE SET total = proj_${name}.total + excluded.total, n = proj_${name}.n + 1`,
  "order.gone": `DELETE FROM proj_${name} WHERE id = lower(CAST(:data AS jsonb)->>'id')`,
  "order.moved": `UPDATE proj_${name} SET total = CAST(:data->'to'->>'total' AS numeric)
    WHERE id = :data->>'id' AND :data.to->>'total' <> ''`,
  "order.all": `UPDATE proj_${name} SET n = n + :data.by WHERE total >= :data.least`,
});

describe.each(engines)("SQL projections on %s", (engine) => {
  let server: TestServer;
  let caller: ReturnType<typeof projectionCaller>;
  beforeAll(async () => {
    server = await startTestServer({ engine });
    caller = projectionCaller(server);
  }, 120_000);
  afterAll(() => server?.stop());

  const create = (name: string, more: object = {}) =>
    caller.call("CreateSQLProjection", {
      ...{ name, tableSql: table(name.replaceAll("-", "_")), events: ["order.*"] },
      ...{ eventHandlers: handlers(name.replaceAll("-", "_")), ...more },
    });
  const rows = async (name: string, more: object = {}) => {
    const body = await caller.ok("QuerySQLProjection", { name, ...more });
    return (body.rows ?? []).map(({ typedValues }: { typedValues: unknown[] }) => typedValues);
  };
  const folded = async (name: string, minSeq: number) => {
    const body = await caller.ok("WaitProjectionCatchup", { name, minSeq: `${minSeq}`, timeout: "20s" });
    expect(body.caughtUp).toBe(true);
  };
  const untilStatus = (name: string, status: string) =>
    until(async () => ((await caller.status(name)).status === status ? true : undefined), {
      about: `${name} to be ${status}`,
      deadlineMs: 20_000,
    });

  test("events become rows: inserted, added up, changed and deleted", async () => {
    expect((await create("big-orders", { description: "orders" })).body).toEqual({
      ...{ name: "big-orders", status: "running" },
    });
    await caller.emit("order.placed", { id: "a", total: 9.5, ok: true });
    await caller.emit("order.placed", { id: "a", total: 2 });
    await caller.emit("order.placed", { id: "b", total: 1, ok: false });
    await caller.emit("order.placed", { id: "c", total: 3 });
    await caller.emit("order.all", { by: 5, least: 3 });
    await caller.emit("order.ignored", {});
    await caller.emit("order.moved", { id: "a", to: { total: 12.5 } });
    const last = await caller.emit("order.gone", { id: "c" });
    await folded("big-orders", last.seq);
    const { body } = await caller.call("QuerySQLProjection", { name: "big-orders", orderBy: "id" });
    expect(body.columns).toEqual(["id", "total", "n", "ok", "at"]);
    const ok = engine === "postgres" ? [true, false] : [1, 0];
    expect(body.rows.map((row: { typedValues: unknown[] }) => row.typedValues.slice(0, 4))).toEqual([
      ...[
        ["a", 12.5, 7, ok[0]],
        ["b", 1, 1, ok[1]],
      ],
    ]);
    expect([body.totalCount, body.rows[0].values.slice(0, 3)]).toEqual([2, ["a", "12.5", "7"]]);
    const read = await server.rpc("QueryService", "ExecuteSQL", {
      query:
        "SELECT p.id, count(*) AS events FROM proj_big_orders p JOIN events e ON lower(e.data->>'id') = p.id GROUP BY p.id ORDER BY 1",
    });
    expect(read.body.rows).toEqual([{ values: ["a", "3"] }, { values: ["b", "1"] }]);
    const info = await caller.ok("GetProjection", { name: "big-orders" });
    expect(info.registry).toMatchObject({
      type: "sql",
      mode: "sql",
      description: "orders",
      status: "active",
    });
    expect(info.registry.sqlDefinition).toContain("CREATE TABLE proj_big_orders");
    expect(info.state).toBeUndefined();
    const event = await caller.ok("WaitForEvent", { eventId: last.id, projection: "big-orders" });
    expect([event.caughtUp, event.mode]).toEqual([true, "sql"]);
  });

  test("a table of before texts were sorted by their bytes is the same table", async () => {
    const { store } = server.running.domain;
    await create("old-order");
    await store.write((session) =>
      session.run(sql`UPDATE sql_projections SET admitted = replace(admitted, ${' COLLATE \\"C\\"'}, '')
        WHERE name = 'old-order'`),
    );
    expect((await create("old-order")).status).toBe(200);
  });

  test("conditions and orders are read by a grammar of their own, with values apart", async () => {
    const name = "big-orders";
    const of = async (where: string, more: object = {}) =>
      (await rows(name, { where, orderBy: "id DESC", ...more })).map(([id]: unknown[]) => id);
    expect(await of("total > 5 AND NOT (id = 'b')")).toEqual(["a"]);
    expect(await of("id IN ('a', 'b') AND n BETWEEN 0 AND 7")).toEqual(["b", "a"]);
    expect(await of("id LIKE 'a%' OR ok IS NULL")).toEqual(["a"]);
    expect(await of("id LIKE 'A%' OR id LIKE 'a\\%'")).toEqual([]);
    expect(await of("id = 'a'' OR 1=1'")).toEqual([]);
    expect(await of("", { limit: 1, offset: 1 })).toEqual(["a"]);
    const one = await caller.ok("QuerySQLProjection", { name, limit: 1 });
    expect([one.rows.length, one.totalCount]).toEqual([1, 2]);
    for (const bad of [
      ...[
        "1=1",
        "id = 'a'; DROP TABLE x",
        "id = lower('A')",
        "id = (SELECT 1)",
        "id = 'a' --",
        "id",
        "nowhere = 1",
      ],
      ...[
        "id ~ 'a'",
        "id = $1",
        "id::text = 'a'",
        "pg_sleep(1) = 1",
        "id = 'a' UNION SELECT 1",
        "id IN ()",
        "(",
      ],
    ]) {
      const { status, body } = await caller.call("QuerySQLProjection", { name, where: bad });
      expect([bad, status, body.code]).toEqual([bad, 400, "invalid_argument"]);
    }
    expect((await caller.call("QuerySQLProjection", { name, orderBy: "id; x" })).status).toBe(400);
  });

  test("definitions that do more than fold their own table are refused, and leave nothing", async () => {
    for (const more of [
      ...[{ tableSql: "CREATE TABLE proj_other (id text)" }, { tableSql: "SELECT 1" }],
      { tableSql: "CREATE TABLE proj_bad (id text DEFAULT pg_read_file('/etc/passwd'))" },
      { tableSql: "CREATE TABLE proj_bad (id text); DROP TABLE events" },
      { tableSql: "CREATE TABLE proj_bad (id text) ; ATTACH 'x' AS y" },
      { eventHandlers: { "order.placed": "INSERT INTO events (id) VALUES ('x')" } },
      { eventHandlers: { "order.placed": "INSERT INTO proj_bad (id) SELECT id FROM runs" } },
      { eventHandlers: { "order.placed": "UPDATE proj_bad SET id = (SELECT id FROM runs)" } },
      { eventHandlers: { "order.placed": "INSERT INTO proj_bad (nowhere) VALUES (:data.x)" } },
      { eventHandlers: { "order.placed": "DELETE FROM proj_bad WHERE id = :secret" } },
      { eventHandlers: { "order.placed": "DELETE FROM proj_bad; DELETE FROM proj_bad" } },
      { eventHandlers: { "order.placed": "DELETE FROM proj_bad WHERE pg_sleep(1) = 1" } },
    ]) {
      const { status, body } = await create("bad", more);
      expect([more, status, body.code]).toEqual([more, 400, "invalid_argument"]);
    }
    for (const name of ["Bad", "1bad", "", "b".repeat(46)])
      expect([name, (await create(name)).body.code]).toEqual([name, "invalid_argument"]);
    expect((await caller.call("GetProjection", { name: "bad" })).status).toBe(404);
    expect((await create("big_orders")).body).toMatchObject({
      ...{ code: "already_exists", message: 'projection "big-orders" has table proj_big_orders already' },
    });
    expect((await create("big-orders")).status).toBe(200);
    const other = await create("big-orders", {
      tableSql: "CREATE TABLE proj_big_orders (id text, total int, n int, ok boolean, at timestamptz)",
    });
    expect(other.body.code).toBe("already_exists");
  });

  test("an event that fails stops the projection before it, until it is skipped", async () => {
    await create("strict", {
      events: ["strict.*"],
      eventHandlers: {
        "strict.add": "INSERT INTO proj_strict (id, total, n) VALUES (:data.id, 1, :data.n)",
      },
    });
    const first = await caller.emit("strict.add", { id: "x", n: 1 });
    await folded("strict", first.seq);
    await caller.emit("strict.add", { id: "y", n: 1 });
    const bad = await caller.emit("strict.add", { id: "z", n: 1_000 });
    const last = await caller.emit("strict.add", { id: "w", n: 1 });
    await untilStatus("strict", "error");
    const status = await caller.status("strict");
    expect(status).toMatchObject({ errorEventId: bad.id, errorEventSeq: `${bad.seq}` });
    expect(status.errorMessage).toMatch(/check/i);
    expect((await rows("strict", { orderBy: "id" })).map(([id]: unknown[]) => id)).toEqual(["x", "y"]);
    const waiting = await caller.call("WaitProjectionCatchup", { name: "strict", minSeq: `${last.seq}` });
    expect(waiting.body.code).toBe("failed_precondition");
    await caller.ok("ResumeProjection", { name: "strict" });
    await untilStatus("strict", "error");
    await caller.ok("ResumeProjection", { name: "strict", skipEventId: bad.id });
    await folded("strict", last.seq);
    expect((await rows("strict", { orderBy: "id" })).map(([id]: unknown[]) => id)).toEqual(["w", "x", "y"]);
  });

  test("it is paused, rebuilt both ways and deleted, and its table goes with it", async () => {
    const name = "moving";
    await create(name, {
      events: ["moving.*"],
      eventHandlers: {
        "moving.add": "INSERT INTO proj_moving (id, n) VALUES (:event_id, :sequence)",
      },
    });
    const ids = async () => (await rows(name)).length;
    let last = { seq: 0 };
    for (let at = 0; at < 5; at++) last = await caller.emit("moving.add");
    await folded(name, last.seq);
    await caller.ok("PauseProjection", { name });
    last = await caller.emit("moving.add");
    expect(await ids()).toBe(5);
    await caller.ok("ResumeProjection", { name });
    await folded(name, last.seq);
    for (const strategy of ["in_place", "side_by_side"]) {
      await caller.ok("RebuildProjection", { name, strategy });
      await until(
        async () =>
          (await caller.ok("GetRebuildJob", { name })).job.status === "completed" ? true : undefined,
        { about: "the rebuild to be complete", deadlineMs: 20_000 },
      );
      await untilStatus(name, "running");
      expect([strategy, await ids()]).toEqual([strategy, 6]);
    }
    expect((await caller.call("PollProjectionEvents", { name })).body.code).toBe("failed_precondition");
    expect((await caller.call("RegisterProjection", { name, events: ["x.y"] })).body.code).toBe(
      "already_exists",
    );
    await caller.ok("UnregisterProjection", { name });
    const gone = await server.rpc("QueryService", "ExecuteSQL", { query: "SELECT * FROM proj_moving" });
    expect([gone.status, gone.body.code]).toEqual([400, "invalid_argument"]);
    await create(name, {
      events: ["moving.*"],
      eventHandlers: {
        "moving.add": "INSERT INTO proj_moving (id, n) VALUES (:event_id, 1)",
      },
    });
    await folded(name, last.seq);
    expect(await ids()).toBe(6);
  });

  test("with the position of a write, what is read shows it", async () => {
    await create("fresh-orders");
    for (let n = 1; n <= 5; n++) {
      const emitted = await server.rpc("SvcService", "Emit", {
        event: "order.placed",
        data: { id: `o${n}`, total: n },
      });
      const headers = { "x-svc-min-sequence": emitted.headers.get("x-svc-sequence")! };
      const page = { name: "fresh-orders", where: `id = 'o${n}'` };
      const read = await server.rpc("ProjectionService", "QuerySQLProjection", page, { headers });
      expect(read).toMatchObject({ status: 200, body: { totalCount: 1 } });
      const query = `SELECT id FROM proj_fresh_orders WHERE id = 'o${n}'`;
      const answer = await server.rpc("QueryService", "ExecuteSQL", { query }, { headers });
      expect(answer).toMatchObject({ status: 200, body: { rows: [{ values: [`o${n}`] }] } });
    }
    const headers = { "x-svc-min-sequence": "0.1" };
    for (const query of ["SELECT count(*) FROM proj_fresh_orders", "SELECT count(*) FROM events"])
      expect((await server.rpc("QueryService", "ExecuteSQL", { query }, { headers })).body.code).toBe(
        "failed_precondition",
      );
  }, 120_000);
});
