import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { gunzipSync } from "node:zlib";
import { create, type DescMethod, toBinary } from "@bufbuild/protobuf";
import { Code, type ConnectError, createClient } from "@connectrpc/connect";
import { createConnectTransport, createGrpcWebTransport } from "@connectrpc/connect-web";
import * as grpc from "@grpc/grpc-js";
import { ProjectionService } from "../../src/gen/svc/v1/projection_pb.ts";
import { PubSubService } from "../../src/gen/svc/v1/pubsub_pb.ts";
import { freePort } from "../support/process.ts";
import { startTestServer, type TestServer } from "../support/server.ts";

/** Which engine holds the rows makes no difference to a stream without any. */
describe("streams that have nothing to deliver", () => {
  let server: TestServer;

  beforeAll(async () => {
    server = await startTestServer({ engine: "libsql", settings: { grpcPort: await freePort() } });
    for (const name of ["quiet", "left"])
      await server.rpc("PubSubService", "CreateConsumerGroup", { name, pattern: "topic:none" });
    const projection = { name: "still", events: ["never.fires"] };
    expect((await server.rpc("ProjectionService", "RegisterProjection", projection)).status).toBe(200);
  }, 120_000);
  afterAll(() => server.stop());

  const { subscribe, joinConsumerGroup } = PubSubService.method;
  const asked: [string, DescMethod, Record<string, unknown>][] = [
    ["a subscription", subscribe, { pattern: "topic:none" }],
    ["a member of a group", joinConsumerGroup, { groupName: "quiet" }],
    ["a subscription in a group", subscribe, { pattern: "topic:none", options: { consumerGroup: "made" } }],
    ["a projection's events", ProjectionService.method.streamProjectionEvents, { name: "still" }],
  ];

  /** Over the public client of gRPC: when the head came, and how the call ended. */
  function askGrpc(
    { parent, name, input }: DescMethod,
    message: Record<string, unknown>,
    deadlineMs: number,
  ) {
    const client = new grpc.Client(
      server.running.grpcUrl!.replace("http://", ""),
      grpc.credentials.createInsecure(),
    );
    const metadata = new grpc.Metadata();
    metadata.set("authorization", `Bearer ${server.adminKey}`);
    const stream = client.makeServerStreamRequest(
      `/${parent.typeName}/${name}`,
      (bytes: Uint8Array) => Buffer.from(bytes),
      (bytes: Buffer) => bytes,
      toBinary(input, create(input, message)),
      metadata,
      { deadline: Date.now() + deadlineMs },
    );
    const head = new Promise<grpc.Metadata>((resolve, reject) => {
      stream.on("metadata", resolve);
      stream.on("error", reject);
    });
    const ended = new Promise<grpc.ServiceError>((resolve) => stream.on("error", resolve));
    stream.on("data", () => {});
    return { head, ended, cancel: () => stream.cancel(), close: () => client.close() };
  }

  test.each(asked)("send their head over gRPC once %s is accepted", async (_, method, message) => {
    const call = askGrpc(method, message, 60_000);
    expect((await call.head).get("x-request-id")).toEqual([expect.stringMatching(/^req_/)]);
    call.cancel();
    expect((await call.ended).code).toBe(grpc.status.CANCELLED);
    call.close();
  });

  /** Over Connect in JSON, as bytes: what a client of any language sees. */
  async function askConnect(
    { parent, name }: DescMethod,
    message: Record<string, unknown>,
    headers: Record<string, string> = {},
  ) {
    const stop = new AbortController();
    const body = Buffer.from(JSON.stringify(message));
    const head = Buffer.alloc(5);
    head.writeUInt32BE(body.length, 1);
    const answer = await fetch(`${server.url}/${parent.typeName}/${name}`, {
      method: "POST",
      headers: {
        "content-type": "application/connect+json",
        authorization: `Bearer ${server.adminKey}`,
        ...headers,
      },
      body: Buffer.concat([head, body]),
      signal: stop.signal,
    });
    const reader = answer.body!.getReader();
    let bytes = Buffer.alloc(0);
    /** The next message of the stream, or what it ended with. */
    const next = async () => {
      while (bytes.length < 5 || bytes.length < 5 + bytes.readUInt32BE(1)) {
        const { value, done } = await reader.read();
        if (done) throw new Error(`the stream broke after ${bytes.length} bytes`);
        bytes = Buffer.concat([bytes, value]);
      }
      const length = 5 + bytes.readUInt32BE(1);
      const [flags] = bytes;
      const text = bytes.subarray(5, length);
      const frame = { flags, message: JSON.parse((flags === 1 ? gunzipSync(text) : text).toString()) };
      bytes = bytes.subarray(length);
      return frame;
    };
    return { status: answer.status, next, leave: () => stop.abort() };
  }

  test.each(asked)("send their head over Connect once %s is accepted", async (_, method, message) => {
    // Without a message there is no end to wait for: `fetch` resolves by the head alone.
    const call = await askConnect(method, message);
    expect(call.status).toBe(200);
    call.leave();
  });

  test.each([
    ["as it is", {}, 0],
    ["packed", { "connect-accept-encoding": "gzip" }, 1],
  ])("bring their first message whole, and the next %s", async (_, accepts, flags) => {
    const call = await askConnect(subscribe, { pattern: "topic:loud" }, accepts);
    const data = { text: "loud ".repeat(1_000) };
    for (const ordinal of [1, 2])
      await server.rpc("PubSubService", "Publish", { topic: "loud", data: { ordinal, ...data } });
    const message = (ordinal: number) => ({ topic: "topic:loud", data: { ordinal, ...data } });
    expect(await call.next()).toMatchObject({ flags: 0, message: message(1) });
    expect(await call.next()).toMatchObject({ flags, message: message(2) });
    call.leave();
  });

  test("end after their head with an empty message and the reason", async () => {
    const { body: made } = await server.api("/api/v1/apikeys", {
      body: { name: "left", role_ids: ["role_admin"] },
    });
    const authorization = `Bearer ${made.key}`;
    const call = await askConnect(subscribe, { pattern: "topic:none" }, { authorization });
    await server.api(`/api/v1/apikeys/${made.id}`, { method: "DELETE" });
    expect(await call.next()).toEqual({ flags: 0, message: {} });
    expect(await call.next()).toMatchObject({ flags: 2, message: { error: { code: "unauthenticated" } } });
  });

  test.each(asked)("end with deadline_exceeded over Connect: %s", async (_, method, message) => {
    const call = await askConnect(method, message, { "connect-timeout-ms": "300" });
    expect(call.status).toBe(200);
    expect(await call.next()).toMatchObject({
      flags: 2,
      message: { error: { code: "deadline_exceeded" } },
    });
  });

  test.each([
    ["Connect", createConnectTransport],
    ["gRPC-Web", createGrpcWebTransport],
  ])("end with deadline_exceeded over %s, in a client that watches no clock", async (_, transport) => {
    const timeouts = { "connect-timeout-ms": "300", "grpc-timeout": "300m" };
    const client = createClient(
      PubSubService,
      transport({
        baseUrl: server.url,
        interceptors: [
          (next) => (request) => {
            request.header.set("authorization", `Bearer ${server.adminKey}`);
            for (const [name, value] of Object.entries(timeouts)) request.header.set(name, value);
            return next(request);
          },
        ],
      }),
    );
    const read = async () => {
      for await (const event of client.joinConsumerGroup({ groupName: "left" })) throw new Error(event.topic);
    };
    const error = (await read().catch((failed) => failed)) as ConnectError;
    expect(error.code).toBe(Code.DeadlineExceeded);
  });
});
