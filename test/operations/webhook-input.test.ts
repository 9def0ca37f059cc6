import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { createHash, createHmac } from "node:crypto";
import { connect } from "node:net";
import { gzipSync } from "node:zlib";
import { sql } from "../../src/kit/sql.ts";
import { type Answer, engines, startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

const hex = (secret: string, text: string | Uint8Array) =>
  createHmac("sha256", secret).update(text).digest("hex");
const mib = 1024 * 1024;

interface Source {
  id: string;
  ingest_token: string;
  event_prefix: string;
}

// What must not get in, and what of it must not harm those who send what is right.
describe.each(engines)("the ingest of webhooks on %s", (engine) => {
  let server: TestServer;
  let number = 0;
  beforeAll(async () => {
    server = await startTestServer({ engine });
  }, 120_000);
  afterAll(() => server.stop());

  const ok = async (method: string, body: object, options = {}) => {
    const answer = await server.rpc("WebhookService", method, body, options);
    expect([method, answer.status, answer.body]).toEqual([method, 200, expect.anything()]);
    return answer.body;
  };
  const create = (body: object = {}, options = {}): Promise<Source> =>
    ok("CreateWebhookSource", { event_prefix: `in${++number}`, ...body }, options);
  const pathOf = ({ id, ingest_token }: Source, token = ingest_token) =>
    `/api/v1/webhooks/${id}?token=${token}`;
  const post = async (
    source: Source,
    body: BodyInit,
    headers: Record<string, string> = {},
    token?: string,
  ) => {
    const response = await fetch(`${server.url}${pathOf(source, token)}`, {
      ...{ method: "POST", body, headers: { "content-type": "application/json", ...headers } },
    });
    // biome-ignore lint/suspicious/noExplicitAny: tests state the shape they expect
    return { status: response.status, headers: response.headers, body: (await response.json()) as any };
  };
  /** Sends up to so many pieces of a MiB until there is an answer; says how many the server let in. */
  const refusalOf = (source: Source, length: string, pieces: number) => {
    const { hostname, port } = new URL(server.url);
    const { promise, resolve } = Promise.withResolvers<{ answer: string; sent: number }>();
    const piece = Buffer.alloc(mib, " ");
    let sent = 0;
    const socket = connect(Number(port), hostname, () => {
      socket.write(
        `POST ${pathOf(source)} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n${length}\r\n\r\n`,
      );
      const more = () => {
        if (sent === pieces || socket.destroyed) return;
        sent++;
        socket.write(`${mib.toString(16)}\r\n`);
        socket.write(piece);
        if (socket.write("\r\n")) setImmediate(more);
        else socket.once("drain", more);
      };
      more();
    });
    // The server hangs up on who goes on sending; its answer may be lost by that.
    socket.on("error", () => {});
    socket.on("close", () => resolve({ answer: "", sent }));
    socket.on("data", (bytes) => {
      socket.destroy();
      resolve({ answer: bytes.toString(), sent });
    });
    return promise;
  };
  const deliveries = async ({ id }: Source) =>
    (await ok("ListWebhookDeliveries", { source_id: id, limit: 200 })).deliveries as Answer["body"][];
  const write = (query: ReturnType<typeof sql>) =>
    server.running.domain.store.write((session) => session.run(query));
  const eventsOf = async ({ event_prefix }: Source) =>
    (await server.running.domain.store.all(sql`SELECT id FROM events WHERE name LIKE ${`${event_prefix}.%`}`))
      .length;

  test("a source that verifies nothing may say where names and repeats stand", async () => {
    const source = await create({ verify_config: { dedup_id_path: "body:meta.key" } });
    for (const key of ["a", "a", "b"]) await post(source, JSON.stringify({ meta: { key } }));
    const { body } = await server.rpc("WebhookService", "ListWebhookDeliveries", { source_id: source.id });
    expect(JSON.stringify(body)).toContain("duplicate");
    const refused = await server.rpc("WebhookService", "CreateWebhookSource", {
      ...{ event_prefix: "signed", verify_secret: "s3cret", verify_config: { dedup_id_path: "body:id" } },
    });
    expect([refused.status, refused.body.message]).toEqual([
      400,
      "verify_config.signature_header: must not be empty where there is a secret",
    ]);
  });

  test("one right signature among few is enough; cut, future and repeated ones bring nothing new", async () => {
    const source = await create({ preset: "stripe", verify_secret: "s" });
    const body = '{"id":"one","type":"paid"}';
    const now = Math.floor(Date.now() / 1_000);
    const send = (signatures: string[], at = now) =>
      post(source, body, {
        "stripe-signature": [`t=${at}`, ...signatures.map((one) => `v1=${one}`)].join(),
      });
    const right = hex("s", `${now}.${body}`);
    const wrong = (count: number) => Array.from({ length: count }, () => "0".repeat(64));
    for (const [answer, why] of [
      [await send([right.slice(0, -2)]), "no signature fits"],
      [await send([`${right}00`]), "no signature fits"],
      [await send([""]), "no signature fits"],
      [await send([...wrong(40), right]), "no signature fits"],
      [await send([hex("s", `${now + 400}.${body}`)], now + 400), "300 seconds"],
    ] as const)
      expect([answer.status, answer.body.error ?? answer.body.message]).toEqual([
        401,
        expect.stringContaining(why),
      ]);
    expect(await eventsOf(source)).toBe(0);
    const first = await send([...wrong(3), right]);
    expect(first.status).toBe(200);
    // Where the event stands, so that a read can wait for it; a repeat answers the same.
    const sequence = first.headers.get("x-svc-sequence")!;
    const shown = await server.api(`/api/v1/events/${first.body.event_id}`);
    expect(sequence.split(".")[1]).toBe(shown.body.sequence);
    const again = await send([right]);
    expect([again.body.event_id, again.body.duplicate]).toEqual([first.body.event_id, true]);
    expect(again.headers.get("x-svc-sequence")).toBe(sequence);
    expect(await eventsOf(source)).toBe(1);
  });

  test("a token opens its own source, and a foreign source is as one that is missing", async () => {
    const [one, other] = [await create(), await create()];
    const env = await server.api("/api/v1/environments", { body: { name: `in-${engine}` } });
    const made = await server.api("/api/v1/apikeys", { body: { name: "in", env_id: env.body.id } });
    const foreign = await create({}, { key: made.body.key });
    const missing = { ...one, id: "whs_missing" };
    const refusals = [
      await post(one, "{}", {}, other.ingest_token),
      await post(foreign, "{}", {}, one.ingest_token),
      await post(missing, "{}", {}, one.ingest_token),
    ];
    const ids = [one.id, foreign.id, missing.id];
    const seen = refusals.map(({ status, body }, at) => [
      status,
      JSON.stringify({ ...body, request_id: "" }).replaceAll(ids[at]!, "ID"),
    ]);
    expect(new Set(seen.map((each) => JSON.stringify(each))).size).toBe(1);
    expect(seen[0]![0]).toBe(404);
    expect((await post(foreign, "{}")).status).toBe(200);
    expect(await eventsOf(one)).toBe(0);
  });

  test("a body that is too large is refused before it is read, packed or not", async () => {
    const source = await create({ preset: "generic-hmac", verify_secret: "s" });
    const promised = await refusalOf(source, `Content-Length: ${100 * mib}`, 0);
    expect(promised.answer).toStartWith("HTTP/1.1 413");
    const chunked = await refusalOf(source, "Transfer-Encoding: chunked", 100);
    expect(["", "HTTP/1.1 413"]).toContain(chunked.answer.slice(0, 12));
    expect(chunked.sent).toBeLessThan(100);
    const packed = { "content-encoding": "gzip" };
    expect((await post(source, gzipSync(new Uint8Array(100 * mib)), packed)).status).toBe(413);
    const body = '{"type":"packed"}';
    const signed = { ...packed, "x-signature": hex("s", body) };
    expect((await post(source, gzipSync(body), signed)).status).toBe(200);
    expect((await post(source, "no gzip", signed)).status).toBe(400);
    expect((await post(source, body, { ...signed, "content-encoding": "br" })).status).toBe(501);
    const refused = (await deliveries(source)).filter(({ status }) => status === "rejected");
    expect(refused.length).toBeGreaterThanOrEqual(2);
    for (const { error } of refused) expect(error).toContain("larger than");
    expect(await eventsOf(source)).toBe(1);
  });

  test("what is no text harms none of those sent at the same time", async () => {
    const source = await create();
    const form = { "content-type": "application/x-www-form-urlencoded" };
    const bad: [BodyInit, Record<string, string>, string][] = [
      [
        Buffer.from('{"type":"a"}', "utf16le"),
        { "content-type": "application/json; charset=utf-16" },
        "malformed JSON",
      ],
      [new Uint8Array([123, 34, 255, 34, 58, 49, 125]), {}, "UTF-8"],
      [new Uint8Array([233]), { "content-type": "text/plain; charset=iso-8859-1" }, "body: must be UTF-8"],
      ["", {}, "body: must not be empty"],
      ["[".repeat(100_000), {}, "deep"],
      ['{"type":"a","x":"\\ud800"}', {}, "surrogate"],
      ["a&".repeat(20_000), form, "at most 10000 form fields"],
      ['{"type":"a\\nb"}', {}, "event name"],
      [`{"type":"${"x".repeat(300)}"}`, {}, "event name"],
    ];
    const good = Array.from({ length: 20 }, (_, n) => post(source, `{"type":"good","n":${n}}`));
    // Odd, and no mistake.
    good.push(post(source, '{"type":"good","x":"\\u0000"}'), post(source, "type=good&a=%00", form));
    const answers = await Promise.all(
      bad.map(async ([body, headers, why]) => ({ why, answer: await post(source, body, headers) })),
    );
    for (const { answer, why } of answers)
      expect([why, answer.status, answer.body.message]).toEqual([why, 400, expect.stringContaining(why)]);
    expect((await Promise.all(good)).map(({ status }) => status)).toEqual(Array(22).fill(200));
    expect(await eventsOf(source)).toBe(22);
    const failed = (await deliveries(source)).filter(({ status }) => status === "failed");
    expect(failed).toHaveLength(bad.length);
  });

  test("an event that breaks its schema is a failed delivery, and can be sent again when it keeps it", async () => {
    const source = await create();
    const schema = (body: object) => server.rpc("EventSchemaService", "RegisterSchema", body);
    const eventName = `${source.event_prefix}.paid`;
    const schemaJson = '{"type":"object","required":["amount"]}';
    const early = await post(source, '{"id":"early","type":"paid"}');
    expect((await schema({ eventName, version: 1, schemaJson })).status).toBe(200);
    const broken = await post(source, '{"id":"b","type":"paid"}');
    expect([broken.status, broken.body]).toEqual([
      400,
      expect.objectContaining({ error: "SCHEMA_VIOLATION", field: "data" }),
    ]);
    expect(broken.headers.get("x-svc-sequence")).toBeNull();
    const [delivery] = await deliveries(source);
    expect(delivery).toMatchObject({
      ...{ status: "failed", external_id: "b", event_id: "" },
      error: expect.stringContaining("(required, version 1 of the schema of"),
    });
    expect(await eventsOf(source)).toBe(1);
    expect((await post(source, '{"id":"k","type":"paid","amount":1}')).status).toBe(200);
    // What was accepted before stays what it was.
    const again = await post(source, '{"id":"early","type":"paid"}');
    expect([again.status, again.body.event_id, again.body.duplicate]).toEqual([
      ...[200, early.body.event_id, true],
    ]);
    const still = await server.rpc("WebhookService", "RedeliverWebhook", { id: delivery.id });
    expect(still.status).toBe(400);
    await server.rpc("EventSchemaService", "DeleteSchema", { eventName, version: 1 });
    expect((await ok("RedeliverWebhook", { id: delivery.id })).status).toBe("accepted");
    expect(await eventsOf(source)).toBe(3);
    const keys = await server.running.domain.store.all<{ created_at: number }>(
      sql`SELECT created_at FROM idempotency_keys WHERE key LIKE ${`%${source.id}:early`}`,
    );
    // Providers repeat for three days, of which the keys' own one is counted from the end of the second.
    expect(Number(keys[0]!.created_at) - Date.now()).toBeGreaterThan(47 * 3_600_000);
  });

  test("what another node rotated a moment ago is good here at once", async () => {
    const source = await create({ preset: "generic-hmac", verify_secret: "old" });
    const second = await create({ preset: "generic-hmac", verify_secret: "old" });
    const send = (secret: string, token?: string) =>
      post(source, "{}", { "x-signature": hex(secret, "{}") }, token);
    expect((await send("old")).status).toBe(200);
    // As another node writes it: nothing here hears of it.
    const token = "ifwh_elsewhere";
    const hash = createHash("sha256").update(token).digest("hex");
    await write(sql`UPDATE webhook_sources SET token_hash = ${hash}, updated_at = updated_at + 1
      WHERE id = ${source.id}`);
    expect((await send("old", token)).status).toBe(200);
    expect((await post(second, "{}", { "x-signature": hex("old", "{}") })).status).toBe(200);
    await write(sql`UPDATE webhook_sources SET verify_config = replace(verify_config, 'x-signature', 'x-other'),
      updated_at = updated_at + 1 WHERE id = ${second.id}`);
    expect((await post(second, "{}", { "x-other": hex("old", "{}") })).status).toBe(200);
  });

  test("an accepted delivery whose event is gone is found, and no secret stands in the audit", async () => {
    const source = await create({ preset: "generic-hmac", verify_secret: "kept-from-all" });
    await ok("RotateWebhookSecret", { id: source.id, verify_secret: "kept-from-all-too" });
    const body = '{"type":"gone"}';
    const { event_id } = (await post(source, body, { "x-signature": hex("kept-from-all", body) })).body;
    const found = async () => {
      const { checks } = (await server.api("/api/v1/integrity")).body;
      return checks.find((one: { name: string }) => one.name === "webhooks.deliveries").count;
    };
    expect(await found()).toBe(0);
    await write(sql`DELETE FROM events WHERE id = ${event_id}`);
    await until(async () => (await found()) === 1, { about: "the loss to be found", deadlineMs: 20_000 });
    const audit = await until(
      async () => {
        const rows = await server.running.domain.store.all(sql`SELECT * FROM auth_audit`);
        const text = JSON.stringify(rows);
        return text.includes("webhooks.rotateSecret") && text;
      },
      { about: "the rotation to be in the audit", deadlineMs: 20_000 },
    );
    expect(audit).not.toContain("kept-from-all");
    expect(audit).not.toContain(source.ingest_token.slice(13));
  });

  test("bad input names its field", async () => {
    for (const [body, field] of [
      [{ event_prefix: "" }, "event_prefix"],
      [{ event_prefix: "a", preset: "nobody" }, "preset"],
      [{ event_prefix: "a", verify_secret: "x" }, "verify_secret"],
      [{ event_prefix: "a", preset: "standard-webhooks", verify_secret: "no base64!" }, "verify_secret"],
      [{ event_prefix: "a", verify_header: "X", verify_algorithm: "md5" }, "verify_algorithm"],
      [{ event_prefix: "a", verify_config: { signing_template: "{ts}" } }, "verify_config.signing_template"],
      [{ event_prefix: "a", name: "x".repeat(201) }, "name"],
    ] as const) {
      const { status, body: answer } = await server.rpc("WebhookService", "CreateWebhookSource", body);
      expect([status, answer.message]).toEqual([400, expect.stringMatching(new RegExp(`^${field}: `))]);
    }
    expect(
      (await server.rpc("WebhookService", "ListWebhookDeliveries", { status: "lost" })).body.message,
    ).toContain("status: ");
  });
});
