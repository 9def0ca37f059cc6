import { afterAll, beforeAll, beforeEach, describe, expect, test } from "bun:test";
import { createClient as createRpcClient } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import { SvcService } from "../../src/gen/svc/v1/svc_pb.ts";
import { type Client, createClient, createFunction, createWorker, serve } from "../../src/sdk/index.ts";
import { openCollector, type SentSpan, valuesOf } from "../support/collector.ts";
import { sharedNats } from "../support/nats.ts";
import { freePort } from "../support/process.ts";
import { engines, type Home, makeHome, startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

const silent = { debug() {}, info() {}, warn() {}, error() {} };
const waiting = { deadlineMs: 20_000 };
const traceId = "4bf92f3577b34da6a3ce929d0e0e4736";
const callerSpan = "00f067aa0ba902b7";
const traceparent = `00-${traceId}-${callerSpan}-01`;
const spanIn = (header: string | null | undefined) => header?.split("-")[2];
const traceIdIn = (header: string | null | undefined) => header?.split("-")[1];

/** Who is called from outside: other people's services, which keep the header that they were sent. */
function openOutside() {
  const headers = new Map<string, (string | null)[]>();
  const server = Bun.serve({
    port: 0,
    hostname: "127.0.0.1",
    fetch(request) {
      const { pathname } = new URL(request.url);
      headers.set(pathname, [...(headers.get(pathname) ?? []), request.headers.get("traceparent")]);
      return new Response(null, { status: 204 });
    },
  });
  return {
    url: (path: string) => `http://127.0.0.1:${server.port}${path}`,
    sent: (path: string) => headers.get(path) ?? [],
    stop: () => server.stop(true),
  };
}

describe.each(engines)("one trace from its caller to the last step on %s", (engine) => {
  const collector = openCollector();
  const outside = openOutside();
  let home: Home;
  beforeAll(async () => {
    home = await makeHome(engine);
  }, 120_000);
  beforeEach(collector.forget);
  afterAll(async () => {
    collector.stop();
    outside.stop();
    await home.remove();
  });

  /** On PostgreSQL two nodes: callers ask the first, workers the last. */
  async function startNodes(
    settings: object,
  ): Promise<{ front: TestServer; back: TestServer; stop(): Promise<void> }> {
    const nats = engine === "postgres" ? (await sharedNats()).url : undefined;
    const own = { pushAllowPrivate: ["127.0.0.0/8"], webhookRetryMs: 20, ...settings };
    const start = (nodeId: string) =>
      startTestServer({ engine, home, ...(nats && { nats }), settings: { ...own, nodeId } });
    const front = await start("front");
    const back = nats ? await start("back") : front;
    return {
      front,
      back,
      async stop() {
        if (back !== front) await back.stop();
        await front.stop();
      },
    };
  }

  const clientOf = ({ url, adminKey }: TestServer, more = {}) =>
    createClient({ url, apiKey: adminKey, ...more });

  /** A shop: an order is charged, told of, mailed by a child run and handed to an endpoint. */
  async function openShop(worker: Client, name: string) {
    const seen: Record<string, string | undefined> = {};
    const mail = createFunction({ id: `${name}-mail` }, ({ traceparent }) => {
      seen.mail = traceparent;
      return "sent";
    });
    const order = createFunction(
      { id: `${name}-order`, event: `${name}.placed` },
      async ({ step, ...context }) => {
        seen.order = context.traceparent;
        await step.run("charge", async (charge) => {
          seen.charge = charge.traceparent;
          await fetch(outside.url(`/${name}/bank`), { headers: { traceparent: charge.traceparent ?? "" } });
        });
        await step.emit(`${name}.paid`, {});
        return step.invoke<string>(`${name}-mail`);
      },
    );
    const paid = createFunction({ id: `${name}-paid`, event: `${name}.paid` }, ({ traceparent }) => {
      seen.paid = traceparent;
    });
    const pushed = createFunction({ id: `${name}-pushed`, event: `${name}.placed` }, async ({ step }) => {
      await step.run("look", ({ traceparent }) => {
        seen.look = traceparent;
      });
    });
    const handler = serve({ client: worker, functions: [pushed], signingKey: null, log: silent });
    const endpoint = Bun.serve({
      port: 0,
      hostname: "127.0.0.1",
      fetch(request) {
        seen.pushHeader = request.headers.get("traceparent") ?? undefined;
        return handler(request);
      },
    });
    await handler.register(`http://127.0.0.1:${endpoint.port}`);
    const running = createWorker({
      client: worker,
      functions: [order, paid, mail],
      handleSignals: false,
      log: silent,
    });
    await running.start();
    return {
      seen,
      async stop() {
        await running.drain({ timeoutMs: 2_000 });
        await endpoint.stop(true);
      },
    };
  }

  const endpointFor = (server: TestServer, name: string) =>
    server.rpc("WebhookEndpointService", "CreateWebhookEndpoint", {
      ...{ name, url: outside.url(`/${name}/hook`), pattern: `events:${name}.*` },
    });

  /** All runs of the shop are over, and both its events were delivered. */
  async function settled(client: Client, name: string, runIds: readonly string[]) {
    for (const id of runIds) expect(await client.waitForRun(id)).toMatchObject({ status: "completed" });
    const all = () => client.listRuns({ limit: 100 });
    await until(
      async () => {
        const { runs } = await all();
        const own = runs.filter(({ functionId }) => functionId.startsWith(`${name}-`));
        return own.length === 4 && own.every(({ status }) => status === "completed");
      },
      { ...waiting, about: "four completed runs" },
    );
    await until(() => outside.sent(`/${name}/hook`).length === 2, { ...waiting, about: "two deliveries" });
  }

  test("its spans at every node are one tree, and all who are called stand in it", async () => {
    const nodes = await startNodes({ otelEndpoint: collector.endpoint });
    const client = clientOf(nodes.front, { traceparent: () => traceparent });
    const shop = await openShop(clientOf(nodes.back), "kept");
    await endpointFor(nodes.front, "kept");
    const { runIds } = await client.emit("kept.placed", {});
    await settled(client, "kept", runIds);
    await shop.stop();
    await nodes.stop();

    const spans = collector.spans().filter((span) => span.traceId === traceId);
    const byId = new Map(spans.map((span) => [span.spanId, span]));
    expect(byId.size).toBe(spans.length);
    const attributeOf = (span: SentSpan | undefined, name: string) => span && valuesOf(span.attributes)[name];
    const named = (name: string) => spans.filter((span) => span.name === name);
    const childrenOf = (parent: SentSpan | undefined) =>
      spans.filter((span) => parent !== undefined && span.parentSpanId === parent.spanId);
    const only = (list: readonly SentSpan[]): SentSpan => {
      expect(list.map(({ name }) => name)).toHaveLength(1);
      return list[0]!;
    };

    // No span hangs in the air: each has a parent that was sent too, or is the caller's own child.
    for (const span of spans)
      expect([span.name, span.parentSpanId === callerSpan || byId.has(span.parentSpanId ?? "")]).toEqual([
        span.name,
        true,
      ]);
    const emitted = only(
      named("POST /svc.v1.SvcService/Emit").filter(({ parentSpanId }) => parentSpanId === callerSpan),
    );
    const [order, pushed] = [shop.seen.order, shop.seen.pushHeader].map((header) =>
      byId.get(spanIn(header) ?? ""),
    );
    for (const run of [order, pushed])
      expect([run?.name, run?.parentSpanId]).toEqual(["run", emitted.spanId]);
    expect(
      childrenOf(order)
        .filter(({ name }) => name === "step")
        .map((step) => attributeOf(step, "svc.step.type")),
    ).toEqual([...["invoke", "invoke"], "invoke_function"]);

    // The code of a step stands at the step's own span, also behind an endpoint, and takes it outward.
    for (const [header, run] of [
      [shop.seen.charge, order],
      [shop.seen.look, pushed],
    ] as const) {
      const step = byId.get(spanIn(header) ?? "");
      expect([step?.name, step?.parentSpanId, attributeOf(step, "svc.step.status")]).toEqual([
        "step",
        run!.spanId,
        "completed",
      ]);
    }
    expect(outside.sent("/kept/bank")).toEqual([shop.seen.charge!]);

    // What the handler emits, and the child that it invokes, hang below its run.
    const paidBy = only(
      named("POST /svc.v1.SvcService/Emit").filter(({ parentSpanId }) => parentSpanId === order!.spanId),
    );
    expect(byId.get(spanIn(shop.seen.paid) ?? "")).toMatchObject({
      name: "run",
      parentSpanId: paidBy.spanId,
    });
    const mailed = byId.get(spanIn(shop.seen.mail) ?? "");
    const invoking = byId.get(mailed?.parentSpanId ?? "");
    expect([mailed?.name, attributeOf(invoking, "svc.step.type"), invoking?.parentSpanId]).toEqual([
      ...["run", "invoke_function"],
      order!.spanId,
    ]);

    // Each delivery is a span below what emitted its event, and names itself to its receiver.
    const deliveries = outside.sent("/kept/hook").map((header) => byId.get(spanIn(header) ?? ""));
    expect(deliveries.map((span) => [span?.name, span?.kind])).toEqual(
      Array(2).fill(["webhook delivery", 3]),
    );
    expect(deliveries.map((span) => span?.parentSpanId)).toEqual([emitted.spanId, paidBy.spanId]);

    const nodesSeen = collector.sent.flatMap(({ resource, spans: list }) =>
      list.some((span) => span.traceId === traceId) ? [resource["service.instance.id"]] : [],
    );
    if (engine === "postgres") expect(new Set(nodesSeen)).toEqual(new Set(["front", "back"]));
    for (const word of ["kept", "charge"]) expect(collector.raw).not.toContain(word);
  }, 120_000);

  test("a server that keeps no spans passes the caller's place on unchanged", async () => {
    const nodes = await startNodes({});
    const client = clientOf(nodes.front);
    const shop = await openShop(clientOf(nodes.back), "passed");
    await endpointFor(nodes.front, "passed");
    const { runIds } = await client.emit("passed.placed", {}, { traceparent });
    await settled(client, "passed", runIds);
    await shop.stop();
    expect(shop.seen).toEqual(
      Object.fromEntries(
        ["order", "charge", "paid", "mail", "look", "pushHeader"].map((name) => [name, traceparent]),
      ),
    );
    expect(outside.sent("/passed/hook")).toEqual([traceparent, traceparent]);
    expect(outside.sent("/passed/bank")).toEqual([traceparent]);

    // Without a trace nothing is stored, and nothing is sent.
    const silentShop = await openShop(clientOf(nodes.back), "plain");
    await endpointFor(nodes.front, "plain");
    const plain = await client.emit("plain.placed", {});
    await settled(client, "plain", plain.runIds);
    await silentShop.stop();
    expect(Object.values(silentShop.seen)).toEqual(Array(6).fill(undefined));
    expect(outside.sent("/plain/hook")).toEqual([null, null]);
    expect((await client.events.get(plain.eventId)).metadata).toBeUndefined();
    await nodes.stop();
    expect(collector.spans()).toEqual([]);
  }, 120_000);

  test("every door takes it, and a malformed one is as none", async () => {
    const grpcPort = await freePort();
    const server = await startTestServer({ engine, home, settings: { grpcPort } });
    const client = clientOf(server);
    const placeOf = async (id: string) => (await client.events.get(id)).metadata;
    const headers = { traceparent };
    await client.registerFunction({ id: "doors", triggers: [] });

    const rpc = createRpcClient(SvcService, createGrpcTransport({ baseUrl: server.running.grpcUrl! }));
    const grpc = await rpc.emit(
      { event: "door.grpc" },
      { headers: { ...headers, authorization: `Bearer ${server.adminKey}` } },
    );
    expect(await placeOf(grpc.eventId)).toEqual({ traceparent });
    const invoked = await client.invokeFunction("doors", {}, { traceparent });
    expect(await placeOf(invoked.eventId)).toEqual({ traceparent });
    const [own, other] = await client.emitMany([
      { event: "door.many", data: {}, traceparent, metadata: { a: 1 } },
      { event: "door.many", data: {} },
    ]);
    expect([await placeOf(own!.eventId), await placeOf(other!.eventId)]).toEqual([
      { a: 1, traceparent },
      undefined,
    ]);
    const append = { entityId: "cart_1", entityType: "cart", eventName: "cart.made", expectedVersion: "-1" };
    const appended = await server.rpc("EntityStreamService", "AppendEvent", append, { headers });
    expect([appended.status, appended.body.message]).toEqual([200, undefined]);
    expect(await placeOf(appended.body.eventId)).toEqual({ traceparent });

    const { body: source } = await server.rpc("WebhookService", "CreateWebhookSource", {
      event_prefix: "door",
    });
    const came = await fetch(`${server.url}/api/v1/webhooks/${source.id}?token=${source.ingest_token}`, {
      ...{ method: "POST", body: '{"type":"rung"}' },
      headers: { ...headers, "content-type": "application/json" },
    });
    const { event_id } = (await came.json()) as { event_id: string };
    expect(await placeOf(event_id)).toMatchObject({ webhook: { source_id: source.id }, traceparent });

    for (const malformed of ["", "nonsense", `${traceparent}-more`, "0".repeat(8_000)]) {
      const answer = await server.rpc(
        "SvcService",
        "Emit",
        { event: "door.bad" },
        { headers: { traceparent: malformed } },
      );
      expect(answer.status).toBe(200);
      expect(await placeOf(answer.body.eventId)).toBeUndefined();
    }
    await server.stop();
  }, 120_000);

  test("each slot of a schedule begins one of its own", async () => {
    const nodes = await startNodes({ otelEndpoint: collector.endpoint });
    const client = clientOf(nodes.front);
    const seen: (string | undefined)[] = [];
    const tick = createFunction(
      { id: "tick", cron: "* * * * * *" },
      ({ traceparent }) => void seen.push(traceparent),
    );
    const worker = createWorker({ client, functions: [tick], handleSignals: false, log: silent });
    await worker.start();
    await until(() => seen.length >= 2, { ...waiting, about: "two slots" });
    await worker.drain({ timeoutMs: 2_000 });
    await client.deleteFunction("tick");
    await nodes.stop();
    const spans = collector.spans();
    const [first, second] = seen.map((header) => spans.find(({ spanId }) => spanId === spanIn(header)));
    for (const run of [first, second]) {
      const slot = spans.find(({ spanId }) => spanId === run?.parentSpanId);
      expect([run?.name, slot?.name, slot?.parentSpanId || undefined]).toEqual([
        "run",
        "schedule",
        undefined,
      ]);
    }
    expect(traceIdIn(seen[0])).not.toBe(traceIdIn(seen[1]));
  }, 120_000);
});
