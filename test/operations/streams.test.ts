import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { Code, ConnectError, createClient } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import { createConnectTransport, createGrpcWebTransport } from "@connectrpc/connect-web";
import { PubSubService, type SubscriptionEvent } from "../../src/gen/svc/v1/pubsub_pb.ts";
import { runOnce } from "../support/one-run.ts";
import { freePort } from "../support/process.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

describe.each(engines)("PubSubService.Subscribe on %s", (engine) => {
  let server: TestServer;
  beforeAll(async () => {
    server = await startTestServer({ engine, settings: { grpcPort: await freePort() } });
  }, 30_000);
  afterAll(() => server.stop());

  const transports = {
    connect: createConnectTransport,
    "grpc-web": createGrpcWebTransport,
    // HTTP/2, on a port of its own.
    grpc: createGrpcTransport,
  } as const;
  const clientOf = (kind: keyof typeof transports) =>
    createClient(
      PubSubService,
      transports[kind]({
        baseUrl: kind === "grpc" ? server.running.grpcUrl! : server.url,
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

  test.each(["connect", "grpc-web", "grpc"] as const)("past and present over %s", async (kind) => {
    const first = await emit(`${kind}.a`, { number: 1 }, { tenant: "t" });
    const stream = follow({ pattern: `${kind}.*`, options: { replay: 1, includeMetadata: true } }, kind);
    await until(() => stream.got.length === 1, { about: "the replay" });
    const second = await emit(`${kind}.b`, [2]);
    await until(() => stream.got.length === 2, { about: "the live event" });
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
    await until(() => resumed.got.length === 1, { about: "the second again" });
    expect(resumed.got[0]).toMatchObject({ topic: `events:${kind}.b`, subscriptionId: expect.any(String) });
    expect(resumed.got[0]!.metadata).toBeUndefined();
    resumed.leave();
  });

  test.each(["connect", "grpc-web", "grpc"] as const)(
    "who asks is told first where it begins, over %s",
    async (kind) => {
      const place = await emit(`first.${kind}`, {});
      const stream = follow({ pattern: `first.${kind}`, options: { withStart: true } }, kind);
      await until(() => stream.got.length === 1, {
        about: "the start, with nothing happening",
      });
      const { epoch, sequence, topic, subscriptionId } = stream.got[0]!;
      expect([sequence, topic, subscriptionId.slice(0, 4)]).toEqual([BigInt(place), "", "sub_"]);
      expect(epoch).toBeGreaterThan(0n);
      await emit(`first.${kind}`, { n: 1 });
      await until(() => stream.got.length === 2, { about: "the event" });
      expect(stream.got[1]).toMatchObject({ topic: `events:first.${kind}`, epoch: 0n });
      stream.leave();
      await stream.over;
      const frames = follow({ pattern: "system.run.>", options: { withStart: true } }, kind);
      await until(() => frames.got.length === 1, {
        about: "the start of what has no log",
      });
      expect(frames.got[0]).toMatchObject({ topic: "", sequence: 0n, epoch: 0n });
      frames.leave();
      const restored = { startAfterSequence: BigInt(place), epoch: epoch + 1n };
      const error = await follow({ pattern: `first.${kind}`, options: restored }, kind).over;
      expect(error).toMatchObject({ code: Code.FailedPrecondition });
      expect((error as ConnectError).metadata.get("svc-error-reason")).toBe("epoch_changed");
    },
  );

  test("over gRPC a reader that is slow gets all and holds nobody up, and one that leaves is let go", async () => {
    const slow = clientOf("grpc").subscribe({ pattern: "slow.>", options: { withStart: true } });
    const reader = slow[Symbol.asyncIterator]();
    await reader.next();
    const quick = follow({ pattern: "slow.>", options: { withStart: true } }, "grpc");
    await until(() => quick.got.length === 1, { about: "the quick one to be there" });
    const large = "x".repeat(50_000);
    for (let number = 0; number < 40; number++) await emit("slow.a", { number, large });
    await until(() => quick.got.length === 41, { about: "the quick one to have all" });
    const seen: unknown[] = [];
    for (let number = 0; number < 40; number++) {
      const { value } = await reader.next();
      seen.push((value as SubscriptionEvent).data?.number);
    }
    expect(seen).toEqual(Array.from({ length: 40 }, (_, number) => number));
    quick.leave();
    await reader.return?.();
    expect(await quick.over).toMatchObject({ code: Code.Canceled });
  }, 60_000);

  test("an agent that comes after its run's end gets it", async () => {
    const { runId } = await runOnce(server, "asked", { status: "completed", output: { answer: 42 } });
    const stream = follow({ pattern: `system.run.${runId}.>`, options: { replay: 1_000 } });
    await until(() => stream.got.length === 3, { about: "all frames" });
    stream.leave();
    expect(stream.got.map(({ topic }) => topic)).toEqual([
      `system.run.${runId}.created`,
      `system.run.${runId}.updated`,
      `system.run.${runId}.completed`,
    ]);
    expect(stream.got[2]!.data).toMatchObject({ status: "completed", output: { answer: 42 } });
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
