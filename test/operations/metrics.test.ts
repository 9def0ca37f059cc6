import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { sql } from "../../src/kit/sql.ts";
import { version } from "../../src/kit/version.ts";
import { samplesOf } from "../support/metrics.ts";
import { sharedNats } from "../support/nats.ts";
import { runOnce } from "../support/one-run.ts";
import { engines, makeHome, startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

const read = async (server: TestServer) => samplesOf(await textOf(server));

async function textOf({ running }: TestServer): Promise<string> {
  const answer = await fetch(running.metricsUrl!);
  expect(answer.status).toBe(200);
  expect(answer.headers.get("content-type")).toStartWith("text/plain; version=0.0.4");
  return answer.text();
}

/** proto/README.md 'Metrics that dashboards read' and what an operator of ours needs besides. */
const everywhere = [
  'svc_runs_total{status="completed"}',
  "svc_run_duration_seconds_count",
  "svc_step_duration_seconds_count",
  "svc_active_runs",
  "svc_events_emitted_total",
  'svc_stream_appends_total{outcome="committed"}',
  'svc_stream_appends_total{outcome="conflict"}',
  "svc_websockets_open",
  "svc_connections_closed_total",
  "svc_workers_connected",
  "svc_worker_disconnects_total",
  "svc_unserved_runs_total",
  'svc_loop_last_progress_timestamp_seconds{loop="runs.wake"}',
  'svc_loop_failures_total{loop="workers.heartbeats"}',
  'svc_flush_items_count{flush="events.emit"}',
  'svc_flush_duration_seconds_count{flush="runs.settle"}',
  'svc_flush_waiting{flush="events.emit"}',
  'svc_flush_refused_total{flush="runs.settle"}',
  'svc_projections{mode="managed",status="running"}',
  'svc_projection_lag_positions{mode="external"}',
  "svc_projection_waits",
  "svc_projection_streams_open",
  "svc_projection_events_delivered_total",
  "svc_projection_saves_total",
  'svc_agent_tool_calls_total{outcome="answered"}',
  'svc_agent_tool_calls_total{outcome="refused"}',
  'svc_agent_tool_calls_total{outcome="failed"}',
  'svc_agent_tool_calls_total{outcome="spared"}',
  'svc_webhook_calls_total{outcome="delivered"}',
  'svc_webhook_calls_total{outcome="failed"}',
  'svc_webhook_calls_total{outcome="dead_lettered"}',
  'svc_repair_runs_total{outcome="done"}',
  'svc_repairs_open{status="running"}',
  'svc_webhook_endpoints{status="active"}',
  'svc_webhook_endpoints{status="paused"}',
  'svc_webhook_endpoints{status="disabled"}',
  "svc_webhook_lag_positions",
  "svc_webhook_dead_letters",
  "svc_webhook_senders",
  "svc_bus_connected",
  'svc_bus_hints_total{direction="out"}',
  'svc_bus_hints_total{direction="in"}',
  "svc_bus_hints_dropped_total",
  "svc_bus_hint_lag_seconds_count",
  "svc_clock_offset_seconds",
  "svc_clock_uncertainty_seconds",
  "process_resident_memory_bytes",
  "nodejs_eventloop_lag_p99_seconds",
];
const onPostgres = [
  ...["general", "hot"].flatMap((pool) =>
    ["connections", "in_use", "waiting", "wait_seconds_count"].map(
      (name) => `svc_store_pool_${name}{pool="${pool}"}`,
    ),
  ),
  ...["deadlock", "serialization", "lock_timeout"].map((kind) => `svc_store_conflicts_total{kind="${kind}"}`),
  "svc_store_lock_waiters",
];

describe.each(engines)("metrics on %s", (engine) => {
  let server: TestServer;
  const start = (settings = {}) =>
    startTestServer({ engine, settings: { metricsEnabled: true, pollHoldMs: 0, ...settings } });
  beforeAll(async () => {
    server = await start();
  });
  afterAll(() => server.stop());

  test("are not there unless they are wanted", async () => {
    const other = await start({ metricsEnabled: false, metricsPort: 0 });
    try {
      expect(other.running.metricsUrl).toBeUndefined();
      const { status, body } = await other.api("/metrics", { key: null });
      expect([status, body.code]).toEqual([404, "not_found"]);
      expect((await other.api("/api/v1/capabilities")).body.features).not.toContain("prometheus-metrics");
    } finally {
      await other.stop();
    }
  });

  test("have every name, for anyone who asks", async () => {
    const samples = await read(server);
    const wanted = [...everywhere, `svc_build_info{version="${version}",engine="${engine}"}`];
    expect(
      [...wanted, ...(engine === "postgres" ? onPostgres : [])].filter((name) => !(name in samples)),
    ).toEqual([]);
    if (engine === "libsql") expect(Object.keys(samples).filter((name) => /_store_/.test(name))).toEqual([]);
    expect((await server.api("/api/v1/capabilities")).body.features).toContain("prometheus-metrics");
  });

  test("move with what happens: events, runs by their end, steps, flushes", async () => {
    const before = await read(server);
    const step = { name: "one", type: "invoke", status: "completed", duration_ms: 1_500, output: 1 };
    const steps = [
      { ...step, id: "s:one:0" },
      { ...step, id: "s:two:0", duration_ms: 500 },
    ];
    const good = await runOnce(server, "metrics-good", { status: "completed", output: 1, steps });
    expect(good.answer.status).toBe(200);
    // The run is over: nothing changes, so nothing is counted but the flush that found it out.
    expect((await good.again()).status).toBe(409);
    const error = { message: "no", retryable: false };
    await runOnce(server, "metrics-bad", { status: "failed", error });
    await server.rpc("SvcService", "RegisterFunction", {
      id: "metrics-gone",
      triggers: [{ event: "gone.asked" }],
    });
    await server.rpc("SvcService", "Emit", { event: "gone.asked", data: {} });
    await server.rpc("SvcService", "DeleteFunction", { id: "metrics-gone" });
    const after = await read(server);
    const grown = (name: string) => (after[name] ?? 0) - (before[name] ?? 0);
    expect({
      completed: grown('svc_runs_total{status="completed"}'),
      failed: grown('svc_runs_total{status="failed"}'),
      cancelled: grown('svc_runs_total{status="cancelled"}'),
      runs: grown("svc_run_duration_seconds_count"),
      steps: grown("svc_step_duration_seconds_count"),
      stepSeconds: grown("svc_step_duration_seconds_sum"),
      events: grown("svc_events_emitted_total"),
      emits: grown('svc_flush_items_sum{flush="events.emit"}'),
      settled: grown('svc_flush_items_sum{flush="runs.settle"}'),
    }).toEqual({
      completed: 1,
      failed: 1,
      cancelled: 1,
      runs: 3,
      steps: 2,
      stepSeconds: 2,
      events: 3,
      emits: 3,
      settled: 3,
    });
  });

  test("count appends by what became of them", async () => {
    const before = await read(server);
    const append = (method: string, body: object) => server.rpc("EntityStreamService", method, body);
    const target = { entityId: "counted", entityType: "counted" };
    const event = { eventName: "metrics.counted" };
    await append("AppendEvent", { ...target, ...event });
    await append("AppendEvent", { ...target, ...event });
    await append("AppendEvents", { streams: [{ ...target, expectedVersion: 1, events: [event, event] }] });
    await append("AppendEvents", { streams: [{ ...target, expectedVersion: 1, events: [event] }] });
    await append("AppendEvent", { ...target, ...event, entityType: "other", expectedVersion: -1 });
    const after = await read(server);
    const grown = (outcome: string) => {
      const name = `svc_stream_appends_total{outcome="${outcome}"}`;
      return (after[name] ?? 0) - (before[name] ?? 0);
    };
    expect([grown("committed"), grown("conflict")]).toEqual([3, 2]);
  });

  test("count a run that its workers were lost with, and one that took too long", async () => {
    const { store } = server.running.domain;
    const failed = 'svc_runs_total{status="failed"}';
    const before = await read(server);
    const lost = (runId: string) =>
      sql`UPDATE executions SET state = 'leased', wake_at = 1, lost_count = 9 WHERE run_id = ${runId}`;
    const late = (runId: string) => sql`UPDATE executions SET timeout_at = 1 WHERE run_id = ${runId}`;
    for (const [name, change] of [["metrics-lost", lost] as const, ["metrics-late", late] as const]) {
      await server.rpc("SvcService", "RegisterFunction", { id: name, triggers: [{ event: name }] });
      const { body } = await server.rpc("SvcService", "Emit", { event: name, data: {} });
      await store.write((session) => session.run(change(body.runIds[0])));
    }
    // A node that has just begun pardons leases from before it for a moment.
    const counted = async () => {
      await server.running.tick("runs.wake");
      return (await read(server))[failed]! - before[failed]!;
    };
    await until(async () => (await counted()) === 2, { about: "both to be counted" });
    expect(await counted()).toBe(2);
  });

  test("count workers that fell silent for good, once", async () => {
    await server.api("/api/v1/workers/metrics-silent/register", { body: { function_ids: ["f"] } });
    const name = "svc_worker_disconnects_total";
    const before = (await read(server))[name]!;
    await server.running.domain.store.write((session) =>
      session.run(sql`UPDATE workers SET last_heartbeat_at = 1 WHERE id = 'metrics-silent'`),
    );
    // Only the node that leads the duty forgets.
    const forgotten = async () => {
      for (const loop of ["cluster.lead", "workers.forget"]) await server.running.tick(loop);
      return (await read(server))[name]! > before;
    };
    await until(forgotten, { about: "the silent worker to be forgotten" });
    await server.running.tick("workers.forget");
    expect((await read(server))[name]! - before).toBe(1);
  });

  test("of requests go by the route's pattern, whatever strangers ask for", async () => {
    const before = await read(server);
    await server.api("/api/v1/workers/some-worker/jobs?available=1");
    await server.api("/api/v1/workers/other-worker/jobs?available=1", { key: null });
    await server.api("/no/such/path?secret=1");
    await fetch(`${server.url}/no/such/path`, { method: "PROPFIND" }).catch(() => {});
    const after = await read(server);
    const grown = (status: string, method: string, path: string) => {
      const name = `svc_http_requests_total{status_code="${status}",method="${method}",path="${path}"}`;
      return (after[name] ?? 0) - (before[name] ?? 0);
    };
    expect(grown("404", "GET", "/api/v1/workers/{workerId}/jobs")).toBe(1);
    expect(grown("401", "GET", "/api/v1/workers/{workerId}/jobs")).toBe(1);
    expect(grown("404", "GET", "*")).toBe(1);
    expect(grown("200", "GET", "/metrics")).toBe(1);
    const timed =
      'svc_http_request_duration_seconds_count{method="GET",path="/api/v1/workers/{workerId}/jobs"}';
    expect(after[timed]! - (before[timed] ?? 0)).toBe(2);
    const words = Object.keys(after).flatMap((name) => /method="([^"]*)"/.exec(name)?.[1] ?? []);
    expect(
      [...new Set(words)].filter((word) => !/^(GET|HEAD|POST|PUT|PATCH|DELETE|OPTIONS|OTHER)$/.test(word)),
    ).toEqual([]);
  });

  test("say nothing about tenants: no environment, function, event, worker or run", async () => {
    const { runId } = await runOnce(server, "metrics-secretive");
    const text = await textOf(server);
    for (const word of [
      "metrics-",
      "asked",
      "worker-of",
      "some-worker",
      "env_default",
      "secret=",
      runId,
      "ak_",
    ])
      expect(text).not.toContain(word);
  });

  test("may have a port of their own, and are then nowhere else", async () => {
    const apart = await start({ metricsPort: 0 });
    try {
      expect((await apart.api("/metrics")).status).toBe(404);
      expect(new URL(apart.running.metricsUrl!).port).not.toBe(String(apart.running.port));
      await runOnce(apart, "metrics-apart");
      expect((await read(apart))['svc_runs_total{status="completed"}']).toBe(1);
      const { origin } = new URL(apart.running.metricsUrl!);
      for (const path of ["/health", "/api/v1/functions", "/svc.v1.SvcService/Health"])
        expect((await fetch(origin + path)).status).toBe(404);
      // Its own requests are not among the requests of the server.
      expect(Object.keys(await read(apart)).filter((name) => name.includes('path="/metrics"'))).toEqual([]);
    } finally {
      await apart.stop();
    }
  });
});

test("a port for metrics that is in use ends the start with one clear line", async () => {
  const taken = Bun.serve({ port: 0, hostname: "127.0.0.1", fetch: () => new Response() });
  const { port } = taken;
  try {
    const settings = { metricsEnabled: true, metricsPort: port! };
    expect(await startTestServer({ engine: "libsql", settings }).catch((error: Error) => error.message)).toBe(
      `127.0.0.1:${port} is in use: stop the program that has it, or choose another SVC_METRICS_PORT`,
    );
  } finally {
    await taken.stop(true);
  }
});

test("sessions that wait for a lock are seen, and what gave up waiting is counted", async () => {
  const server = await startTestServer({ engine: "postgres", settings: { metricsEnabled: true } });
  const { store } = server.running.domain;
  const touch = sql`UPDATE heads SET epoch = epoch WHERE environment_id = ${server.env}`;
  try {
    let over = false;
    const held = Promise.withResolvers<void>();
    const holder = store.write(async (session) => {
      await session.run(touch);
      held.resolve();
      // An idle transaction would be ended by the server.
      while (!over) await session.all(sql`SELECT pg_sleep(0.5)`);
    });
    await held.promise;
    // One after the other: there is always one that waits.
    const refusals: unknown[] = [];
    const waiters = (async () => {
      while (!over)
        await store
          .write((session) => session.run(touch))
          .catch((error: unknown) => void refusals.push(error));
    })();
    const waiting = sql`SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()`;
    await until(async () => (await store.all(waiting)).length > 0, { about: "a session that waits" });
    await until(async () => (await read(server)).svc_store_lock_waiters === 1, { about: "the gauge" });
    await until(() => refusals.length > 0, { about: "one that gives up" });
    over = true;
    await Promise.all([holder, waiters]);
    for (const refusal of refusals) expect(refusal).toMatchObject({ trouble: "lock_timeout" });
    const counted = (await read(server))['svc_store_conflicts_total{kind="lock_timeout"}'];
    expect(counted).toBe(refusals.length);
  } finally {
    await server.stop();
  }
}, 120_000);

test("hints between two nodes are counted, and how late signs of life come", async () => {
  const nats = (await sharedNats()).url;
  const home = await makeHome("postgres");
  const settings = { metricsEnabled: true, pollHoldMs: 0 };
  const nodes = await Promise.all(
    [1, 2].map(() => startTestServer({ engine: "postgres", nats, home, settings })),
  );
  try {
    const [a, b] = nodes as [TestServer, TestServer];
    await until(async () => ((await read(b)).svc_bus_hint_lag_seconds_count ?? 0) > 0, {
      about: "a sign of life of the other node",
    });
    await a.rpc("SvcService", "RegisterFunction", { id: "hinted", triggers: [{ event: "hinted.asked" }] });
    await until(
      async () => {
        await a.rpc("SvcService", "Emit", { event: "hinted.asked", data: {} });
        return (await read(b))['svc_bus_hints_total{direction="in"}']! > 0;
      },
      { about: "a hint at the other node" },
    );
    const samples = await read(a);
    expect(samples['svc_bus_hints_total{direction="out"}']).toBeGreaterThan(0);
    expect(samples.svc_bus_connected).toBe(1);
    expect(samples['svc_loop_last_progress_timestamp_seconds{loop="bus.presence"}']).toBeGreaterThan(0);
    expect(samples.svc_bus_hint_lag_seconds_sum).toBeLessThan(60);
  } finally {
    for (const node of nodes) await node.stop();
    await home.remove();
  }
}, 120_000);
