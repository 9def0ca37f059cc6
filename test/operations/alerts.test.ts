import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { sql } from "../../src/kit/sql.ts";
import { type AlertWorld, openAlertWorld, waiting } from "../support/alert-world.ts";
import { startMailServer } from "../support/mail-server.ts";
import { pullWorker } from "../support/pull-worker.ts";
import { engines } from "../support/server.ts";
import { until } from "../support/until.ts";

describe.each(engines)("alerts on %s", (engine) => {
  let mail: Awaited<ReturnType<typeof startMailServer>>;
  let world: AlertWorld;
  beforeAll(async () => {
    mail = await startMailServer();
    world = await openAlertWorld(engine, mail);
  }, 120_000);
  afterAll(async () => {
    await world?.stop();
    await mail.stop();
  });

  async function worked(more: object = {}) {
    const { fresh, ok, server } = world;
    const id = fresh();
    await ok("SvcService", "RegisterFunction", { id, retry: { maxAttempts: 1 }, ...more });
    const worker = pullWorker(server, `w-${id}`);
    await worker.register(id);
    return { id, worker };
  }
  async function fail({ id, worker }: Awaited<ReturnType<typeof worked>>, count: number) {
    const { ok } = world;
    await ok("SvcService", "RegisterFunction", { id, retry: { maxAttempts: 1 } });
    for (let sent = 0; sent < count; sent += 100)
      await ok("SvcService", "TriggerBatch", {
        events: Array.from({ length: Math.min(100, count - sent) }, () => ({ event: id })),
      });
    let left = count;
    await until(
      async () => {
        const jobs = await worker.poll(200);
        await Promise.all(
          jobs.map((job) =>
            worker.report(job, { status: "failed", error: { message: "no", code: "NO", retryable: false } }),
          ),
        );
        left -= jobs.length;
        return left <= 0;
      },
      { about: `${count} failures`, deadlineMs: 60_000 },
    );
  }
  test("a thousand failures are one message with their number, and one when it is over", async () => {
    const { server, receiver, put, list, kinds, told, found, drop, looked, fresh } = world;
    const name = fresh();
    const one = await worked();
    await put(name, { condition: "run_failed", functionId: one.id, resolveAfterMs: 3_000 });
    await fail(one, 1_000);
    const [alert] = await found(name, ([first]) => first?.count === 1_000);
    expect(alert).toMatchObject({
      rule: name,
      state: "open",
      detail: expect.stringContaining("1000 runs failed"),
    });
    await told(name, "alert.resolved");
    expect(kinds(name)).toEqual(["alert.opened", "alert.resolved"]);
    expect(await list(name)).toHaveLength(1);
    const last = receiver.at(`/${name}`)[1]!.body.data;
    expect(last).toMatchObject({ count: 1_000, state: "resolved", environment: { id: server.env } });
    // What another function fails with is not this rule's.
    await fail(await worked(), 1);
    await looked(name);
    expect(await list(name)).toHaveLength(1);
    await fail(one, 1);
    await told(name, "alert.opened", 2);
    await drop(name);
  }, 120_000);

  test("failures before the rule are none of it", async () => {
    const { put, list, drop, looked, fresh } = world;
    const [name, other] = [fresh(), fresh()];
    const one = await worked();
    await put(other, { condition: "run_failed" });
    await fail(one, 3);
    await put(name, { condition: "run_failed", functionId: one.id });
    await looked(name);
    expect(await list(name)).toEqual([]);
    await drop(name);
    await drop(other);
  });

  test("a share of failures, the oldest run that waits, and a function without a worker", async () => {
    const { server, ok, put, kinds, told, drop, fresh } = world;
    const [share, oldest, lonely] = [fresh(), fresh(), fresh()];
    await put(share, { condition: "failure_share", share: 0.01, minimum: 1 });
    await fail(await worked(), 2);
    await told(share, "alert.opened");
    await drop(share);

    const id = fresh();
    await ok("SvcService", "RegisterFunction", { id });
    await put(oldest, { condition: "oldest_waiting", functionId: id, waitingMs: 50 });
    await put(lonely, { condition: "no_worker", functionId: id });
    await ok("SvcService", "InvokeFunction", { functionId: id });
    await told(oldest, "alert.opened");
    const [alert] = await told(lonely, "alert.opened");
    expect(alert!.body.data).toMatchObject({ subject: id, detail: `no connected worker serves ${id}` });
    const worker = pullWorker(server, `w-${id}`);
    await worker.register(id);
    const [job] = await until(
      async () => {
        const jobs = await worker.poll();
        return jobs.length > 0 && jobs;
      },
      { about: "the job", ...waiting },
    );
    await worker.complete(job!);
    for (const name of [oldest, lonely]) {
      await told(name, "alert.resolved");
      expect(kinds(name)).toEqual(["alert.opened", "alert.resolved"]);
      await drop(name);
    }
  });

  test("what stands in trouble opens one alert a thing, and ends with it", async () => {
    const { server, ok, put, list, kinds, told, drop, looked, write, trouble } = world;
    const env = server.env;
    const { id } = await ok("WebhookEndpointService", "CreateWebhookEndpoint", {
      ...{ name: "out", url: "https://example.test/", pattern: "events:never.*" },
    });
    await ok("SvcService", "RegisterFunction", { id: "cron", triggers: [{ cron: "0 0 1 1 *" }] });
    await until(
      async () => (await server.api("/api/v1/schedules?function_id=cron")).body.schedules?.length === 1,
      { about: "the schedule", ...waiting },
    );
    const path = `/api/v1/environments/${env}/quotas`;
    const cases: Record<
      string,
      { rule?: object; begin: () => Promise<unknown>; end: () => Promise<unknown>; subject: string }
    > = {
      breaker_open: {
        begin: () =>
          write(sql`INSERT INTO breakers (environment_id, function_id, endpoint_url, fails, opened_at, last_failure_at)
            VALUES (${env}, 'pushed', 'https://example.test/', 5, 1, ${Date.now()})`),
        end: () => write(sql`DELETE FROM breakers WHERE function_id = 'pushed'`),
        subject: "pushed",
      },
      projection_error: {
        begin: () => trouble(true),
        end: () => trouble(false),
        subject: "totals",
      },
      endpoint_stopped: {
        begin: () => write(sql`UPDATE webhook_endpoints SET status = 'disabled' WHERE id = ${id}`),
        end: () => write(sql`UPDATE webhook_endpoints SET status = 'paused' WHERE id = ${id}`),
        subject: id,
      },
      dead_letter: {
        begin: () =>
          write(sql`INSERT INTO webhook_dead_letters (environment_id, endpoint_id, event_id, event_name, position,
              attempts, last_error, dead_at) VALUES (${env}, ${id}, 'evt_1', 'never.was', 1, 1, 'no', 1)`),
        end: () => write(sql`DELETE FROM webhook_dead_letters WHERE endpoint_id = ${id}`),
        subject: "",
      },
      quota_near: {
        rule: { share: 0.5 },
        begin: () => server.api(path, { method: "PUT", body: { stored_bytes: 1 } }),
        end: () => server.api(path, { method: "PUT", body: { stored_bytes: null } }),
        subject: "stored_bytes",
      },
      missed_schedule: {
        begin: () =>
          write(sql`UPDATE schedules SET missed_count = missed_count + 2, expected_count = expected_count + 2
            WHERE function_id = 'cron'`),
        end: async () => {},
        subject: "cron",
      },
    };
    for (const [condition, { rule = {}, begin, end, subject }] of Object.entries(cases)) {
      await put(condition, { condition, ...rule });
      await looked(condition, 1);
      await begin();
      const [opened] = await told(condition, "alert.opened");
      expect([condition, opened!.body.data.subject]).toEqual([condition, subject]);
      await looked(condition);
      await end();
      await told(condition, "alert.resolved");
      expect([condition, kinds(condition)]).toEqual([condition, ["alert.opened", "alert.resolved"]]);
      expect(await list(condition)).toHaveLength(1);
      await drop(condition);
    }
  }, 120_000);

  test("what is stored out of balance", async () => {
    const { server, put, told, drop, write, fresh } = world;
    const name = fresh();
    await put(name, { condition: "integrity" });
    await write(sql`UPDATE heads SET position = position + 1 WHERE environment_id = ${server.env}`);
    await server.running.tick("integrity.look");
    await told(name, "alert.opened");
    await write(sql`UPDATE heads SET position = position - 1 WHERE environment_id = ${server.env}`);
    await server.running.tick("integrity.look");
    await told(name, "alert.resolved");
    await drop(name);
  });

  test("lasting trouble is told again; a resolve by hand ends that until it was over", async () => {
    const { ok, put, list, kinds, told, drop, looked, write, fresh } = world;
    const name = fresh();
    await write(sql`UPDATE projections SET status = 'error' WHERE name = 'totals'`);
    await put(name, { condition: "projection_error", repeatAfterMs: 1_000 });
    await told(name, "alert.repeated");
    const [alert] = await list(name);
    const { resolvedBy } = await ok("AlertService", "ResolveAlert", { id: alert!.id });
    expect(resolvedBy).toEqual(expect.any(String));
    await told(name, "alert.resolved");
    const count = kinds(name).length;
    await looked(name, 12);
    expect(kinds(name)).toHaveLength(count);
    await write(sql`UPDATE projections SET status = 'running' WHERE name = 'totals'`);
    await looked(name);
    await write(sql`UPDATE projections SET status = 'error' WHERE name = 'totals'`);
    await told(name, "alert.opened", 2);
    expect(await list(name)).toHaveLength(2);
    await drop(name);
    await write(sql`UPDATE projections SET status = 'running' WHERE name = 'totals'`);
  });

  test("a silent rule tells nobody, and tells what lasts when the silence is over", async () => {
    const { ok, put, kinds, told, found, drop, looked, trouble, fresh } = world;
    const name = fresh();
    await put(name, { condition: "projection_error" });
    const silent = await ok("AlertService", "SilenceAlertRule", {
      ...{ name, until: new Date(Date.now() + 60_000).toISOString() },
    });
    expect(silent.silencedUntil).toEqual(expect.any(String));
    await trouble(true);
    await found(name, (alerts) => alerts.length === 1);
    await looked(name);
    expect(kinds(name)).toEqual([]);
    await ok("AlertService", "SilenceAlertRule", { name });
    await told(name, "alert.opened");
    await trouble(false);
    await told(name, "alert.resolved");
    await drop(name);
  });

  test("a silence keeps what waits to be told, and what a person resolves", async () => {
    const { server, receiver, ok, put, found, kinds, told, drop, looked, trouble, fresh } = world;
    const name = fresh();
    const silence = (until?: Date) =>
      ok("AlertService", "SilenceAlertRule", { name, ...(until && { until: until.toISOString() }) });
    const dueAt = async () =>
      (await server.running.domain.store.one<{ at: number }>(sql`SELECT d.due_at AS at
        FROM alert_deliveries d JOIN alerts a ON a.id = d.alert_id WHERE a.rule = ${name}`))!.at;
    receiver.answer(`/${name}`, () => new Response("", { status: 503, headers: { "retry-after": "600" } }));
    await trouble(true);
    await put(name, { condition: "projection_error" });
    await told(name, "alert.opened");
    await found(name, ([first]) => first?.deliveries?.[0]?.lastError !== undefined);
    const until = new Date(Date.now() + 3_600_000);
    await silence(until);
    expect(await dueAt()).toBe(until.getTime());
    receiver.answer(`/${name}`, () => new Response(null, { status: 204 }));
    await silence();
    await found(name, ([first]) => first?.deliveries?.[0]?.state === "sent");
    expect(kinds(name)).toEqual(["alert.opened", "alert.opened"]);
    await silence(until);
    const [alert] = await found(name, (alerts) => alerts.length === 1);
    await ok("AlertService", "ResolveAlert", { id: alert!.id });
    await looked(name);
    await looked(name);
    expect(kinds(name)).toHaveLength(2);
    expect(await dueAt()).toBe(until.getTime());
    await silence();
    await told(name, "alert.resolved");
    await trouble(false);
    await drop(name);
  });

  test("who was told of an alert before a silence is told after it that the alert was over in it", async () => {
    const { ok, put, found, kinds, told, drop, looked, trouble, fresh } = world;
    const name = fresh();
    await trouble(true);
    await put(name, { condition: "projection_error" });
    await told(name, "alert.opened");
    await found(name, ([first]) => first?.deliveries?.[0]?.state === "sent");
    const until = new Date(Date.now() + 3_600_000).toISOString();
    await ok("AlertService", "SilenceAlertRule", { name, until });
    await trouble(false);
    await looked(name);
    await found(name, ([first]) => first?.state === "resolved");
    expect(kinds(name)).toEqual(["alert.opened"]);
    await ok("AlertService", "SilenceAlertRule", { name });
    await told(name, "alert.resolved");
    expect(kinds(name)).toEqual(["alert.opened", "alert.resolved"]);
    await drop(name);
  });
});
