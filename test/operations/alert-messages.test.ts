import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { createHmac } from "node:crypto";
import { dueDeliveries } from "../../src/domain/integrations/alerts/alert-rows.ts";
import { alertTargetsMax } from "../../src/domain/integrations/alerts/limits.ts";
import { sql } from "../../src/kit/sql.ts";
import { type AlertWorld, openAlertWorld, waiting } from "../support/alert-world.ts";
import { startMailServer, startSilentServer } from "../support/mail-server.ts";
import { plant } from "../support/plant.ts";
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

  test("tests call no more targets at once than one rule may have", async () => {
    const { server, receiver, put, drop, hook, fresh } = world;
    const name = fresh();
    const { promise, resolve } = Promise.withResolvers<Response>();
    receiver.answer(`/${name}`, async () => (await promise).clone());
    await put(name, { condition: "dead_letter", targets: [hook(name), hook(`${name}?again`)] });
    const statuses: number[] = [];
    const asked = Array.from({ length: alertTargetsMax }, async () => {
      statuses.push((await server.rpc("AlertService", "TestAlertRule", { name })).status);
    });
    await until(() => statuses.length === alertTargetsMax / 2, { about: "refusals" });
    expect(new Set(statuses)).toEqual(new Set([429]));
    await until(() => receiver.at(`/${name}`).length === alertTargetsMax, { about: "calls" });
    resolve(new Response());
    await Promise.all(asked);
    expect((await server.rpc("AlertService", "TestAlertRule", { name })).status).toBe(200);
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
    await until(() => silent.counts().open === 0, { about: "its connections to be over", deadlineMs: 5_000 });
    expect(silent.counts().taken).toBeGreaterThanOrEqual(2);
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

  test("a secret in a URL is shown nowhere, and the URL as it is shown stands for itself", async () => {
    const { server, receiver, ok, put, drop, hook, fresh } = world;
    const name = fresh();
    const secrets = ["?token=first-hidden", "?token=second-hidden"];
    const targets = secrets.map((query) => ({ ...hook(name), url: `${hook(name).url}${query}` }));
    const made = await put(name, { condition: "dead_letter", targets });
    expect(made.targets).toEqual(secrets.map(() => ({ ...hook(name), url: `${hook(name).url}?…` })));
    const told = async () => {
      await ok("AlertService", "TestAlertRule", { name });
      return receiver.at(`/${name}`).map(({ search }) => search);
    };
    expect((await told()).sort()).toEqual(secrets);
    await put(name, { condition: "dead_letter", targets: made.targets });
    expect((await told()).slice(2).sort()).toEqual(secrets);
    const another = [{ ...hook(name), url: `${hook(name).url}/other?…` }];
    const refused = await server.rpc("AlertService", "PutAlertRule", {
      ...{ name, condition: "dead_letter", targets: another },
    });
    expect(refused).toMatchObject({
      status: 400,
      body: { message: expect.stringContaining("targets[0].url") },
    });
    const { store } = server.running.domain;
    const shown = [
      await ok("AlertService", "GetAlertRule", { name }),
      await ok("AlertService", "ListAlertRules", {}),
      await store.all(sql`SELECT * FROM alert_rules`),
    ];
    expect(JSON.stringify(shown)).not.toContain("-hidden");
    await drop(name);
  });

  test("a rule has alerts for fifty things, also while others are in trouble and some no more", async () => {
    const { server, put, found, drop, looked, write, fresh } = world;
    const name = fresh();
    const open = (from: number, to: number) =>
      write(sql`INSERT INTO breakers (environment_id, function_id, endpoint_url, fails, opened_at, last_failure_at)
        SELECT ${server.env}, ${name} || v.column1, 'https://example.test/', 5, 1, 1 FROM (VALUES ${sql.raw(
          Array.from({ length: to - from }, (_, at) => `('${100 + from + at}')`).join(", "),
        )}) v`);
    await open(0, 70);
    await put(name, { condition: "breaker_open" });
    await found(name, (alerts) => alerts.length > 0);
    await write(
      sql`DELETE FROM breakers WHERE function_id < ${`${name}110`} AND function_id LIKE ${`${name}%`}`,
    );
    await looked(name);
    const { count } = (await server.running.domain.store.one<{ count: number }>(
      sql`SELECT count(*) AS count FROM alerts WHERE rule = ${name}`,
    ))!;
    expect(count).toBe(50);
    await write(sql`DELETE FROM breakers WHERE function_id LIKE ${`${name}%`}`);
    await looked(name);
    expect(
      (await found(name, (alerts) => alerts.length > 0)).every(({ state }) => state === "resolved"),
    ).toBe(true);
    await drop(name);
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

  test("who may not see a secret signs with none, and does not see a rule that does", async () => {
    const { server, put, drop, hook, fresh } = world;
    const name = fresh();
    const secret = `SECRET_${name.toUpperCase()}`;
    await put(name, { condition: "dead_letter", targets: [{ ...hook(name), secret }] });
    const { body: role } = await server.api("/api/v1/roles", { body: { name, base: "developer" } });
    const resources = `irn:svc:*:*:secret:*:${secret}`;
    const { body: policy } = await server.api("/api/v1/policies", {
      body: { name, effect: "deny", actions: "secrets:read", resources },
    });
    await server.api(`/api/v1/roles/${role.id}/policies`, { body: { policy_id: policy.id } });
    const made = await server.api("/api/v1/apikeys", { body: { name, role_ids: [role.id] } });
    const asked = (method: string, body: object) =>
      server.rpc("AlertService", method, body, { key: made.body.key as string });
    const rule = { condition: "dead_letter", targets: [hook(name)] };
    const signed = { ...rule, targets: [{ ...hook(name), secret }] };
    expect((await asked("PutAlertRule", { name: `${name}-own`, ...signed })).status).toBe(403);
    expect((await asked("PutAlertRule", { name, ...rule })).status).toBe(403);
    for (const method of ["GetAlertRule", "TestAlertRule", "SilenceAlertRule", "DeleteAlertRule"])
      expect([method, (await asked(method, { name })).status]).toEqual([method, 403]);
    expect(JSON.stringify((await asked("ListAlertRules", {})).body)).not.toContain(secret);
    expect((await asked("PutAlertRule", { name: `${name}-own`, ...rule })).status).toBe(200);
    await drop(`${name}-own`);
    await drop(name);
  });

  test("of each target the first message is due, whatever waits behind it, and environments take turns", async () => {
    const { store } = world.server.running.domain;
    // The leader's own looks pass over what is due so late.
    const later = 4e12;
    const message = (environment: string, target: string, alert: string, dueAt: string) => ({
      ...{ environment_id: `'${environment}'`, target: `'${target}'`, alert_id: alert },
      ...{ state: "'waiting'", due_at: dueAt },
    });
    const many = message("env_many", "often", "'alr_' || n", `${later} + n`);
    await plant(store, "alert_deliveries", 50, many);
    await plant(store, "alert_deliveries", 1, message("env_many", "once", "'alr_60'", `${later} + 60`));
    await plant(store, "alert_deliveries", 1, message("env_many", "off", "'alr_99'", `${later} + 99`));
    await plant(store, "alert_deliveries", 1, message("env_few", "often", "'alr_70'", `${later} + 70`));
    const found = async (ofEach: number) =>
      (await dueDeliveries(store, later + 80, { most: 10, ofEach })).map((row) => row.alert_id);
    expect(await found(10)).toEqual(["alr_1", "alr_70", "alr_60"]);
    expect(await found(1)).toEqual(["alr_1", "alr_70"]);
    await world.write(sql`DELETE FROM alert_deliveries WHERE environment_id IN ('env_many', 'env_few')`);
  });

  test("an environment mails no more than its share", async () => {
    const { ok, put, drop, fresh } = world;
    const name = fresh();
    const targets = Array.from({ length: 10 }, (_, at) => ({ type: "email", to: [`a${at}@svc.test`] }));
    await put(name, { condition: "dead_letter", targets });
    const errors: string[] = [];
    for (let time = 0; time < 6; time++) {
      const { results } = await ok("AlertService", "TestAlertRule", { name });
      errors.push(...results.flatMap(({ error }: { error?: string }) => error ?? []));
    }
    expect(errors.length).toBeGreaterThanOrEqual(10);
    expect(new Set(errors)).toEqual(new Set(["the environment sends at most 120 mails an hour"]));
    await drop(name);
  });
});
