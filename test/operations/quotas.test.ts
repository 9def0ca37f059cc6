import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { minuteOf } from "../../src/domain/engine/quotas/rules.ts";
import { sql } from "../../src/kit/sql.ts";
import { pullWorker } from "../support/pull-worker.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

const root = { email: "root@example.com", password: "correct horse battery", name: "Root" };

describe.each(engines)("quotas on %s", (engine) => {
  let server: TestServer;
  let platform: string;

  interface Used {
    quota: string;
    limit: number;
    used: number;
  }
  const path = () => `/api/v1/environments/${server.env}/quotas`;
  const set = (body: object, key?: string) =>
    server.api(path(), { method: "PUT", body, ...(key !== undefined && { key }) });
  const lift = async () => {
    const none = { runs_per_minute: null, stored_bytes: null, concurrent_runs: null };
    await set(none);
    await set(none, platform);
  };
  const uses = async () =>
    Object.fromEntries(
      ((await server.api("/api/v1/overview")).body.quotas as Used[]).map((one) => [one.quota, one]),
    );
  const emit = (event: string, data: unknown = {}, more: object = {}) =>
    server.rpc("SvcService", "Emit", { event, data, ...more });
  const define = (id: string, options: object = {}) =>
    server.rpc("SvcService", "RegisterFunction", { id, triggers: [{ event: id }], ...options });
  const write = (text: ReturnType<typeof sql>) =>
    server.running.domain.store.write((session) => session.run(text));
  const ledger = () => server.running.domain.store.all(sql`SELECT minute_runs, runs_per_minute FROM quotas`);
  const countRuns = async (functionId: string) =>
    (await server.running.domain.store.all(sql`SELECT id FROM runs WHERE function_id = ${functionId}`))
      .length;

  beforeAll(async () => {
    server = await startTestServer({ engine, settings: { pollHoldMs: 0 } });
    await server.api("/api/v1/platform/bootstrap", { body: root });
    const { email, password } = root;
    platform = (await server.api("/api/v1/platform/auth/login", { body: { email, password }, key: null }))
      .body.token;
  });
  afterAll(() => server.stop());

  test("runs a minute: exactly so many begin, whoever asks; what is refused changes nothing", async () => {
    await define("counted");
    expect((await set({ runs_per_minute: 10 })).body.quotas).toMatchObject([{ limit: 10, used: 0 }]);
    // A minute that does not end while this test runs.
    await write(sql`UPDATE quotas SET minute = ${minuteOf(Date.now()) + 60 * 60_000}`);
    const answers = await Promise.all(Array.from({ length: 25 }, (_, n) => emit("counted", { n })));
    const ok = answers.filter(({ status }) => status === 200);
    expect(ok).toHaveLength(10);
    expect(await countRuns("counted")).toBe(10);
    const refused = answers.find(({ status }) => status !== 200)!;
    expect(refused.status).toBe(429);
    expect(refused.body).toMatchObject({ code: "resource_exhausted" });
    expect(refused.body.message).toMatch(/quota runs_per_minute .* limit 10, used 10, again at \d{4}-/);
    expect(Number(refused.headers.get("retry-after"))).toBeGreaterThan(0);
    expect(refused.headers.get("svc-error-reason")).toBe("QUOTA_EXCEEDED");
    const logged = await server.running.domain.store.all(sql`SELECT id FROM events WHERE name = 'counted'`);
    expect(logged).toHaveLength(10);
    // Events that start nothing pass, and a refused key stays free.
    expect((await emit("nobody.listens")).status).toBe(200);
    const key = { idempotencyKey: "later" };
    expect((await emit("counted", {}, key)).status).toBe(429);
    await write(sql`UPDATE quotas SET minute = 0`);
    expect((await emit("counted", {}, key)).body.runIds).toHaveLength(1);
    expect(await ledger()).toMatchObject([{ minute_runs: 1, runs_per_minute: 10 }]);
    await lift();
    expect((await server.api("/api/v1/overview")).body.quotas).toEqual([]);
    expect((await emit("counted")).status).toBe(200);
  });

  test("concurrent runs: another begins once one ends", async () => {
    await define("held");
    const active = (await server.running.domain.store.all(sql`SELECT run_id FROM executions`)).length;
    await set({ concurrent_runs: active + 2 });
    const answers = await Promise.all(Array.from({ length: 9 }, () => emit("held")));
    expect(answers.filter(({ status }) => status === 200)).toHaveLength(2);
    expect(answers.find(({ status }) => status !== 200)!.body.message).toContain("again once a run ends");
    const invoked = await server.rpc("SvcService", "InvokeFunction", { functionId: "held", data: {} });
    expect(invoked.status).toBe(429);
    const worker = pullWorker(server, "w");
    await worker.register("held");
    const [job] = await worker.poll(1);
    await worker.complete(job!);
    expect((await uses()).concurrent_runs).toMatchObject({ used: active + 1 });
    expect((await emit("held")).status).toBe(200);
    expect((await emit("held")).status).toBe(429);
    const [failing] = await worker.poll(1);
    await worker.report(failing!, { status: "failed", error: { message: "no", retryable: false } });
    expect((await emit("held")).status).toBe(200);
    const resumed = await server.rpc("SvcService", "ResumeRun", { runId: failing!.run_id });
    expect(resumed.status).toBe(200);
    // What a person lets go on is not refused, but counts.
    expect((await uses()).concurrent_runs).toMatchObject({ used: active + 3 });
    const { store } = server.running.domain;
    expect(await store.all(sql`SELECT active_runs AS count FROM quotas`)).toEqual([{ count: active + 3 }]);
    await lift();
  });

  test("stored bytes: what is there counts, and what goes is free again", async () => {
    await set({ stored_bytes: 2 ** 40 });
    const { used } = (await uses()).stored_bytes!;
    expect(used).toBeGreaterThan(0);
    await set({ stored_bytes: used + 1_000 });
    expect((await emit("stored", "x".repeat(500))).status).toBe(200);
    const refused = await emit("stored", "x".repeat(600));
    expect(refused.body.message).toContain("quota stored_bytes of the environment is used up");
    const batch = [
      { event: "stored", data: 1 },
      { event: "stored", data: "x".repeat(600) },
    ];
    expect((await server.rpc("SvcService", "TriggerBatch", { events: batch })).status).not.toBe(200);
    expect((await uses()).stored_bytes).toMatchObject({ used: used + 502 });
    const stream = { entityId: "e", entityType: "t", eventName: "kept", data: "x".repeat(100) };
    const { eventId } = (await server.rpc("EntityStreamService", "AppendEvent", stream)).body;
    expect((await uses()).stored_bytes).toMatchObject({ used: used + 502 + 102 });
    await server.rpc("EntityStreamService", "RedactEvent", { entityId: "e", eventId });
    expect((await uses()).stored_bytes).toMatchObject({ used: used + 502 + 4 });
    await write(sql`DELETE FROM executions`);
    await write(sql`UPDATE runs SET status = 'completed'`);
    await write(sql`UPDATE events SET at = 1`);
    await server.api("/api/v1/retention", { method: "PUT", body: { days: 1 } });
    await until(
      async () => {
        await server.running.tick("events.expire");
        expect((await uses()).stored_bytes!.used).toBe(4);
        return true;
      },
      { about: "the bytes to be free" },
    );
    await lift();
  });

  test("stored bytes of what is no event count, and what goes is free again", async () => {
    await set({ stored_bytes: 2 ** 40 });
    const first = (await uses()).stored_bytes!.used;
    const used = async () => (await uses()).stored_bytes!.used - first;
    const large = "x".repeat(998);
    const at = new Date(Date.now() + 3_600_000).toISOString();
    const delay = (idempotencyKey: string) => emit("stored.late", large, { at, idempotencyKey });
    const { delayedId } = (await delay("one")).body;
    expect((await delay("one")).body.delayedId).toBe(delayedId);
    expect(await used()).toBe(1_000);
    const publish = (more: object = {}) =>
      server.rpc("PubSubService", "Publish", { topic: "stored", data: large, ...more });
    expect((await publish({ idempotencyKey: "once" })).status).toBe(200);
    await publish({ idempotencyKey: "once" });
    expect(await used()).toBe(2_000);
    await server.api("/api/v1/kv/buckets", { body: { name: "stored", history: 3 } });
    const key = (name: string) => `/api/v1/kv/buckets/stored/keys/${name}`;
    const put = (name: string) => server.api(key(name), { method: "PUT", body: large });
    for (const name of ["a", "a", "a", "a", "b"]) expect((await put(name)).status).toBeLessThan(300);
    // Two values of `a` are history; that of before is gone.
    expect(await used()).toBe(2_000 + 4 * 1_000);
    await server.api(key("b"), { method: "DELETE" });
    expect(await used()).toBe(2_000 + 4 * 1_000);
    await set({ stored_bytes: first + 6_500 });
    for (const refused of [
      await put("c"),
      await publish(),
      await delay("two"),
      await emit("stored", large),
    ]) {
      expect(refused.status).toBe(429);
      expect(refused.headers.get("svc-error-reason") ?? refused.body.code).toBe("QUOTA_EXCEEDED");
    }
    // Emitted beside a full quota, a delayed event counts as the event that it is then.
    await set({ stored_bytes: first + 6_000 });
    await write(sql`UPDATE delayed_events SET due_at = 1, wake_at = 1`);
    await server.running.tick("events.delayed");
    await until(async () => (await server.api("/api/v1/events?name=stored.late")).body.events.length === 1, {
      about: "the delayed event",
    });
    expect((await server.api("/api/v1/delayed-events")).body.events).toEqual([]);
    expect(await used()).toBe(6_000);
    expect((await server.api(`/api/v1/delayed-events/${delayedId}`, { method: "DELETE" })).status).toBe(404);
    await server.api("/api/v1/kv/buckets/stored", { method: "DELETE" });
    await write(sql`UPDATE topic_messages SET at = 1`);
    await until(
      async () => {
        for (const loop of ["kv.expire", "topics.expire"]) await server.running.tick(loop);
        expect(await used()).toBe(1_000);
        return true;
      },
      { about: "the bytes to be free" },
    );
    // Counted anew, it is the same.
    await set({ stored_bytes: 2 ** 40 });
    expect(await used()).toBe(1_000);
    await lift();
  });

  test("a ledger from before counts events alone until its limits are set, and never less than nothing", async () => {
    await set({ stored_bytes: 2 ** 40 });
    const used = async () => (await uses()).stored_bytes!.used;
    const first = await used();
    await server.api("/api/v1/kv/buckets", { body: { name: "old" } });
    const put = (name: string) =>
      server.api(`/api/v1/kv/buckets/old/keys/${name}`, { method: "PUT", body: "x".repeat(998) });
    const at = new Date(Date.now() + 3_600_000).toISOString();
    const delay = (event: string) => emit(event, "x".repeat(998), { at });
    await put("a");
    const { delayedId } = (await delay("old.cancelled")).body;
    await delay("old.late");
    await write(sql`UPDATE quotas SET bytes = ${first}, counts_all = 0`);
    await put("b");
    expect((await server.api(`/api/v1/delayed-events/${delayedId}`, { method: "DELETE" })).status).toBe(204);
    await server.api("/api/v1/kv/buckets/old/keys/a", { method: "DELETE" });
    expect(await used()).toBe(first);
    await write(sql`UPDATE delayed_events SET due_at = 1, wake_at = 1`);
    await server.running.tick("events.delayed");
    await until(async () => (await used()) === first + 1_000, { about: "the event to count" });
    await set({ runs_per_minute: 1_000 });
    expect(await used()).toBe(first + 2_000);
    // Further changes count nothing again.
    await write(sql`UPDATE quotas SET bytes = bytes + 5`);
    await set({ runs_per_minute: 1_001 });
    expect(await used()).toBe(first + 2_005);
    await server.api("/api/v1/kv/buckets/old", { method: "DELETE" });
    await until(
      async () => {
        await server.running.tick("kv.expire");
        expect(await used()).toBe(first + 1_005);
        return true;
      },
      { about: "the bytes to be free" },
    );
    await lift();
  });

  // The first limits counted what was committed, and what was under way noted nothing: it was stored uncounted.
  if (engine === "postgres")
    test("the first limits count what is under way as they are set", async () => {
      await lift();
      const foreign = new Bun.SQL(server.home.place.databaseUrl!, { max: 2 });
      const waiters = async () => {
        const [row] = await foreign`SELECT count(*)::int AS count FROM pg_stat_activity
          WHERE datname = current_database() AND wait_event_type = 'Lock'`;
        return row.count as number;
      };
      const put = (body: string) => server.api("/api/v1/kv/buckets/busy/keys/a", { method: "PUT", body });
      await server.api("/api/v1/kv/buckets", { body: { name: "busy" } });
      await put("small");
      const blocker = await foreign.reserve();
      await blocker`BEGIN`;
      await blocker`SELECT key FROM kv_keys WHERE key = 'a' FOR UPDATE`;
      const putting = put("x".repeat(9_998));
      await until(async () => (await waiters()) >= 1, { about: "the put to wait" });
      let isSet = false;
      const setting = set({ stored_bytes: 2 ** 40 }).finally(() => {
        isSet = true;
      });
      await until(async () => isSet || (await waiters()) >= 2, { about: "the limits" });
      await blocker`COMMIT`;
      blocker.release();
      const answers = await Promise.all([putting, setting]);
      expect(answers.map(({ status }) => status)).toEqual([200, 200]);
      await foreign.close();
      const used = async () => (await uses()).stored_bytes!.used;
      const first = await used();
      await lift();
      await set({ stored_bytes: 2 ** 40 });
      expect(await used()).toBe(first);
      await lift();
    });

  test("beside a full quota a repeat is answered, and a value takes the place of a larger one", async () => {
    await set({ stored_bytes: 2 ** 40 });
    const used = async () => (await uses()).stored_bytes!.used;
    const first = await used();
    const large = "x".repeat(998);
    const at = new Date(Date.now() + 3_600_000).toISOString();
    const delay = (idempotencyKey: string) => emit("repeated.late", large, { at, idempotencyKey });
    const publish = (idempotencyKey: string) =>
      server.rpc("PubSubService", "Publish", { topic: "repeated", data: large, idempotencyKey });
    for (const [name, history] of Object.entries({ one: 1, two: 2 }))
      await server.api("/api/v1/kv/buckets", { body: { name, history } });
    const put = (bucket: string, body: string) =>
      server.api(`/api/v1/kv/buckets/${bucket}/keys/a`, { method: "PUT", body });
    const repeats = [() => delay("waits"), () => publish("published")];
    for (const repeat of repeats) await repeat();
    for (const bucket of ["one", "two", "two"]) expect((await put(bucket, large)).status).toBeLessThan(300);
    // An emit takes the key of a delayed event before its time.
    await delay("taken");
    await emit("repeated.late", "", { idempotencyKey: "taken" });
    await set({ stored_bytes: 1 });
    for (const repeat of repeats) expect((await repeat()).status).toBe(200);
    for (const bucket of ["one", "two"]) expect((await put(bucket, "y")).status).toBeLessThan(300);
    expect((await put("one", large)).status).toBe(429);
    expect((await publish("other")).status).toBe(429);
    await write(sql`UPDATE delayed_events SET due_at = 1, wake_at = 1`);
    await until(
      async () => {
        await server.running.tick("events.delayed");
        return (await server.api("/api/v1/delayed-events")).body.events.length === 0;
      },
      { about: "the delayed events to go" },
    );
    // Two events, the message, a value that is history, and two small ones.
    expect(await used()).toBe(first + 1_000 + 2 + 1_000 + 1_000 + 2 * 3);
    await lift();
  });

  test("starts that no caller waits for wait for room, and none is lost", async () => {
    await define("quiet", { debounce: { periodMs: 1_000, key: "data.n" } });
    await define("many", { batch: { size: 2, timeoutMs: 600_000 } });
    for (const n of [1, 2, 3]) await emit("quiet", { n });
    await set({ runs_per_minute: 0 });
    for (const n of [1, 2, 3, 4]) expect((await emit("many", { n })).status).toBe(200);
    await write(sql`UPDATE debounces SET fires_at = 1`);
    const before = Date.now();
    await server.running.tick("debounce.fire");
    await server.running.tick("batches.close");
    expect([await countRuns("quiet"), await countRuns("many")]).toEqual([0, 0]);
    const due = await server.running.domain.store.all<{ at: number }>(
      sql`SELECT fires_at AS at FROM debounces UNION ALL SELECT closes_at FROM batches`,
    );
    expect(due).toHaveLength(4);
    for (const { at } of due) expect(at).toBeGreaterThan(before);
    await set({ runs_per_minute: 4 });
    await write(sql`UPDATE debounces SET fires_at = 1`);
    await write(sql`UPDATE batches SET closes_at = 1`);
    await write(sql`UPDATE quotas SET minute = 0`);
    await server.running.tick("debounce.fire");
    await server.running.tick("batches.close");
    const begun = (await countRuns("quiet")) + (await countRuns("many"));
    expect(begun).toBeGreaterThanOrEqual(4);
    await lift();
    await write(sql`UPDATE batches SET closes_at = 1`);
    await server.running.tick("batches.close");
    expect([await countRuns("quiet"), await countRuns("many")]).toEqual([3, 2]);
  });

  test("the environment may only lower what the platform allows", async () => {
    expect((await set({ runs_per_minute: 50 }, platform)).status).toBe(200);
    const { status, body } = await set({ runs_per_minute: 51 });
    expect({ status, message: body.error ?? body.message }).toMatchObject({ status: 400 });
    expect(JSON.stringify(body)).toContain("runs_per_minute: must be at most 50");
    const [own] = (await set({ runs_per_minute: 20 })).body.quotas;
    expect(own).toMatchObject({ limit: 20, platform_limit: 50, own_limit: 20 });
    const [lowered] = (await set({ runs_per_minute: 5 }, platform)).body.quotas;
    expect(lowered).toMatchObject({ limit: 5, platform_limit: 5, own_limit: 20 });
    expect((await set({ runs_per_minute: null })).body.quotas).toMatchObject([{ limit: 5 }]);
    for (const wrong of [-1, 1.5, "10", {}, [], true, 1e300, 10_000_001])
      expect({ wrong, status: (await set({ runs_per_minute: wrong })).status }).toEqual({
        wrong,
        status: 400,
      });
    expect((await server.api("/api/v1/environments/env_of_nobody/quotas")).status).toBe(404);
    expect((await server.api(path(), { key: platform })).body.quotas).toHaveLength(1);
    await lift();
  });
});
