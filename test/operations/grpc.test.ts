import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import { Code, ConnectError, createClient, type Interceptor } from "@connectrpc/connect";
import { compressionGzip, createGrpcTransport } from "@connectrpc/connect-node";
import * as grpc from "@grpc/grpc-js";
import { PubSubService } from "../../src/gen/svc/v1/pubsub_pb.ts";
import { GetRunRequestSchema, SvcService } from "../../src/gen/svc/v1/svc_pb.ts";
import { RunSchema } from "../../src/gen/svc/v1/types_pb.ts";
import { freePort } from "../support/process.ts";
import { engines, startTestServer } from "../support/server.ts";
import { until } from "../support/until.ts";
import { bodyBytesMax, type MadeUp, startMadeUp } from "./edge-support.ts";

let made: MadeUp;
beforeAll(async () => {
  made = await startMadeUp();
});
afterAll(() => made.stop());

const withKey =
  (key: string): Interceptor =>
  (next) =>
  (request) => {
    request.header.set("Authorization", `Bearer ${key}`);
    return next(request);
  };

const transport = (key: string, packed = false) =>
  createGrpcTransport({
    baseUrl: made.grpc.url,
    interceptors: [withKey(key)],
    ...(packed && { sendCompression: compressionGzip, compressMinBytes: 1 }),
  });

const failure = async (work: Promise<unknown>): Promise<ConnectError> => {
  try {
    await work;
  } catch (error) {
    return ConnectError.from(error);
  }
  throw new Error("did not fail");
};

describe.each([
  ["plain", false],
  ["gzip", true],
])("connect-node, %s", (_, packed) => {
  const runs = (key = "good") => createClient(SvcService, transport(key, packed));
  const topics = (key = "good") => createClient(PubSubService, transport(key, packed));

  test("unary calls, their errors, who asks and what they may", async () => {
    let requestId: string | null = "";
    const got = await runs().getRun(
      { id: "run_9" },
      {
        headers: { "X-Request-Id": "told" },
        onHeader: (header) => {
          requestId = header.get("x-request-id");
        },
      },
    );
    expect([got.id, got.input, requestId]).toEqual(["run_9", { a: 1 }, "told"]);
    expect(await topics().emit({ event: "e", data: { n: 1 } })).toMatchObject({ eventId: "evt_e" });
    const refused = await failure(runs().getRun({}));
    expect([refused.code, refused.rawMessage]).toEqual([Code.InvalidArgument, "id: must not be empty"]);
    const contended = await failure(runs().getFunction({ id: "contended" }));
    expect([contended.code, contended.metadata.get("svc-error-reason")]).toEqual([Code.Aborted, "contended"]);
    expect((await failure(runs().getFunction({ id: "defect" }))).rawMessage).toMatch(
      /^internal error \(id req_/,
    );
    const full = await failure(runs().getFunction({ id: "full" }));
    expect([full.code, full.metadata.get("retry-after")]).toEqual([Code.ResourceExhausted, "1"]);
    expect((await failure(runs("bad").getRun({ id: "r" }))).code).toBe(Code.Unauthenticated);
    expect((await failure(runs("weak").getRun({ id: "r" }))).code).toBe(Code.PermissionDenied);
    expect((await failure(runs().resumeRun({ runId: "r" }))).code).toBe(Code.Unimplemented);
  });

  test("a stream, its end, its errors and its abort", async () => {
    const sequences: bigint[] = [];
    for await (const { sequence } of topics().subscribe({ pattern: "t", options: { replay: 3 } })) {
      sequences.push(sequence);
    }
    expect(sequences).toEqual([1n, 2n, 3n]);
    const drained = async (key: string, pattern: string) => {
      for await (const _event of topics(key).subscribe({ pattern, options: { replay: 1 } }));
    };
    expect((await failure(drained("good", "fails"))).rawMessage).toBe("no such topic");
    expect((await failure(drained("bad", "t"))).code).toBe(Code.Unauthenticated);
    const { ended } = made.streams;
    const leave = new AbortController();
    const aborted = (async () => {
      for await (const { sequence } of topics().subscribe({ pattern: "t" }, { signal: leave.signal })) {
        if (sequence === 3n) leave.abort();
      }
    })();
    expect((await failure(aborted)).code).toBe(Code.Canceled);
    await until(() => made.streams.ended > ended, { about: "the generator to end" });
  });

  test("a message over the limit is refused, packed or not, and nothing ran", async () => {
    const before = made.ran.length;
    const large = await failure(topics().emit({ event: "x".repeat(bodyBytesMax + 1) }));
    expect(large.code).toBe(Code.ResourceExhausted);
    expect(made.ran.length).toBe(before);
    expect((await runs().getRun({ id: "after" })).id).toBe("after");
  });

  test("a deadline ends the call on both sides", async () => {
    const { open, ended } = made.streams;
    // Long enough for the call to arrive from the slowest machine.
    const late = await failure(runs().triggerSync({ event: "abort" }, { timeoutMs: 1_500 }));
    expect(late.code).toBe(Code.DeadlineExceeded);
    await until(() => made.streams.open > open && made.streams.ended > ended, {
      about: "the operation to hear of it",
    });
  });

  test("100 calls at once", async () => {
    const all = await Promise.all(
      Array.from({ length: 100 }, (_, place) => runs().getRun({ id: `run_${place}` })),
    );
    expect(all.map(({ id }) => id)).toEqual(Array.from({ length: 100 }, (_, place) => `run_${place}`));
  });
});

describe("grpc-js", () => {
  const address = () => new URL(made.grpc.url).host;
  const ask = (
    path: string,
    bytes: Uint8Array,
    key = "good",
    options: grpc.CallOptions = {},
    channel: grpc.ClientOptions = {},
  ) => {
    const client = new grpc.Client(address(), grpc.credentials.createInsecure(), channel);
    const metadata = new grpc.Metadata();
    metadata.set("authorization", `Bearer ${key}`);
    return new Promise<Buffer>((done, failed) => {
      const write = (value: Uint8Array) => Buffer.from(value);
      client.makeUnaryRequest(
        path,
        write,
        (value) => value,
        bytes,
        metadata,
        options,
        (error, value) => {
          client.close();
          if (error) failed(error);
          else done(value!);
        },
      );
    });
  };
  const getRun = "/svc.v1.SvcService/GetRun";
  const request = (id: string) => toBinary(GetRunRequestSchema, create(GetRunRequestSchema, { id }));
  const refusal = async (work: Promise<unknown>) => {
    const { code, details } = (await work.then(
      () => Promise.reject(new Error("did not fail")),
      (error) => error,
    )) as grpc.ServiceError;
    return [code, decodeURIComponent(details)];
  };

  test("unary, errors, gzip, unknown methods and deadlines", async () => {
    expect(fromBinary(RunSchema, await ask(getRun, request("run_7"))).id).toBe("run_7");
    const packed = { "grpc.default_compression_algorithm": grpc.compressionAlgorithms.gzip };
    const long = "run_".repeat(1_000);
    expect(fromBinary(RunSchema, await ask(getRun, request(long), "good", {}, packed)).id).toBe(long);
    expect(await refusal(ask(getRun, request("")))).toEqual([
      grpc.status.INVALID_ARGUMENT,
      "id: must not be empty",
    ]);
    expect(await refusal(ask(getRun, request("r"), "bad"))).toEqual([
      grpc.status.UNAUTHENTICATED,
      "Invalid API key",
    ]);
    expect((await refusal(ask("/svc.v1.SvcService/Nothing", request("r"))))[0]).toBe(
      grpc.status.UNIMPLEMENTED,
    );
    expect((await refusal(ask("/other.Service/Nothing", request("r"))))[0]).toBe(grpc.status.UNIMPLEMENTED);
    expect((await refusal(ask(getRun, new Uint8Array([0xff, 0xff, 0xff]))))[0]).toBe(grpc.status.INTERNAL);
    const large = await refusal(ask(getRun, request("x".repeat(bodyBytesMax))));
    expect(large[0]).toBe(grpc.status.RESOURCE_EXHAUSTED);
    const late = await refusal(
      ask("/svc.v1.SvcService/TriggerSync", new Uint8Array([10, 5, 97, 98, 111, 114, 116]), "good", {
        deadline: Date.now() + 150,
      }),
    );
    expect(late[0]).toBe(grpc.status.DEADLINE_EXCEEDED);
  });

  test("a server stream", async () => {
    const client = new grpc.Client(address(), grpc.credentials.createInsecure());
    const metadata = new grpc.Metadata();
    metadata.set("authorization", "Bearer good");
    const { input, output } = PubSubService.method.subscribe;
    const bytes = toBinary(input, create(input, { pattern: "t", options: { replay: 4 } }));
    const answers = client.makeServerStreamRequest(
      "/svc.v1.PubSubService/Subscribe",
      (value: Uint8Array) => Buffer.from(value),
      (value) => fromBinary(output, value),
      bytes,
      metadata,
    );
    const seen: bigint[] = [];
    for await (const { sequence } of answers) seen.push(sequence);
    client.close();
    expect(seen).toEqual([1n, 2n, 3n, 4n]);
  });
});

describe.each(engines)("the product on %s", (engine) => {
  test("what one port writes the other reads, for the same key and the same rights", async () => {
    const server = await startTestServer({ engine, settings: { grpcPort: await freePort() } });
    try {
      const client = (key: string) =>
        createClient(
          SvcService,
          createGrpcTransport({ baseUrl: server.running.grpcUrl!, interceptors: [withKey(key)] }),
        );
      const admin = client(server.adminKey);
      await admin.registerFunction({ id: "greet", triggers: [{ event: "user.joined" }] });
      const { eventId } = await admin.emit({ event: "user.joined", data: { name: "Ada" } });
      const runs = await server.rpc("SvcService", "ListRuns", { functionId: "greet" });
      expect(runs.body.runs).toMatchObject([{ eventId }]);
      expect((await admin.listRuns({ functionId: "greet" })).runs).toMatchObject([{ eventId }]);

      const stranger = await failure(client("ifkey_nobody").emit({ event: "user.joined" }));
      expect(stranger.code).toBe(Code.Unauthenticated);
      const elsewhere = admin.emit(
        { event: "user.joined" },
        { headers: { "x-svc-environment": "env_elsewhere" } },
      );
      const over = await failure(elsewhere);
      const same = await server.rpc(
        "SvcService",
        "Emit",
        { event: "user.joined" },
        { environment: "env_elsewhere" },
      );
      expect([Code[over.code], over.rawMessage]).toEqual([
        same.body.code.replace(/(^|_)(\w)/g, (_: string, _bar: string, letter: string) =>
          letter.toUpperCase(),
        ),
        same.body.message,
      ]);
      const bad = await failure(admin.emit({ event: "not a name!" }));
      expect(bad.code).toBe(Code.InvalidArgument);
      expect((await admin.listRuns({ functionId: "greet" })).totalCount).toBe(1);
    } finally {
      await server.stop();
    }
  });
});
