import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { connect as connectH2 } from "node:http2";
import { connect as connectTcp } from "node:net";
import { type Client, Code, ConnectError, createClient } from "@connectrpc/connect";
import { compressionGzip, createGrpcTransport } from "@connectrpc/connect-node";
import { SvcService } from "../../src/gen/svc/v1/svc_pb.ts";
import { WorkerService } from "../../src/gen/svc/v1/worker_pb.ts";
import { freePort } from "../support/process.ts";
import { startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

const bodyBytesMax = 64 * 1024;

describe("gRPC on its own port", () => {
  let server: TestServer;
  let baseUrl: string;
  const as = (
    key: string | null,
    more: Partial<Parameters<typeof createGrpcTransport>[0]> = {},
  ): Client<typeof SvcService> =>
    createClient(
      SvcService,
      createGrpcTransport({
        baseUrl,
        ...more,
        interceptors: [
          (next) => (request) => {
            if (key !== null) request.header.set("authorization", `Bearer ${key}`);
            return next(request);
          },
        ],
      }),
    );
  const admin = () => as(server.adminKey);
  const codeOf = async (call: Promise<unknown>) => {
    const error = await call.then(
      () => undefined,
      (thrown: unknown) => thrown,
    );
    return error instanceof ConnectError ? error.code : error;
  };

  beforeAll(async () => {
    server = await startTestServer({
      engine: "libsql",
      settings: { grpcPort: await freePort(), requestBodyBytesMax: bodyBytesMax },
    });
    baseUrl = `http://127.0.0.1:${server.running.grpcPort}`;
  });
  afterAll(() => server.stop());

  test("answers as the main port does, and says that it is there", async () => {
    const capabilities = await server.api("/api/v1/capabilities");
    expect(capabilities.body.transports).toContain("grpc");
    const registered = await admin().registerFunction({ id: "f", triggers: [{ event: "g.rpc" }] });
    expect(registered.created).toBe(true);
    let requestId: string | null = null;
    const emitted = await admin().emit(
      { event: "g.rpc", data: { n: 1 } },
      {
        onHeader: (headers) => {
          requestId = headers.get("x-request-id");
        },
      },
    );
    expect(emitted.runIds).toHaveLength(1);
    expect(requestId).toMatch(/^req_/);
    const found = await admin().getRun({ id: emitted.runIds[0]! });
    const same = await server.rpc("SvcService", "GetRun", { id: emitted.runIds[0] });
    expect(found.eventId).toBe(same.body.eventId);
  });

  test("errors are gRPC's own, with the field in the text", async () => {
    for (const [code, call] of [
      [Code.Unauthenticated, as(null).listRuns({})],
      [Code.Unauthenticated, as("ifkey_wrong").listRuns({})],
      [Code.NotFound, admin().getRun({ id: "run_none" })],
      [Code.InvalidArgument, admin().emit({ event: "" })],
    ] as const)
      expect(await codeOf(call)).toBe(code);
    await expect(admin().emit({ event: "" })).rejects.toThrow("event");
    const session = connectH2(baseUrl);
    const stream = session.request({
      ":method": "POST",
      ":path": "/svc.v1.Nowhere/Do",
      "content-type": "application/grpc",
    });
    const head = await new Promise<Record<string, unknown>>((done) => stream.on("response", done));
    expect(head["grpc-status"]).toBe("12");
    session.destroy();
  });

  test("viewers may only look", async () => {
    const { key } = await server.running.domain.keys.create({
      orgId: "org_default",
      environmentId: "env_default",
      name: "viewer",
      roleIds: ["role_viewer"],
    });
    expect(await codeOf(as(key).emit({ event: "g.rpc" }))).toBe(Code.PermissionDenied);
    expect((await as(key).listRuns({})).totalCount).toBeGreaterThanOrEqual(0);
  });

  test("gzip both ways", async () => {
    const client = as(server.adminKey, { sendCompression: compressionGzip, compressMinBytes: 0 });
    const text = "x".repeat(20_000);
    expect((await client.emit({ event: "zip.ped", data: { text } })).eventId).toMatch(/^evt_/);
  });

  test("a message over the limit is refused and nothing is written", async () => {
    const before = await server.api("/api/v1/events?limit=1");
    const call = admin().emit({ event: "too.big", data: { text: "x".repeat(2 * bodyBytesMax) } });
    expect(await codeOf(call)).toBe(Code.ResourceExhausted);
    // Compressed it is small; what counts is what it becomes.
    const bomb = as(server.adminKey, { sendCompression: compressionGzip, compressMinBytes: 0 });
    expect(await codeOf(bomb.emit({ event: "too.big", data: { text: "x".repeat(2 * bodyBytesMax) } }))).toBe(
      Code.ResourceExhausted,
    );
    expect((await server.api("/api/v1/events?limit=1")).body.events).toEqual(before.body.events);
  });

  test("a deadline ends the call", async () => {
    const late = () => codeOf(admin().emit({ event: "too.late", data: {} }, { timeoutMs: 1 }));
    await until(async () => (await late()) === Code.DeadlineExceeded, {
      about: "a call that takes longer than a millisecond",
      deadlineMs: 5_000,
      everyMs: 1,
    });
  });

  test("a hundred calls at once over one connection", async () => {
    const client = admin();
    const answers = await Promise.all(
      Array.from({ length: 100 }, (_, n) => client.emit({ event: "many.calls", data: { n } })),
    );
    expect(new Set(answers.map((answer) => answer.eventId)).size).toBe(100);
  });

  test("methods without an operation answer so", async () => {
    const client = createClient(WorkerService, createGrpcTransport({ baseUrl }));
    const answers = client.connect(
      (async function* () {
        yield {};
      })(),
    );
    const first = answers[Symbol.asyncIterator]().next();
    expect(await codeOf(first)).toBe(Code.Unimplemented);
  });

  test("noise, half a connection and a thousand resets leave it standing", async () => {
    const port = Number(new URL(baseUrl).port);
    const open = (send: Uint8Array, end: (socket: ReturnType<typeof connectTcp>) => void) =>
      new Promise<void>((done) => {
        const socket = connectTcp(port, "127.0.0.1", () => {
          socket.write(send, () => end(socket));
        });
        socket.on("error", () => {});
        socket.on("close", () => done());
      });
    for (let round = 0; round < 50; round++) {
      const noise = new Uint8Array(200).map((_, at) => (round * 31 + at * 17) % 256);
      await open(noise, (socket) => socket.destroy());
    }
    const preface = new TextEncoder().encode("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    for (let round = 0; round < 1_000; round += 50)
      await Promise.all(
        Array.from({ length: 50 }, () => open(preface, (socket) => socket.resetAndDestroy())),
      );
    const lying = connectH2(baseUrl);
    lying.on("error", () => {});
    const stream = lying.request({
      ":method": "POST",
      ":path": "/svc.v1.SvcService/Emit",
      "content-type": "application/grpc",
      authorization: `Bearer ${server.adminKey}`,
    });
    stream.on("error", () => {});
    let trailers: Record<string, unknown> = {};
    stream.on("response", (headers) => {
      trailers = { ...trailers, ...headers };
    });
    stream.on("trailers", (headers) => {
      trailers = { ...trailers, ...headers };
    });
    stream.resume();
    // A frame that promises five bytes and has three, which are no message.
    stream.end(new Uint8Array([0, 0, 0, 0, 5, 255, 255, 255]));
    await until(() => trailers["grpc-status"] !== undefined, {
      about: "a status",
      deadlineMs: 5_000,
      everyMs: 10,
    });
    expect(["3", "13"]).toContain(String(trailers["grpc-status"]));
    lying.destroy();
    expect((await admin().listRuns({})).runs).toBeDefined();
  }, 20_000);

  test("a port that is taken is named at the start", async () => {
    const taken = startTestServer({
      engine: "libsql",
      settings: { grpcPort: Number(new URL(baseUrl).port) },
    });
    await expect(taken).rejects.toThrow("--grpc-port");
  });

  test("calls in flight end when the server stops; later ones are refused", async () => {
    const other = await startTestServer({ engine: "libsql", settings: { grpcPort: await freePort() } });
    const client = createClient(
      SvcService,
      createGrpcTransport({ baseUrl: `http://127.0.0.1:${other.running.grpcPort}` }),
    );
    await client.health({});
    const calls = Promise.all(Array.from({ length: 20 }, () => client.health({})));
    const stopped = other.stop();
    const outcome = await calls.then(
      (answers) => answers.map((answer) => answer.status),
      (error: unknown) => String(error),
    );
    await stopped;
    if (typeof outcome === "string") expect(outcome).toMatch(/unavailable|GOAWAY/);
    else expect(new Set(outcome)).toEqual(new Set(["healthy"]));
    expect(await codeOf(client.health({}))).toBe(Code.Unavailable);
  });
});
