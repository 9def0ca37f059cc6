import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { createHmac } from "node:crypto";
import { sql } from "../../src/kit/sql.ts";
import { type AlertWorld, openAlertWorld, waiting } from "../support/alert-world.ts";
import { startMailServer, startSilentServer } from "../support/mail-server.ts";
import { engines, startTestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

describe.each(engines)("messages of alerts on %s", (engine) => {
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

  test("a Slack that answers 500 is given up, and holds up no mail", async () => {
    const { receiver, put, found, drop, trouble, fresh } = world;
    const name = fresh();
    receiver.answer(`/${name}`, () => new Response("no", { status: 500 }));
    await trouble(true);
    await put(name, {
      condition: "projection_error",
      targets: [
        { type: "slack", url: receiver.url(`/${name}`) },
        { type: "email", to: ["ops@svc.test", "on-call@svc.test"] },
      ],
    });
    const [alert] = await found(
      name,
      ([first]) => (first?.deliveries ?? []).filter(({ state }) => state !== "waiting").length === 2,
    );
    expect(alert!.deliveries).toEqual([
      expect.objectContaining({ target: "email ops@svc.test, on-call@svc.test", state: "sent", attempts: 1 }),
      expect.objectContaining({ state: "given_up", attempts: 4, lastError: "the endpoint answered 500" }),
    ]);
    expect(receiver.at(`/${name}`)).toHaveLength(4);
    expect(receiver.at(`/${name}`)[0]!.body).toEqual({ text: expect.stringContaining(name) });
    const sent = mail.mails.filter(({ text }) => text.includes(name));
    expect(sent).toEqual([
      { to: ["ops@svc.test", "on-call@svc.test"], text: expect.stringContaining("Subject: [svc] Alert") },
    ]);
    await trouble(false);
    await found(name, ([first]) => first?.state === "resolved");
    await drop(name);
  });

  test("a webhook is signed with the secret that it names, under one id", async () => {
    const { server, receiver, put, told, drop, trouble, hook, fresh } = world;
    const name = fresh();
    await server.api("/api/v1/secrets", { body: { name: "ALERTS", value: "whsec_c2VjcmV0" } });
    let failures = 2;
    receiver.answer(`/${name}`, () => new Response("", { status: failures-- > 0 ? 503 : 200 }));
    await put(name, { condition: "projection_error", targets: [{ ...hook(name), secret: "ALERTS" }] });
    await trouble(true);
    const got = await told(name, "alert.opened", 3);
    expect(new Set(got.map(({ headers }) => headers.get("webhook-id"))).size).toBe(1);
    for (const { headers, text } of got) {
      const signedText = `${headers.get("webhook-id")}.${headers.get("webhook-timestamp")}.${text}`;
      const key = Buffer.from("c2VjcmV0", "base64");
      const wanted = `v1,${createHmac("sha256", key).update(signedText).digest("base64")}`;
      expect(headers.get("webhook-signature")).toBe(wanted);
    }
    await trouble(false);
    await drop(name);
  });

  test("a test says of each target what came of it, and shows no secret", async () => {
    const { server, receiver, ok, put, drop, hook, fresh } = world;
    const name = fresh();
    const slack = { type: "slack", url: receiver.url(`/${name}-T000-B000-abcdefghijklmnop`) };
    const rule = await put(name, {
      condition: "dead_letter",
      targets: [slack, { type: "email", to: ["refused@svc.test"] }, { ...hook(name), secret: "NOT_THERE" }],
    });
    expect(JSON.stringify(rule)).not.toContain("T000");
    const { results } = await ok("AlertService", "TestAlertRule", { name });
    expect(results).toEqual([
      { target: expect.stringMatching(/^slack http.*…mnop$/), delivered: true },
      { target: "email refused@svc.test", error: "the mail server answered 550" },
      { target: `webhook ${receiver.url(`/${name}`)}`, error: "the environment has no secret NOT_THERE" },
    ]);
    expect(receiver.at(`/${name}-T000-B000-abcdefghijklmnop`)[0]!.body.text).toContain("Test");
    // What is shown of the URL stands for it.
    await put(name, { condition: "dead_letter", targets: rule.targets.slice(0, 1) });
    await ok("AlertService", "TestAlertRule", { name });
    expect(receiver.at(`/${name}-T000-B000-abcdefghijklmnop`)).toHaveLength(2);
    await server.running.tick("audit.flush");
    const { body } = await server.api("/api/v1/audit/auth?limit=200");
    expect(JSON.stringify(body)).not.toContain("T000");
    const stored = await server.running.domain.store.all(sql`SELECT * FROM alert_rules`);
    expect(JSON.stringify(stored)).not.toContain("T000");
    await drop(name);
  });

  test("a mail server that hangs is cut off, and holds up nobody", async () => {
    const { told, hook } = world;
    const silent = await startSilentServer();
    const other = await startTestServer({
      engine,
      settings: {
        ...{ pushAllowPrivate: ["127.0.0.0/8"], webhookRetryMs: 20, webhookTimeoutMs: 500 },
        ...{ alertLookMs: 100, alertAttempts: 2, smtpUrl: silent.url, smtpFrom: "svc@svc.test" },
      },
    });
    const rule = { name: "hangs", condition: "dead_letter" };
    const targets = [{ type: "email", to: ["a@svc.test"] }, hook("beside")];
    await other.rpc("AlertService", "PutAlertRule", { ...rule, targets });
    await other.running.domain.store.write((session) =>
      session.run(sql`INSERT INTO webhook_dead_letters (environment_id, endpoint_id, event_id, event_name, position,
        attempts, last_error, dead_at) VALUES (${other.env}, 'whe_1', 'evt_1', 'never.was', 1, 1, 'no', 1)`),
    );
    await told("beside", "alert.opened");
    const given = await until(
      async () => {
        const { body } = await other.rpc("AlertService", "ListAlerts", {});
        const mailed = body.alerts?.[0]?.deliveries?.[0] as { state: string; lastError: string };
        return mailed?.state === "given_up" && mailed;
      },
      { about: "the mail to be given up", ...waiting },
    );
    expect(given.lastError).toMatch(/^no answer of the mail server|^the mail server cannot be reached/);
    silent.stop();
    await other.stop();
  });

  test("what a rule may not say is refused by field", async () => {
    const { server, hook } = world;
    const refused = async (rule: object) => {
      const body = { condition: "dead_letter", targets: [hook("x")], ...rule };
      const answer = await server.api("/api/v1/alert-rules/wrong", { method: "PUT", body });
      return [answer.status, answer.body.field];
    };
    expect(await refused({ condition: "nothing" })).toEqual([400, "condition"]);
    expect(await refused({ targets: [] })).toEqual([400, "targets"]);
    expect(await refused({ share: 0.5 })).toEqual([400, "share"]);
    expect(await refused({ condition: "quota_near" })).toEqual([400, "share"]);
    expect(await refused({ condition: "failure_share", share: 2 })).toEqual([400, "share"]);
    expect(await refused({ condition: "no_worker" })).toEqual([400, "function_id"]);
    expect(await refused({ function_id: "f" })).toEqual([400, "function_id"]);
    expect(await refused({ repeat_after_ms: 5 })).toEqual([400, "repeat_after_ms"]);
    expect(await refused({ targets: [{ type: "pager" }] })).toEqual([400, "targets[0].type"]);
    expect(await refused({ targets: [{ type: "slack", url: "ftp://x" }] })).toEqual([400, "targets[0].url"]);
    expect(await refused({ targets: [{ type: "email", to: ["a@b.test\r\nBcc: c@d.test"] }] })).toEqual([
      ...[400, "targets[0].to[0]"],
    ]);
    const none = await server.api("/api/v1/alert-rules/wrong");
    expect([none.status, none.body.error ?? none.body.message]).toEqual([404, expect.anything()]);
  });

  test("another environment has neither rule nor alert of it", async () => {
    const { server, put, found, drop, trouble, fresh } = world;
    const name = fresh();
    await trouble(true);
    await put(name, { condition: "projection_error" });
    const [alert] = await found(name, (alerts) => alerts.length === 1);
    const { body: other } = await server.api("/api/v1/environments", { body: { name: `other-${name}` } });
    const made = await server.api("/api/v1/apikeys", { body: { name, env_id: other.id } });
    const from = { key: made.body.key as string };
    const asked = async (method: string, body: object) =>
      (await server.rpc("AlertService", method, body, from)).status;
    for (const method of ["GetAlertRule", "DeleteAlertRule", "SilenceAlertRule", "TestAlertRule"])
      expect([method, await asked(method, { name })]).toEqual([method, 404]);
    expect(await asked("ResolveAlert", { id: alert!.id })).toBe(404);
    expect((await server.rpc("AlertService", "ListAlerts", {}, from)).body.alerts ?? []).toEqual([]);
    expect((await server.rpc("AlertService", "ListAlertRules", {}, from)).body.rules ?? []).toEqual([]);
    await trouble(false);
    await drop(name);
  });

  test("who may not see a function is not told of it by an alert, nor by a rule of its own", async () => {
    const { server, ok, put, found, drop, fresh } = world;
    const [id, every, lonely] = [fresh(), fresh(), fresh()];
    await ok("SvcService", "RegisterFunction", { id });
    await put(every, { condition: "oldest_waiting", waitingMs: 1 });
    await put(lonely, { condition: "no_worker", functionId: id });
    await ok("SvcService", "InvokeFunction", { functionId: id });
    const [seen] = await found(every, (alerts) => alerts.length === 1);
    expect(seen!.detail).toContain(id);
    await found(lonely, (alerts) => alerts.length === 1);
    const { body: role } = await server.api("/api/v1/roles", { body: { name: id, base: "developer" } });
    const { body: policy } = await server.api("/api/v1/policies", {
      body: {
        name: id,
        effect: "deny",
        actions: "functions:read",
        resources: `irn:svc:*:*:function:*:${id}`,
      },
    });
    await server.api(`/api/v1/roles/${role.id}/policies`, { body: { policy_id: policy.id } });
    const made = await server.api("/api/v1/apikeys", { body: { name: id, role_ids: [role.id] } });
    const as = { key: made.body.key as string };
    const listed = async (rule: string) =>
      (await server.rpc("AlertService", "ListAlerts", { rule }, as)).body.alerts ?? [];
    expect(await listed(every)).toEqual([expect.not.objectContaining({ detail: expect.anything() })]);
    expect(await listed(lonely)).toEqual([]);
    const rules = (await server.rpc("AlertService", "ListAlertRules", {}, as)).body.rules as {
      name: string;
    }[];
    expect(rules.map(({ name }) => name)).toEqual([every]);
    const targets = [{ type: "webhook", url: "https://example.test/" }];
    for (const rule of [{ condition: "no_worker", functionId: id }, { condition: "run_failed" }]) {
      const asked = await server.rpc("AlertService", "PutAlertRule", { name: id, targets, ...rule }, as);
      expect([rule.condition, asked.status]).toEqual([rule.condition, 403]);
    }
    expect((await server.rpc("AlertService", "GetAlertRule", { name: lonely }, as)).status).toBe(403);
    const replaced = { name: lonely, condition: "dead_letter", targets };
    expect((await server.rpc("AlertService", "PutAlertRule", replaced, as)).status).toBe(403);
    const [own] = await found(lonely, (alerts) => alerts.length === 1);
    expect((await server.rpc("AlertService", "ResolveAlert", { id: own!.id }, as)).status).toBe(403);
    for (const name of [every, lonely]) await drop(name);
  });
});
