import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { Code, ConnectError, createClient } from "@connectrpc/connect";
import { createConnectTransport, createGrpcWebTransport } from "@connectrpc/connect-web";
import { PubSubService, type SubscriptionEvent } from "../../src/gen/svc/v1/pubsub_pb.ts";
import { runOnce } from "../support/one-run.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

describe.each(engines)("PubSubService.Subscribe on %s", (engine) => {
  let server: TestServer;
  beforeAll(async () => {
    server = await startTestServer({ engine });
  }, 30_000);
  afterAll(() => server.stop());

  const transports = {
    connect: createConnectTransport,
    "grpc-web": createGrpcWebTransport,
  } as const;
  const clientOf = (kind: keyof typeof transports) =>
    createClient(
      PubSubService,
      transports[kind]({
        baseUrl: server.url,
        interceptors: [
          (next) => (request) => {
            request.header.set("authorization", `Bearer ${server.adminKey}`);
            return next(request);
          },
        ],
      }),
    );
  type Input = Parameters<ReturnType<typeof clientOf>["subscribe"]>[0];

  /** Follows until it is told to leave; what came is kept. */
  function follow(input: Input, kind: keyof typeof transports = "connect") {
    const leave = new AbortController();
    const got: SubscriptionEvent[] = [];
    const over = (async () => {
      for await (const event of clientOf(kind).subscribe(input, { signal: leave.signal })) got.push(event);
    })().catch((error) => ConnectError.from(error));
    return { got, over, leave: () => leave.abort() };
  }
  const emit = async (event: string, data: unknown, metadata?: object) =>
    Number((await server.rpc("SvcService", "Emit", { event, data, metadata })).body.sequence);

  test.each(["connect", "grpc-web"] as const)("past and present over %s", async (kind) => {
    const first = await emit(`${kind}.a`, { number: 1 }, { tenant: "t" });
    const stream = follow({ pattern: `${kind}.*`, options: { replay: 1, includeMetadata: true } }, kind);
    await until(() => stream.got.length === 1, { about: "the replay", deadlineMs: 5_000 });
    const second = await emit(`${kind}.b`, [2]);
    await until(() => stream.got.length === 2, { about: "the live event", deadlineMs: 5_000 });
    stream.leave();
    await stream.over;
    const [one, two] = stream.got;
    expect(one).toMatchObject({
      topic: `events:${kind}.a`,
      data: { number: 1 },
      sequence: BigInt(first),
      deliveryAttempt: 1,
      metadata: { source: "user", namespace: "events", custom: { tenant: "t" } },
    });
    expect(one!.subscriptionId).toMatch(/^sub_/);
    expect(one!.eventId).toMatch(/^evt_/);
    expect(two!.dataValue?.kind.case).toBe("listValue");
    expect(two!.sequence).toBe(BigInt(second));

    const resumed = follow({ pattern: `${kind}.*`, options: { startAfterSequence: BigInt(first) } }, kind);
    await until(() => resumed.got.length === 1, { about: "the second again", deadlineMs: 5_000 });
    expect(resumed.got[0]).toMatchObject({ topic: `events:${kind}.b`, subscriptionId: expect.any(String) });
    expect(resumed.got[0]!.metadata).toBeUndefined();
    resumed.leave();
  });

  test("an agent that comes after its run's end gets it", async () => {
    const { runId } = await runOnce(server, "asked", { status: "completed", output: { answer: 42 } });
    const stream = follow({ pattern: `system.run.${runId}.>`, options: { replay: 1_000 } });
    await until(() => stream.got.length === 2, { about: "both frames", deadlineMs: 5_000 });
    stream.leave();
    expect(stream.got.map(({ topic }) => topic)).toEqual([
      `system.run.${runId}.created`,
      `system.run.${runId}.completed`,
    ]);
    expect(stream.got[1]!.data).toMatchObject({ status: "completed", output: { answer: 42 } });
  });

  test("refusals have the codes of the spec", async () => {
    const top = await emit("codes.a", {});
    const cases: [Input, Code][] = [
      [{ pattern: "a..b" }, Code.InvalidArgument],
      [{ pattern: "" }, Code.InvalidArgument],
      [{ pattern: "a", options: { replay: 5_000 } }, Code.InvalidArgument],
      [{ pattern: "a", options: { filter: "1 +" } }, Code.InvalidArgument],
      [{ pattern: "a", options: { startAfterSequence: 1n, replay: 1 } }, Code.InvalidArgument],
      [{ pattern: "a", options: { startAfterSequence: 1n, consumerGroup: "g" } }, Code.InvalidArgument],
      [{ pattern: "a", options: { startAfterSequence: BigInt(top + 1) } }, Code.InvalidArgument],
      [{ pattern: "a", options: { startAfterSequence: 2n ** 64n - 1n } }, Code.InvalidArgument],
    ];
    for (const [input, code] of cases) {
      const error = await follow(input).over;
      expect([error instanceof ConnectError && error.code, input]).toEqual([code, input]);
    }
    const both = await fetch(`${server.url}/svc.v1.PubSubService/SubscribeBidirectional`, {
      method: "POST",
      headers: { authorization: `Bearer ${server.adminKey}`, "content-type": "application/connect+json" },
      body: new Uint8Array([0, 0, 0, 0, 2, 123, 125]),
    });
    expect(await both.text()).toContain("unimplemented");
  });

  test("what works is announced", async () => {
    const { body } = await server.api("/api/v1/capabilities");
    expect(body.transports).toEqual(expect.arrayContaining(["websocket", "grpc-sse"]));
    expect(body.features).toEqual(
      expect.arrayContaining(["replay", "wildcard-patterns", "cel-filter", "consumer-groups"]),
    );
  });
});
