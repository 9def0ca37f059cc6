import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { createHmac } from "node:crypto";
import { sql } from "../../src/kit/sql.ts";
import { type Answer, engines, startTestServer, type TestServer } from "../support/server.ts";
import { lookerKey } from "../support/thing-doors.ts";

const hex = (secret: string, text: string) => createHmac("sha256", secret).update(text).digest("hex");

describe.each(engines)("inbound webhooks on %s", (engine) => {
  let server: TestServer;
  beforeAll(async () => {
    server = await startTestServer({ engine, settings: { webhookRateLimit: 400 } });
  }, 120_000);
  afterAll(() => server.stop());

  const call = (method: string, body: object, options = {}) =>
    server.rpc("WebhookService", method, body, options);
  const ok = async (method: string, body: object, options = {}) => {
    const answer = await call(method, body, options);
    expect([method, answer.status, answer.body]).toEqual([method, 200, expect.anything()]);
    return answer.body;
  };
  let number = 0;
  const create = (body: object = {}) =>
    ok("CreateWebhookSource", { event_prefix: `hook${++number}`, name: `source ${number}`, ...body });
  const post = async (
    source: { id: string; ingest_token: string },
    body: string | Uint8Array<ArrayBuffer>,
    headers: Record<string, string> = {},
    token: string | null = source.ingest_token,
  ) => {
    const query = token === null ? "" : `?token=${token}`;
    const response = await fetch(`${server.url}/api/v1/webhooks/${source.id}${query}`, {
      ...{ method: "POST", body },
      headers: { "content-type": "application/json", ...headers },
    });
    // biome-ignore lint/suspicious/noExplicitAny: tests state the shape they expect
    return { status: response.status, headers: response.headers, body: (await response.json()) as any };
  };
  const deliveries = async (sourceId: string, more: object = {}) =>
    (await ok("ListWebhookDeliveries", { source_id: sourceId, ...more })).deliveries as Answer["body"][];
  const event = async (id: string) => (await server.api(`/api/v1/events/${id}`)).body;

  test("a source is made, shown in both spellings, changed and deleted; secrets are never shown", async () => {
    const made = await create({
      preset: "github",
      verify_secret: "s3cr3t-of-github",
      metadata: { team: "a" },
    });
    expect(made).toMatchObject({
      ...{ event_prefix: `hook${number}`, eventPrefix: `hook${number}`, source_type: "github" },
      ...{ verify_secret_set: true, verifySecretSet: true, verify_secret_prev_set: false },
      ...{ metadata: { team: "a" }, name: `source ${number}` },
      verify_config: { signature_header: "x-hub-signature-256", signatureHeader: "x-hub-signature-256" },
    });
    expect(made.id).toStartWith("whs_");
    expect(made.ingest_token).toMatch(/^ifwh_[0-9a-f]{64}$/);
    expect(made.ingest_token_prefix).toBe(made.ingest_token.slice(0, 13));
    const shown = await ok("GetWebhookSource", { id: made.id });
    expect(shown.ingest_token).toBeUndefined();
    expect(JSON.stringify(shown)).not.toContain("s3cr3t");
    // Existing clients send empty texts for what they do not change.
    const renamed = await ok("UpdateWebhookSource", {
      ...{ id: made.id, name: "other", verify_header: "", verify_algorithm: "" },
      expected_updated_at: shown.updated_at,
    });
    expect(renamed).toMatchObject({ name: "other", metadata: {}, source_type: "github" });
    expect(renamed.verify_config).toEqual(shown.verify_config);
    const late = await call("UpdateWebhookSource", { id: made.id, expected_updated_at: shown.updated_at });
    expect([late.status, late.body.code]).toEqual([409, "aborted"]);
    // A form sends back what it was shown.
    const spelt = Object.entries<unknown>(shown.verify_config).filter(([field]) => !field.includes("_"));
    const verifyConfig = Object.fromEntries(spelt);
    const sent = (more: object) =>
      ok("UpdateWebhookSource", { id: made.id, verifyConfig: { ...verifyConfig, ...more } });
    expect((await sent({})).source_type).toBe("github");
    expect((await sent({ toleranceSeconds: 60 })).source_type).toBe("generic");
    const listed = await ok("ListWebhookSources", { limit: 0, offset: 0 });
    expect(listed.sources.map(({ id }: { id: string }) => id)).toContain(made.id);
    expect(listed.total_count).toBe(listed.sources.length);
    expect(await ok("DeleteWebhookSource", { id: made.id })).toEqual({});
    for (const method of ["GetWebhookSource", "DeleteWebhookSource", "RotateWebhookIngestToken"])
      expect((await call(method, { id: made.id })).status).toBe(404);
    expect((await post(made, "{}")).status).toBe(404);
    const rows = await server.running.domain.store.all(sql`SELECT * FROM webhook_sources`);
    expect(JSON.stringify(rows)).not.toContain("s3cr3t");
  });

  test("a signed request becomes an event with its run and its delivery; a repeat answers the first", async () => {
    const secret = "It's a Secret to Everybody";
    const source = await create({ preset: "github", verify_secret: secret });
    await server.rpc("SvcService", "RegisterFunction", {
      id: `fn${number}`,
      triggers: [{ event: `hook${number}.push` }],
    });
    const body = '{"ref":"main","n":1}';
    const headers = {
      "x-hub-signature-256": `sha256=${hex(secret, body)}`,
      ...{ "x-github-event": "push", "x-github-delivery": "d-1", authorization: "Bearer of-somebody" },
    };
    const first = await post(source, body, headers);
    expect([first.status, first.body.status]).toEqual([200, "accepted"]);
    expect(await event(first.body.event_id)).toMatchObject({
      ...{ name: `hook${number}.push`, data: { ref: "main", n: 1 }, source: "webhook" },
      metadata: { webhook: { source_id: source.id, delivery_id: first.body.delivery_id } },
    });
    const runs = (await server.rpc("SvcService", "ListRuns", { functionId: `fn${number}` })).body.runs;
    expect(runs).toHaveLength(1);
    const again = await Promise.all([1, 2, 3].map(() => post(source, body, headers)));
    for (const one of again) {
      expect([one.status, one.body.event_id, one.body.duplicate]).toEqual([200, first.body.event_id, true]);
      expect(one.body.delivery_id).not.toBe(first.body.delivery_id);
    }
    const list = await deliveries(source.id);
    expect(list.map(({ duplicate = false }) => duplicate)).toEqual([true, true, true, false]);
    expect(list.at(-1)).toMatchObject({
      ...{ id: first.body.delivery_id, source_id: source.id, external_id: "d-1", status: "accepted" },
      ...{ event_id: first.body.event_id, request_body: body, signature_key: "current", error: "" },
      request_headers: { "x-github-event": "push" },
    });
    expect(JSON.stringify(list)).not.toContain("of-somebody");
    // Many at once with one id are one event.
    const other = '{"ref":"main","n":2}';
    const second = {
      ...headers,
      ...{ "x-github-delivery": "d-2", "x-hub-signature-256": `sha256=${hex(secret, other)}` },
    };
    const burst = await Promise.all(Array.from({ length: 8 }, () => post(source, other, second)));
    expect(new Set(burst.map((one) => one.body.event_id)).size).toBe(1);
    expect(burst.filter((one) => one.body.duplicate === undefined)).toHaveLength(1);
  });

  test("wrong tokens, signatures, times and bodies are refused, and leave their delivery", async () => {
    const source = await create({ preset: "stripe", verify_secret: "whsec_abc" });
    const now = Math.floor(Date.now() / 1_000);
    const signed = (body: string, at = now, secret = "whsec_abc") => ({
      "stripe-signature": `t=${at},v1=${hex(secret, `${at}.${body}`)}`,
    });
    const body = '{"id":"evt_1","type":"charge.paid"}';
    const expectRefused = async (
      answer: Awaited<ReturnType<typeof post>>,
      expected: [number, string],
      delivery: object | undefined,
    ) => {
      expect([answer.status, answer.body.error ?? answer.body.message]).toEqual([
        expected[0],
        expect.stringContaining(expected[1]),
      ]);
      const [last] = await deliveries(source.id, { limit: 1 });
      if (delivery) expect(last).toMatchObject({ event_id: "", ...delivery });
    };
    const rejected = { status: "rejected" };
    await expectRefused(
      await post(source, body, signed(body), null),
      [404, "or the token is not its"],
      rejected,
    );
    await expectRefused(
      await post(source, body, signed(body), "ifwh_00"),
      [404, "or the token is not its"],
      rejected,
    );
    await expectRefused(await post(source, body), [401, "stripe-signature is missing"], {
      ...{ status: "rejected", signature_key: "invalid", request_body: body },
    });
    await expectRefused(await post(source, `${body} `, signed(body)), [401, "no signature fits"], rejected);
    await expectRefused(
      await post(source, body, signed(body, now, "whsec_other")),
      [401, "no signature fits"],
      rejected,
    );
    await expectRefused(await post(source, body, signed(body, now - 400)), [401, "300 seconds"], rejected);
    await expectRefused(await post(source, "{", signed("{")), [400, "malformed JSON"], {
      ...{ status: "failed", signature_key: "current" },
    });
    const nameless = '{"id":"evt_2"}';
    await expectRefused(await post(source, nameless, signed(nameless)), [400, "event name"], {
      status: "failed",
    });
    const large = `{"id":"evt_3","type":"${"x".repeat(5 * 1024 * 1024)}"}`;
    await expectRefused(await post(source, large, signed(large)), [413, "larger than"], rejected);
    expect((await post({ ...source, id: "whs_none" }, body, signed(body))).status).toBe(404);
    expect((await post(source, body, signed(body))).status).toBe(200);
    expect(await deliveries(source.id, { status: "failed" })).toHaveLength(2);
  });

  test("a rotated secret is good within its grace, a rotated token is not; verification can be switched off", async () => {
    const source = await create({
      verify_header: "X-Sig",
      verify_algorithm: "hmac-sha256",
      verify_secret: "one",
    });
    const send = (secret: string | null, token = source.ingest_token) =>
      post(source, "{}", secret === null ? {} : { "x-sig": `sha256=${hex(secret, "{}")}` }, token);
    const keyOf = async (secret: string | null) => {
      const { status } = await send(secret);
      const [last] = await deliveries(source.id, { limit: 1 });
      return [status, last.signature_key];
    };
    expect(await keyOf("one")).toEqual([200, "current"]);
    const rotated = await ok("RotateWebhookSecret", { id: source.id, verify_secret: "two" });
    expect(rotated).toMatchObject({ verify_secret_set: true, verify_secret_prev_set: true });
    const day = Date.parse(rotated.verify_secret_prev_expires_at) - Date.now();
    expect(Math.round(day / 3_600_000)).toBe(24);
    expect(await keyOf("one")).toEqual([200, "prev"]);
    expect(await keyOf("two")).toEqual([200, "current"]);
    await ok("ExpireWebhookSecretPrev", { id: source.id });
    expect(await keyOf("one")).toEqual([401, "invalid"]);
    await ok("RotateWebhookSecret", { id: source.id, verify_secret: "three", grace_seconds: 0 });
    expect(await keyOf("two")).toEqual([401, "invalid"]);
    for (const grace_seconds of [-1, 604_801])
      expect(
        (await call("RotateWebhookSecret", { id: source.id, verify_secret: "x", grace_seconds })).body
          .message,
      ).toContain("grace_seconds: must be from 0 to 604800");
    await ok("DisableWebhookSignatureVerification", { id: source.id });
    expect(await keyOf(null)).toEqual([200, "none"]);
    expect(await keyOf("three")).toEqual([200, "prev"]);
    const { ingest_token: next } = await ok("RotateWebhookIngestToken", { id: source.id });
    expect([(await send(null)).status, (await send(null, next)).status]).toEqual([404, 200]);
  });

  test("a body may be a form or text; Slack gets its challenge", async () => {
    const source = await create();
    const form = await post(source, "type=order&n=1", {
      "content-type": "application/x-www-form-urlencoded",
    });
    expect(await event(form.body.event_id)).toMatchObject({
      ...{ name: `hook${number}.order`, data: { form: { type: "order", n: "1" } } },
    });
    const plain = await post(source, "hello", { "content-type": "text/plain" });
    expect(await event(plain.body.event_id)).toMatchObject({
      ...{ name: `hook${number}.received`, data: { text: "hello" } },
    });
    const challenge = await post(
      await create({ preset: "slack" }),
      '{"type":"url_verification","challenge":"c-1"}',
    );
    expect([challenge.status, challenge.body.challenge]).toEqual([200, "c-1"]);
  });

  test("a delivery is sent again under a new event; a rejected one only when it verifies now", async () => {
    const source = await create({ preset: "generic-hmac", verify_secret: "right" });
    const body = '{"id":"a-1","type":"made"}';
    const first = await post(source, body, { "x-signature": hex("right", body) });
    const again = await ok("RedeliverWebhook", { id: first.body.delivery_id });
    expect(again).toMatchObject({ status: "accepted", redelivered_from: first.body.delivery_id });
    expect(again.event_id).not.toBe(first.body.event_id);
    expect(await event(again.event_id)).toMatchObject({
      ...{ data: { id: "a-1", type: "made" }, source: "webhook" },
      metadata: { webhook: { redelivered_from: first.body.delivery_id } },
    });
    expect((await post(source, body, { "x-signature": hex("right", body) })).body.event_id).toBe(
      first.body.event_id,
    );
    const other = '{"type":"made","n":2}';
    await post(source, other, { "x-signature": hex("later", other) });
    const [rejected] = await deliveries(source.id, { status: "rejected" });
    const refused = await call("RedeliverWebhook", { id: rejected.id });
    expect([refused.status, refused.body.message]).toEqual([
      400,
      expect.stringContaining("the rejected request does not verify"),
    ]);
    await ok("RotateWebhookSecret", { id: source.id, verify_secret: "later" });
    expect(await ok("RedeliverWebhook", { id: rejected.id })).toMatchObject({ status: "accepted" });
  });

  test("a large body is listed by its beginning and shown whole", async () => {
    const source = await create();
    const body = JSON.stringify({ type: "big", text: "x".repeat(100_000) });
    const { delivery_id: id } = (await post(source, body)).body;
    const [listed] = await deliveries(source.id);
    expect([listed.request_body.length, listed.request_body_truncated]).toEqual([16_384, true]);
    expect((await ok("GetWebhookDelivery", { id })).request_body).toBe(body);
  });

  test("a sample shows what the ingest would make of it, and not what a stored secret signs", async () => {
    const source = await create({ preset: "generic-hmac", verify_secret: "kept" });
    const sample = { source_id: source.id, body: '{"type":"a","id":7}', headers: { "X-Signature": "00" } };
    const wrong = await ok("TestWebhookVerifyConfig", sample);
    expect(wrong).toMatchObject({
      ...{ verified: false, error: "no signature fits", presented_signatures: ["00"] },
      ...{ resolved_event_name: `hook${number}.a`, resolved_dedup_id: "7", signing_string: sample.body },
    });
    expect(wrong.computed_signature ?? "").toBe("");
    const own = await ok("TestWebhookVerifyConfig", { ...sample, verify_secret: "mine" });
    expect(own.computed_signature).toBe(hex("mine", sample.body));
    const right = { "x-signature": hex("kept", sample.body) };
    expect(await ok("TestWebhookVerifyConfig", { ...sample, headers: right })).toMatchObject({
      ...{ verified: true, computed_signature: hex("kept", sample.body) },
    });
    expect(await deliveries(source.id)).toEqual([]);
  });

  test("a source that is sent to too often answers 429 and when to come again", async () => {
    const own = await startTestServer({ engine, settings: { webhookRateLimit: 1 } });
    const { body } = await own.rpc("WebhookService", "CreateWebhookSource", { event_prefix: "often" });
    const url = `${own.url}/api/v1/webhooks/${body.id}?token=${body.ingest_token}`;
    const ask = () => fetch(url, { method: "POST", body: "{}" });
    const statuses = (await Promise.all([ask(), ask(), ask(), ask(), ask(), ask()])).map(
      ({ status, headers }) => [status, headers.get("retry-after") === null],
    );
    expect(statuses).toContainEqual([429, false]);
    await own.stop();
  });

  test("another environment finds nothing of it, and the map of flows shows what came", async () => {
    const source = await create();
    const sent = await post(source, '{"type":"seen"}');
    await post(source, "{}", {}, "ifwh_wrong");
    const env = await server.api("/api/v1/environments", { body: { name: `hooks-${engine}` } });
    const made = await server.api("/api/v1/apikeys", { body: { name: "hooks", env_id: env.body.id } });
    const key = made.body.key as string;
    for (const [method, body] of [
      ["GetWebhookSource", { id: source.id }],
      ["UpdateWebhookSource", { id: source.id }],
      ["RotateWebhookIngestToken", { id: source.id }],
      ["DeleteWebhookSource", { id: source.id }],
      ["ListWebhookDeliveries", { source_id: source.id }],
      ["GetWebhookDelivery", { id: sent.body.delivery_id }],
      ["RedeliverWebhook", { id: sent.body.delivery_id }],
      ["TestWebhookVerifyConfig", { source_id: source.id, verify_secret: "x" }],
    ] as const) {
      const foreign = await call(method, body, { key });
      expect([method, foreign.status, foreign.body.code]).toEqual([method, 404, "not_found"]);
    }
    expect((await ok("ListWebhookSources", {}, { key })).sources).toEqual([]);
    const { sources, edges } = (await server.api("/api/v1/flow/webhooks")).body;
    expect(sources.find(({ id }: { id: string }) => id === source.id)).toEqual({
      ...{ id: source.id, name: source.name, event_prefix: source.event_prefix, source_type: "generic" },
      delivery_counts: { accepted: 1, rejected: 1, failed: 0 },
      ...{ latest_delivery_at: expect.any(String), latest_delivery_status: "rejected" },
    });
    const edge = { event: `${source.event_prefix}.seen`, source_id: source.id };
    expect(edges).toContainEqual(edge);
    const hidden = { actions: "events:subscribe", resources: `event:*:${edge.event}` };
    const asked = await lookerKey(server, "flow", hidden);
    expect((await server.api("/api/v1/flow/webhooks", asked)).body.edges).not.toContainEqual(edge);
  });

  test("who may not emit or start what a source could, makes and replays none", async () => {
    const deny = async (name: string, resource: string, action: string) => {
      const policy = await server.api("/api/v1/policies", {
        body: { name, effect: "deny", actions: action, resources: resource },
      });
      const role = await server.api("/api/v1/roles", { body: { name, base: "developer" } });
      await server.api(`/api/v1/roles/${role.body.id}/policies`, { body: { policy_id: policy.body.id } });
      const made = await server.api("/api/v1/apikeys", { body: { name, role_ids: [role.body.id] } });
      expect([policy.status, role.status, made.status]).toEqual([201, 201, 201]);
      return made.body.key as string;
    };
    const key = await deny("no_payments", "irn:svc:*:*:event:*:payments.*", "events:emit");
    const made = await call("CreateWebhookSource", { event_prefix: "payments" }, { key });
    expect([made.status, made.body.code]).toEqual([403, "permission_denied"]);
    expect((await call("CreateWebhookSource", { event_prefix: "orders" }, { key })).status).toBe(200);
    const source = await create({ event_prefix: "payments", preset: "github", verify_secret: "s" });
    const sent = await post(source, "{}", {
      ...{ "x-hub-signature-256": `sha256=${hex("s", "{}")}`, "x-github-event": "paid" },
    });
    for (const [method, body] of [
      ["RotateWebhookIngestToken", { id: source.id }],
      ["RotateWebhookSecret", { id: source.id, verify_secret: "mine" }],
      ["DisableWebhookSignatureVerification", { id: source.id }],
      ["UpdateWebhookSource", { id: source.id, verify_header: "x-mine" }],
      ["RedeliverWebhook", { id: sent.body.delivery_id }],
    ] as const)
      expect([method, (await call(method, body, { key })).status]).toEqual([method, 403]);
    const reader = await deny("no_reading", "irn:svc:*:*:event:*:payments.*", "events:subscribe");
    const endpoint = { url: "https://example.test/", pattern: "payments.*" };
    const outbound = (method: string, body: object, key?: string) =>
      server.rpc("WebhookEndpointService", method, body, key === undefined ? {} : { key });
    expect((await outbound("CreateWebhookEndpoint", endpoint, reader)).status).toBe(403);
    const { body: theirs } = await outbound("CreateWebhookEndpoint", endpoint);
    const away = { id: theirs.id, url: "https://elsewhere.test/" };
    expect((await outbound("UpdateWebhookEndpoint", away, reader)).status).toBe(403);
    expect((await outbound("UpdateWebhookEndpoint", away)).status).toBe(200);
    expect((await call("GetWebhookDelivery", { id: sent.body.delivery_id }, { key: reader })).status).toBe(
      403,
    );
    expect((await call("ListWebhookDeliveries", { source_id: source.id }, { key: reader })).status).toBe(403);
  });

  test("a new master key opens what the old one sealed", async () => {
    const source = await create({ preset: "generic-hmac", verify_secret: "first" });
    await ok("RotateWebhookSecret", { id: source.id, verify_secret: "second" });
    const rotated = await server.api("/api/v1/cluster/rotate-token", {
      body: { kind: "master_key", new_value: "ab".repeat(32) },
    });
    expect(rotated.status).toBe(200);
    const sealed = await server.running.domain.store.all<{ sealed: string; prev_sealed: string }>(
      sql`SELECT sealed, prev_sealed FROM webhook_sources WHERE id = ${source.id}`,
    );
    expect(Object.values(sealed[0]!).map((text) => text[0])).toEqual(["2", "2"]);
    await ok("UpdateWebhookSource", { id: source.id, name: "read anew" });
    for (const secret of ["first", "second"])
      expect((await post(source, "{}", { "x-signature": hex(secret, "{}") })).status).toBe(200);
  });
});
