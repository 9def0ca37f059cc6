import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { createHmac } from "node:crypto";
import { sql } from "../../src/kit/sql.ts";
import { verifyWebhook, WebhookVerificationError } from "../../src/sdk/index.ts";
import { engines, spawnServer, startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

interface Got {
  path: string;
  headers: Headers;
  text: string;
  // biome-ignore lint/suspicious/noExplicitAny: tests state the shape they expect
  body: any;
}

const waiting = { deadlineMs: 20_000 };
const isSignedBy = (secret: string, { headers, text }: Got) => {
  const key = Buffer.from(secret.slice("whsec_".length), "base64");
  const signed = `${headers.get("webhook-id")}.${headers.get("webhook-timestamp")}.${text}`;
  const wanted = `v1,${createHmac("sha256", key).update(signed).digest("base64")}`;
  return headers.get("webhook-signature")!.split(" ").includes(wanted);
};

/** A receiver whose paths answer what a test says; what it got is kept by path. */
function openReceiver() {
  const got: Got[] = [];
  const answers = new Map<string, (one: Got) => Response | Promise<Response>>();
  const server = Bun.serve({
    port: 0,
    hostname: "127.0.0.1",
    async fetch(request) {
      const { pathname: path } = new URL(request.url);
      const text = await request.text();
      const one = { path, headers: request.headers, text, body: JSON.parse(text) };
      got.push(one);
      return answers.get(path)?.(one) ?? new Response(null, { status: 204 });
    },
  });
  return {
    at: (path: string) => got.filter((one) => one.path === path),
    answer: (path: string, how: (one: Got) => Response | Promise<Response>) => answers.set(path, how),
    url: (path: string) => `http://127.0.0.1:${server.port}${path}`,
    port: server.port,
    stop: () => server.stop(true),
  };
}

describe.each(engines)("outbound webhooks on %s", (engine) => {
  let server: TestServer;
  const receiver = openReceiver();
  beforeAll(async () => {
    server = await startTestServer({
      engine,
      settings: { pushAllowPrivate: ["127.0.0.0/8"], webhookRetryMs: 20, webhookTimeoutMs: 1_500 },
    });
  }, 120_000);
  afterAll(async () => {
    await server.stop();
    receiver.stop();
  });

  const call = (method: string, body: object, options = {}) =>
    server.rpc("WebhookEndpointService", method, body, options);
  const ok = async (method: string, body: object, options = {}) => {
    const answer = await call(method, body, options);
    expect([method, answer.status, answer.body]).toEqual([method, 200, expect.anything()]);
    return answer.body;
  };
  let number = 0;
  /** A path, a pattern and an event name that no other test has. */
  const fresh = () => {
    number++;
    return { path: `/e${number}`, event: `out${number}.made`, pattern: `events:out${number}.*` };
  };
  const endpoint = ({ path, pattern }: { path: string; pattern: string }, more: object = {}) =>
    ok("CreateWebhookEndpoint", { name: path, url: receiver.url(path), pattern, ...more });
  const emit = async (event: string, data: unknown = {}) =>
    (await server.rpc("SvcService", "Emit", { event, data })).body as { eventId: string; sequence: string };
  const get = (id: string) => ok("GetWebhookEndpoint", { id });
  const seen = (path: string, count: number) =>
    until(async () => receiver.at(path).length >= count && receiver.at(path), {
      ...{ about: `${count} calls of ${path}`, ...waiting },
    });
  const isSettled = (id: string) =>
    until(async () => ((await get(id)).behind ?? "0") === "0", { about: `${id} to catch up`, ...waiting });

  test("events of the pattern are sent in order, signed as Standard Webhooks says", async () => {
    const names = fresh();
    const made = await endpoint(names, { filter: "data.n != 3" });
    expect(made).toMatchObject({ status: "active", pattern: names.pattern, filter: "data.n != 3" });
    expect(made.id).toStartWith("whe_");
    expect(made.secret).toMatch(/^whsec_[A-Za-z0-9+/]{43}=$/);
    expect((await get(made.id)).secret).toBeUndefined();
    const ids: string[] = [];
    for (let n = 0; n < 8; n++) ids.push((await emit(names.event, { n })).eventId);
    await emit("nobody.asked", {});
    const got = await seen(names.path, 7);
    expect(got.map(({ body }) => body.data.n)).toEqual([0, 1, 2, 4, 5, 6, 7]);
    expect(got.every((one) => isSignedBy(made.secret, one))).toBe(true);
    const [{ headers, text: body }] = got as [Got];
    const given = { headers, body, secret: ["whsec_b3RoZXI=", made.secret] };
    expect(await verifyWebhook(given)).toMatchObject({ id: ids[0], type: names.event, data: { n: 0 } });
    for (const wrong of [
      { ...given, body: `${body} ` },
      { ...given, secret: "whsec_b3RoZXI=" },
      { ...given, now: Date.now() + 301_000 },
      { ...given, headers: {} },
    ])
      await expect(verifyWebhook(wrong)).rejects.toBeInstanceOf(WebhookVerificationError);
    expect(got[0]!.headers.get("webhook-id")).toBe(ids[0]!);
    expect(got[0]!.body).toMatchObject({
      ...{ id: ids[0], type: names.event, name: names.event, source: "api", version: 1 },
      ...{ timestamp: expect.any(String), sequence: expect.any(Number), data: { n: 0 } },
    });
    await isSettled(made.id);
    expect(receiver.at(names.path)).toHaveLength(7);
    expect((await get(made.id)).lastDeliveredAt).toEqual(expect.any(String));
  });

  test("what fails is tried again and holds up what stands behind it", async () => {
    const names = fresh();
    let failures = 3;
    receiver.answer(names.path, () => new Response("no", { status: failures-- > 0 ? 500 : 200 }));
    const made = await endpoint(names);
    for (let n = 0; n < 3; n++) await emit(names.event, { n });
    const failing = await until(
      async () => {
        const now = await get(made.id);
        return now.attempts > 0 && now;
      },
      { about: "a failure to be shown", ...waiting },
    );
    expect(failing).toMatchObject({
      lastError: "the endpoint answered 500",
      failingEventId: expect.any(String),
    });
    const got = await seen(names.path, 6);
    expect(got.map(({ body }) => body.data.n)).toEqual([0, 0, 0, 0, 1, 2]);
    await isSettled(made.id);
    expect((await get(made.id)).attempts ?? 0).toBe(0);
  });

  test("with two secrets calls carry two signatures until the grace of the old one is over", async () => {
    const names = fresh();
    const made = await endpoint(names);
    const { secret } = await ok("RotateWebhookEndpointSecret", { id: made.id });
    await emit(names.event);
    const [both] = await seen(names.path, 1);
    expect([made.secret, secret].map((one) => isSignedBy(one, both!))).toEqual([true, true]);
    const last = await ok("RotateWebhookEndpointSecret", { id: made.id, graceSeconds: 0 });
    await emit(names.event);
    const alone = (await seen(names.path, 2))[1]!;
    expect([secret, last.secret].map((one) => isSignedBy(one, alone))).toEqual([false, true]);
  });

  test("a receiver that hangs, redirects or answers without end harms nobody", async () => {
    const [hangs, redirects, talks] = [fresh(), fresh(), fresh()];
    receiver.answer(hangs.path, () => new Promise<Response>(() => {}));
    receiver.answer(redirects.path, () => Response.redirect(receiver.url("/private"), 307));
    receiver.answer(talks.path, () => new Response("x".repeat(10 * 1024 * 1024)));
    const made = [await endpoint(hangs), await endpoint(redirects), await endpoint(talks)];
    for (const { event } of [hangs, redirects, talks]) await emit(event);
    const errorOf = (id: string) =>
      until(async () => (await get(id)).lastError as string, { about: `an error of ${id}`, ...waiting });
    expect(await errorOf(made[0].id)).toBe("no answer within 1500 ms");
    expect(await errorOf(made[1].id)).toBe("the endpoint answered 307");
    await isSettled(made[2].id);
    expect(receiver.at(talks.path)).toHaveLength(1);
    expect(receiver.at("/private")).toEqual([]);
    for (const { id } of made) await ok("DeleteWebhookEndpoint", { id });
  });

  test("an endpoint that is gone is disabled, and goes on where it stopped when it is resumed", async () => {
    const names = fresh();
    receiver.answer(names.path, () => new Response(null, { status: 410 }));
    const made = await endpoint(names);
    for (let n = 0; n < 2; n++) await emit(names.event, { n });
    const disabled = await until(
      async () => {
        const now = await get(made.id);
        return now.status === "disabled" && now;
      },
      { about: "the endpoint to be disabled", ...waiting },
    );
    expect(disabled.disabledReason).toContain("410");
    receiver.answer(names.path, () => new Response("ok"));
    expect(await ok("ResumeWebhookEndpoint", { id: made.id })).toMatchObject({ status: "active" });
    const got = await seen(names.path, 3);
    expect(got.map(({ body }) => body.data.n)).toEqual([0, 0, 1]);
  });

  test("a paused endpoint sends nothing and loses nothing", async () => {
    const names = fresh();
    const made = await endpoint(names);
    await ok("PauseWebhookEndpoint", { id: made.id });
    await emit(names.event, { n: 1 });
    const other = fresh();
    await endpoint(other);
    await emit(other.event);
    await seen(other.path, 1);
    expect(receiver.at(names.path)).toEqual([]);
    expect(await get(made.id)).toMatchObject({ status: "paused" });
    await ok("ResumeWebhookEndpoint", { id: made.id });
    expect((await seen(names.path, 1))[0]!.body.data).toEqual({ n: 1 });
  });

  test("an event that is skipped is a dead letter, which is sent again or discarded", async () => {
    const names = fresh();
    receiver.answer(names.path, ({ body }) => new Response(null, { status: body.data.bad ? 422 : 200 }));
    const made = await endpoint(names);
    const { eventId: bad } = await emit(names.event, { bad: true });
    const { eventId: worse } = await emit(names.event, { bad: true });
    await emit(names.event, { bad: false });
    const skip = async (eventId: string) => {
      await until(async () => (await get(made.id)).failingEventId === eventId, {
        ...{ about: `${eventId} to fail`, ...waiting },
      });
      await ok("ResumeWebhookEndpoint", { id: made.id, skipEventId: eventId });
    };
    const other = await call("ResumeWebhookEndpoint", { id: made.id, skipEventId: "evt_other" });
    expect([other.status, other.body.code]).toEqual([400, "failed_precondition"]);
    await skip(bad);
    await skip(worse);
    await isSettled(made.id);
    const { deadLetters, totalCount } = await ok("ListWebhookDeadLetters", { endpointId: made.id });
    expect(totalCount).toBe(2);
    expect(deadLetters[0]).toMatchObject({
      ...{ eventId: bad, eventName: names.event, lastError: "the endpoint answered 422" },
      attempts: expect.any(Number),
    });
    receiver.answer(names.path, () => new Response(null, { status: 200 }));
    const before = receiver.at(names.path).length;
    await ok("RedeliverWebhookDeadLetter", { endpointId: made.id, eventId: bad });
    const again = (await seen(names.path, before + 1)).at(-1)!;
    expect(again.headers.get("webhook-id")).toBe(bad);
    await ok("DiscardWebhookDeadLetter", { endpointId: made.id, eventId: worse });
    await until(async () => ((await get(made.id)).deadLetters ?? 0) === 0, {
      ...{ about: "no dead letter to be left", ...waiting },
    });
    for (const method of ["RedeliverWebhookDeadLetter", "DiscardWebhookDeadLetter"])
      expect((await call(method, { endpointId: made.id, eventId: bad })).status).toBe(404);
  });

  test("webhooks.deliver gives an environment with many slow endpoints no more than its share", async () => {
    const env = await server.api("/api/v1/environments", { body: { name: `slow-${engine}` } });
    const { body } = await server.api("/api/v1/apikeys", { body: { name: "slow", env_id: env.body.id } });
    const options = { key: body.key as string };
    receiver.answer("/slow", () => new Promise<Response>(() => {}));
    const slow = { url: receiver.url("/slow"), pattern: "slow.*" };
    for (let count = 0; count < 10; count++) await ok("CreateWebhookEndpoint", slow, options);
    await server.rpc("SvcService", "Emit", { event: "slow.sent" }, options);
    const held = async () => {
      const [row] = await server.running.domain.store.all<{ count: number }>(sql`SELECT count(*) AS count
        FROM webhook_endpoints WHERE environment_id = ${env.body.id} AND holder IS NOT NULL`);
      return Number(row!.count);
    };
    await until(async () => (await held()) === 8, { about: "the share to be used", ...waiting });
    const names = fresh();
    await endpoint(names);
    await emit(names.event);
    await seen(names.path, 1);
    expect(await held()).toBeLessThanOrEqual(8);
    const { endpoints } = await ok("ListWebhookEndpoints", {}, options);
    for (const { id } of endpoints) await ok("DeleteWebhookEndpoint", { id }, options);
  });

  test("events of an entity have a pattern of their own, and an endpoint may begin in the past", async () => {
    const { path } = fresh();
    const append = (entityId: string) =>
      server.rpc("EntityStreamService", "AppendEvent", {
        ...{ entityId, entityType: "cart", eventName: "cart.filled", data: { of: entityId } },
      });
    await append("c-1");
    await append("c-2");
    await endpoint({ path, pattern: "entity:cart.c-2.>" }, { after: "0" });
    const [got] = await seen(path, 1);
    expect(got!.body).toMatchObject({ entity_id: "c-2", entity_type: "cart", data: { of: "c-2" } });
  });

  test("another environment finds nothing of it; bad input names its field", async () => {
    const made = await endpoint(fresh());
    const env = await server.api("/api/v1/environments", { body: { name: `out-${engine}` } });
    const { body } = await server.api("/api/v1/apikeys", { body: { name: "out", env_id: env.body.id } });
    const key = body.key as string;
    expect(key).toEqual(expect.any(String));
    for (const method of ["Get", "Update", "Pause", "Resume", "Delete"])
      expect((await call(`${method}WebhookEndpoint`, { id: made.id }, { key })).status).toBe(404);
    expect((await call("RotateWebhookEndpointSecret", { id: made.id }, { key })).status).toBe(404);
    for (const method of ["ListWebhookDeadLetters", "RedeliverWebhookDeadLetter", "DiscardWebhookDeadLetter"])
      expect((await call(method, { endpointId: made.id, eventId: "e" }, { key })).status).toBe(404);
    expect(await ok("ListWebhookEndpoints", {}, { key })).toEqual({});
    const url = receiver.url("/");
    for (const [input, field] of [
      [{ url: "nowhere", pattern: "a.*" }, "url"],
      [{ url: "ftp://a", pattern: "a.*" }, "url"],
      [{ url: "http://u:p@a/", pattern: "a.*" }, "url"],
      [{ url, pattern: "" }, "pattern"],
      [{ url, pattern: "topic:a" }, "pattern"],
      [{ url, pattern: "a.*", filter: "data." }, "filter"],
      [{ url, pattern: "a.*", after: "999999999" }, "after"],
      [{ url, pattern: "a.*", name: "x".repeat(201) }, "name"],
    ] as const) {
      const { status, body: answer } = await call("CreateWebhookEndpoint", input);
      expect([field, status, answer.message]).toEqual([
        field,
        400,
        expect.stringMatching(new RegExp(`^${field}: `)),
      ]);
    }
  });
});

describe.each(engines)("outbound webhooks within networks and times, on %s", (engine) => {
  test("no private address is called, by whatever name; what is tried for too long is a dead letter", async () => {
    const receiver = openReceiver();
    const server = await startTestServer({
      engine,
      settings: { webhookRetryMs: 10, webhookRetryHours: 0.000_01, webhookTimeoutMs: 500 },
    });
    const rpc = async (method: string, body: object) =>
      (await server.rpc("WebhookEndpointService", method, body)).body;
    const hosts = ["127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "169.254.169.254", "2130706433"];
    const made = await Promise.all(
      hosts.map((host) =>
        rpc("CreateWebhookEndpoint", { url: `http://${host}:${receiver.port}/inside`, pattern: "probe.*" }),
      ),
    );
    const { body: event } = await server.rpc("SvcService", "Emit", { event: "probe.sent" });
    for (const { id } of made) {
      const letters = await until(
        async () => {
          const page = await rpc("ListWebhookDeadLetters", { endpointId: id });
          return page.totalCount === 1 && page.deadLetters;
        },
        { about: `the dead letter of ${id}`, ...waiting },
      );
      expect(letters[0]).toMatchObject({
        ...{ eventId: event.eventId, lastError: expect.stringContaining("must not be called") },
      });
    }
    expect(receiver.at("/inside")).toEqual([]);
    await server.stop();
    receiver.stop();
  }, 120_000);
});

describe.each(engines)("outbound webhooks of a node that dies, on %s", (engine) => {
  test("another one goes on in the middle: nothing is lost, and the order holds", async () => {
    const receiver = openReceiver();
    const inFlight = Promise.withResolvers<void>();
    const over = Promise.withResolvers<void>();
    receiver.answer("/kill", ({ body }) => {
      if (body.data.n !== 10) return new Response("ok");
      inFlight.resolve();
      return over.promise.then(() => new Response("ok"));
    });
    const settings = { webhookTimeoutMs: 1_500, webhookRetryMs: 100 };
    const first = await spawnServer({ engine, settings: { ...settings, pushAllowPrivate: "127.0.0.0/8" } });
    try {
      const made = await first.rpc("WebhookEndpointService", "CreateWebhookEndpoint", {
        ...{ url: receiver.url("/kill"), pattern: "kill.*" },
      });
      expect(made.status).toBe(200);
      const events = Array.from({ length: 30 }, (_, n) => ({ event: "kill.sent", data: { n } }));
      expect((await first.rpc("SvcService", "TriggerBatch", { events })).status).toBe(200);
      await inFlight.promise;
      await first.kill9();
      over.resolve();
      const second =
        engine === "postgres"
          ? await startTestServer({
              ...{ engine, home: first.home },
              settings: { ...settings, pushAllowPrivate: ["127.0.0.0/8"] },
            })
          : undefined;
      if (!second) await first.restart();
      const numbers = () => receiver.at("/kill").map(({ body }) => body.data.n as number);
      await until(async () => numbers().includes(29), { about: "the last event to arrive", ...waiting });
      const firsts = numbers().filter((n, at, all) => all.indexOf(n) === at);
      expect(firsts).toEqual(Array.from({ length: 30 }, (_, n) => n));
      // At least once: what had no saved answer comes again, and only that.
      expect(numbers().length).toBeLessThan(30 + 25);
      await second?.stop();
    } finally {
      over.resolve();
      await first.stop();
      receiver.stop();
    }
  }, 90_000);
});
