import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { usageFunctionsMax, usageKeptDays } from "../../src/domain/record/usage/limits.ts";
import { dayMs, dayOf, dayText } from "../../src/domain/record/usage/rules.ts";
import { column, sql } from "../../src/kit/sql.ts";
import { sharedNats } from "../support/nats.ts";
import { type Assignment, pullWorker } from "../support/pull-worker.ts";
import {
  type Answer,
  type Caller,
  engines,
  makeHome,
  spawnServer,
  startTestServer,
  type TestServer,
} from "../support/server.ts";
import { until } from "../support/until.ts";

type Row = Record<string, string | number | boolean | undefined>;

const usageOf = async (
  server: Pick<Caller, "api">,
  query = "",
  key?: string,
): Promise<{ from: string; to: string; rows: Row[]; total: Row }> => {
  const answer = await server.api(`/api/v1/usage${query}`, key === undefined ? {} : { key });
  expect(answer.status).toBe(200);
  return answer.body;
};
const rowOf = (rows: readonly Row[], id: string) => rows.find(({ function_id }) => function_id === id);

describe.each(engines)("usage on %s", (engine) => {
  let server: TestServer;
  let foreignKey: string;

  const write = () => server.running.tick("usage.write");
  const rpc = async (method: string, body: unknown): Promise<Answer["body"]> => {
    const answer = await server.rpc("SvcService", method, body);
    expect(answer.status).toBe(200);
    return answer.body;
  };
  /** A row of a day, so that what is read does not depend on when the test runs. */
  const plant = (rows: readonly { day: number; functionId: string; started: number }[]) =>
    server.running.domain.store.write((session) =>
      session.run(sql`INSERT INTO usage_days (environment_id, day, function_id, started, completed, failed, cancelled,
          steps, worker_ms, events, event_bytes)
        SELECT ${server.env}, day, function_id, started, 0, 0, 0, 0, 0, 0, 0 FROM ${session.seams.rowsFrom(
          "v",
          {
            day: column.bigint(rows.map(({ day }) => day)),
            function_id: column.text(rows.map(({ functionId }) => functionId)),
            started: column.bigint(rows.map(({ started }) => started)),
          },
        )} WHERE true ON CONFLICT DO NOTHING`),
    );

  beforeAll(async () => {
    server = await startTestServer({ engine, settings: { pollHoldMs: 0, leaseMs: 60_000 } });
    const { keys, tenancy } = server.running.domain;
    const theirs = await tenancy.createEnvironment({ orgId: "org_other", name: "theirs" });
    const scope = { orgId: "org_other", environmentId: theirs.id, name: "test", roleIds: ["role_viewer"] };
    foreignKey = (await keys.create(scope)).key;
  }, 120_000);
  afterAll(() => server.stop());

  test("counts runs, their ends, steps, time of workers and events, by day and by function; others see none of it", async () => {
    await rpc("RegisterFunction", { id: "paid", triggers: [{ event: "asked" }] });
    await rpc("RegisterFunction", { id: "quiet" });
    const worker = pullWorker(server, "w-usage");
    await worker.register("paid");
    const begin = async (): Promise<Assignment> => {
      await rpc("Emit", { event: "asked", data: { n: 1 } });
      return until(async () => (await worker.poll())[0], { about: "a job" });
    };
    const [done, broken, left] = [await begin(), await begin(), await begin()];
    const step = (job: Assignment, name: string, type = "invoke") => ({
      ...{ id: `${job.run_id}:${name}:0`, name, type, status: "completed", output: 1, duration_ms: 5 },
    });
    const steps = [step(done, "one"), step(done, "two")];
    expect((await worker.report(done, { status: "progress", steps, step_offset: 0 })).status).toBe(200);
    await worker.complete(done);
    await worker.report(broken, { status: "failed", error: { message: "no", retryable: false } });
    await worker.leave(left, "nap", { type: "sleep", duration: "2h" });
    await rpc("CancelRun", { id: left.run_id });
    await rpc("InvokeFunction", { functionId: "quiet", data: {} });
    expect((await usageOf(server)).rows).toEqual([]);
    await write();

    const { rows, total, to } = await usageOf(server, "?group_by=function");
    expect(rows.map(({ function_id }) => function_id)).toEqual(["paid", "quiet"]);
    const { worker_ms, ...paid } = rowOf(rows, "paid")!;
    expect(paid).toEqual({
      ...{ function_id: "paid", runs_started: 3, runs_completed: 1, runs_failed: 1, runs_cancelled: 1 },
      steps: 2,
    });
    expect(worker_ms).toBeGreaterThan(0);
    expect(rowOf(rows, "quiet")).toMatchObject({ runs_started: 1, runs_completed: 0, worker_ms: 0 });
    expect(total).toMatchObject({ runs_started: 4, runs_cancelled: 1, steps: 2, worker_ms, events: 4 });
    // Three times {"n":1}, and once {}.
    expect(total.event_bytes).toBe(23);
    const days = await usageOf(server);
    // The test may run over midnight.
    expect(days.rows.length).toBeLessThan(3);
    expect(days.rows.at(-1)!.day).toBe(to);
    expect(days.total).toEqual(total);
    const ofPaid = await usageOf(server, "?function_id=paid");
    expect(ofPaid.rows.every(({ function_id, day }) => function_id === "paid" && day !== undefined)).toBe(
      true,
    );
    expect(ofPaid.total).toMatchObject({ runs_started: 3, events: 0 });
    expect((await usageOf(server, "?function_id=none")).rows).toEqual([]);
    expect((await usageOf(server, "", foreignKey)).total).toMatchObject({ runs_started: 0, events: 0 });
    expect((await usageOf(server, "?group_by=function&function_id=paid", foreignKey)).rows).toEqual([]);

    const message = await rpc("GetUsage", { groupBy: "function" });
    expect(message.total).toMatchObject({ runsStarted: "4", events: "4" });
    expect(message.rows[0]).toMatchObject({ functionId: "paid", runsFailed: "1" });
  });

  test("answers CSV to who asks for it, by the query or by the header", async () => {
    const byQuery = await server.api("/api/v1/usage?group_by=function&format=csv");
    const headers = { accept: "text/csv" };
    const byHeader = await server.api("/api/v1/usage?group_by=function", { headers });
    expect(byQuery.headers.get("content-type")).toStartWith("text/csv");
    expect(byQuery.body).toBe(byHeader.body);
    const [head, first] = String(byQuery.body).split("\r\n");
    expect(head).toBe("function_id,runs_started,runs_completed,runs_failed,runs_cancelled,steps,worker_ms");
    expect(first).toStartWith("paid,3,1,1,1,2,");
    const days = (await server.api("/api/v1/usage?format=csv")).body as string;
    expect(days).toStartWith("day,runs_started,");
    expect(days).toContain("event_bytes\r\n");
  });

  test("refuses days, groupings and formats that it does not know, and too many days", async () => {
    for (const [query, field] of [
      ["from=2026-02-30", "from"],
      ["to=tomorrow", "to"],
      ["from=2026-01-01&to=2025-01-01", "from"],
      ["from=2025-01-01&to=2026-01-01", "from"],
      ["group_by=hour", "group_by"],
      ["format=xml", "format"],
    ] as const) {
      const { status, body } = await server.api(`/api/v1/usage?${query}`);
      expect({ query, status, field: body.field }).toEqual({ query, status: 400, field });
    }
  });

  test("leaves out functions that deny policies keep from the caller, and what they used from the sum", async () => {
    const role = (await server.api("/api/v1/roles", { body: { name: "no-paid", base: "viewer" } })).body;
    const policy = await server.api("/api/v1/policies", {
      body: {
        ...{ name: "no-paid", effect: "deny", actions: "functions:read", condition: "true" },
        resources: "irn:svc:*:*:function:*:paid",
      },
    });
    await server.api(`/api/v1/roles/${role.id}/policies`, { body: { policy_id: policy.body.id } });
    const { key } = (await server.api("/api/v1/apikeys", { body: { name: "blind", role_ids: [role.id] } }))
      .body;
    const { rows, total } = await usageOf(server, "?group_by=function", key);
    expect(rows.map(({ function_id }) => function_id)).toEqual(["quiet"]);
    expect(total.runs_started).toBe(1);
    expect((await usageOf(server, "?function_id=paid", key)).rows).toEqual([]);
    const { body } = await server.api("/api/v1/usage?group_by=function&format=csv", { key });
    expect(body).not.toContain("paid");
  });

  test("tells a bounded number of functions a day apart, also over several writes", async () => {
    const day = dayOf(Date.now());
    // Of the next day too, which may begin before the counts are written.
    const named = Array.from({ length: usageFunctionsMax }, (_, at) => `planted-${at}`);
    await plant(
      [day, day + dayMs].flatMap((at) => named.map((functionId) => ({ day: at, functionId, started: 5 }))),
    );
    for (const id of ["late-one", "late-two"]) {
      await rpc("RegisterFunction", { id });
      await rpc("InvokeFunction", { functionId: id, data: {} });
    }
    await write();
    const to = dayText(day + dayMs);
    const { rows, total } = await usageOf(server, `?group_by=function&to=${to}`);
    expect(rowOf(rows, "late-one")).toBeUndefined();
    const other = rows.find((row) => row.other);
    expect(other!.runs_started).toBeGreaterThanOrEqual(2);
    expect(rows).toHaveLength(usageFunctionsMax + 1);
    const sum = rows.reduce((all, { runs_started }) => all + Number(runs_started), 0);
    expect(total.runs_started).toBe(sum);
  });

  test("forgets what is older than its time, and nothing else", async () => {
    const old = dayOf(Date.now()) - (usageKeptDays + 1) * dayMs;
    await plant([
      { day: old, functionId: "paid", started: 1 },
      { day: old + 2 * dayMs, functionId: "paid", started: 2 },
    ]);
    const { store } = server.running.domain;
    const kept = () =>
      store.all<{ started: number }>(
        sql`SELECT started FROM usage_days WHERE day < ${old + 3 * dayMs} ORDER BY day`,
      );
    await until(
      async () => {
        await server.running.tick("usage.forget");
        return (await kept()).length === 1;
      },
      { about: "the old day to be forgotten" },
    );
    expect(await kept()).toEqual([{ started: 2 }]);
  });
});

test("two nodes count together; a killed one loses what it had not written, and no more", async () => {
  const nats = await sharedNats();
  const home = await makeHome("postgres");
  const node = await startTestServer({ engine: "postgres", nats: nats.url, home });
  const other = await spawnServer({ engine: "postgres", nats: nats.url, home });
  const events = async () => Number((await usageOf(node)).total.events);
  const emit = (at: Pick<Caller, "rpc">) => at.rpc("SvcService", "Emit", { event: "counted", data: {} });
  try {
    await emit(node);
    for (let count = 0; count < 3; count++) await emit(other);
    await node.running.tick("usage.write");
    expect(await events()).toBe(1);
    // A stop writes what is left.
    await other.terminate();
    expect(await events()).toBe(4);
    await other.restart();
    await emit(other);
    await other.kill9();
    await emit(node);
    await node.running.tick("usage.write");
    expect(await events()).toBe(5);
  } finally {
    await other.stop();
    await node.stop();
    await home.remove();
  }
}, 120_000);
