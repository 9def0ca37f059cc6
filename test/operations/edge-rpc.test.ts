import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { connect as connectHttp2 } from "node:http2";
import { gzipSync } from "node:zlib";
import { create, toBinary } from "@bufbuild/protobuf";
import { Code, ConnectError, createClient, type Interceptor, type Transport } from "@connectrpc/connect";
import { createConnectTransport as nodeTransport } from "@connectrpc/connect-node";
import { createConnectTransport, createGrpcWebTransport } from "@connectrpc/connect-web";
import { PubSubService } from "../../src/gen/svc/v1/pubsub_pb.ts";
import { GetRunRequestSchema, SvcService } from "../../src/gen/svc/v1/svc_pb.ts";
import { RunStatus } from "../../src/gen/svc/v1/types_pb.ts";
import { until } from "../support/until.ts";
import { bodyBytesMax, good, json, type MadeUp, startMadeUp } from "./edge-support.ts";

let made: MadeUp;
beforeAll(async () => {
  made = await startMadeUp();
});
afterAll(() => made.stop());

const emit = "/svc.v1.PubSubService/Emit";
const getRun = "/svc.v1.SvcService/GetRun";

async function call(path: string, body: unknown, headers: Record<string, string> = {}, method = "POST") {
  const text = typeof body === "string" ? body : JSON.stringify(body);
  const response = await fetch(made.url + path, {
    method,
    headers: { ...good, ...json, ...headers },
    ...(method === "POST" && { body: text }),
  });
  const answered = await response.text();
  return {
    status: response.status,
    headers: response.headers,
    body: answered === "" ? "" : JSON.parse(answered),
  };
}

describe("unary JSON", () => {
  test("a hot method reads and writes JSON itself, with or without the protocol's header", async () => {
    expect((await call(emit, { event: "a", data: { n: 1 } })).body).toEqual({ eventId: "evt_a" });
    const told = await call(emit, { event: "a" }, { "Connect-Protocol-Version": "1" });
    expect([told.status, told.body]).toEqual([200, { eventId: "evt_a" }]);
    expect(told.headers.get("content-type")).toBe("application/json");
  });

  test("fields the browser client wants are there even when zero", async () => {
    const { body } = await call(getRun, { id: "run_1" });
    expect(body).toEqual({
      id: "run_1",
      functionId: "",
      eventId: "",
      status: "RUN_STATUS_UNSPECIFIED",
      attempt: 0,
      maxAttempts: 0,
      input: { a: 1 },
    });
  });

  test("either case of a name, and an enum's word in any form", async () => {
    const listed = await call("/svc.v1.SvcService/ListRuns", {
      statuses: ["running", "FAILED"],
      status: "RUN_STATUS_RUNNING",
    });
    const statuses = listed.body.runs.map((run: { status: string }) => run.status);
    expect(statuses).toEqual(["RUN_STATUS_RUNNING", "RUN_STATUS_FAILED", "RUN_STATUS_RUNNING"]);
    expect((await call("/svc.v1.SvcService/ListRuns", { function_id: "f", functionId: "f" })).status).toBe(
      400,
    );
    expect((await call(emit, { event: "a", idempotency_key: "k", metadata: null })).status).toBe(200);
  });

  test.each([
    [emit, {}, "event: required"],
    [getRun, { id: 5 }, "id: expected string, got 5"],
    [getRun, {}, "id: must not be empty"],
    [getRun, [], "body: must be an object"],
    [getRun, "{", "malformed JSON"],
    ["/svc.v1.PubSubService/Nothing", {}, "no such procedure"],
  ])("%s %j is refused: %s", async (path, body, message) => {
    const refused = await call(path, body);
    expect(refused.body.message).toStartWith(message);
  });

  test("errors have Connect's codes and statuses", async () => {
    const seen = async (what: string) => {
      const { status, body, headers } = await call("/svc.v1.SvcService/GetFunction", { id: what });
      return [status, body.code, headers.get("retry-after"), headers.get("svc-error-reason")];
    };
    expect(await seen("state")).toEqual([400, "failed_precondition", null, null]);
    expect(await seen("contended")).toEqual([409, "aborted", "1", "contended"]);
    expect(await seen("full")).toEqual([429, "resource_exhausted", "1", null]);
    expect(await seen("unavailable")).toEqual([503, "unavailable", "1", null]);
    expect(await seen("defect")).toEqual([500, "internal", null, null]);
    const denied = await call("/svc.v1.SvcService/DeleteFunction", "{");
    expect([denied.status, denied.body]).toEqual([
      403,
      { code: "permission_denied", message: "Insufficient permissions" },
    ]);
    const nobody = await call(emit, "{", { Authorization: "Bearer bad" });
    expect([nobody.status, nobody.body.code]).toEqual([401, "unauthenticated"]);
  });

  test("what is unknown, unbound, of the wrong type, method or size", async () => {
    const unknown = await call("/svc.v1.SvcService/Nothing", {});
    expect([unknown.status, unknown.body.code]).toEqual([404, "unimplemented"]);
    const unbound = await call("/svc.v1.SvcService/ResumeRun", {});
    expect([unbound.status, unbound.body.code]).toEqual([501, "unimplemented"]);
    expect((await call(getRun, "{}", { "Content-Type": "text/plain" })).status).toBe(415);
    const get = await call(emit, undefined, {}, "GET");
    expect([get.status, get.headers.get("allow")]).toEqual([405, "POST, OPTIONS"]);
    const large = await call(getRun, `"${"x".repeat(bodyBytesMax)}"`);
    expect([large.status, large.body.code]).toEqual([429, "resource_exhausted"]);
  });

  test("packed bodies, bombs, deadlines", async () => {
    const packed = (text: string) =>
      fetch(made.url + getRun, {
        method: "POST",
        headers: { ...good, ...json, "Content-Encoding": "gzip" },
        body: gzipSync(text),
      });
    expect(await (await packed('{"id":"run_2"}')).json()).toMatchObject({ id: "run_2" });
    expect((await packed(`{"id":"${"a".repeat(bodyBytesMax * 4)}"}`)).status).toBe(429);
    const { open, ended } = made.streams;
    const late = await call(
      "/svc.v1.SvcService/TriggerSync",
      { event: "abort" },
      // Long enough for the operation to begin on the slowest machine.
      { "Connect-Timeout-Ms": "1500" },
    );
    expect([late.status, late.body.code]).toEqual([504, "deadline_exceeded"]);
    await until(() => made.streams.ended > ended && made.streams.open > open, {
      about: "the operation to hear of it",
    });
  });

  test("a method without side effects also answers GET", async () => {
    const query = new URLSearchParams({ connect: "v1", encoding: "json", message: '{"id":"run_3"}' });
    const got = await call(`${getRun}?${query}`, undefined, {}, "GET");
    expect([got.status, got.body.id]).toEqual([200, "run_3"]);
    const binary = Buffer.from(toBinary(GetRunRequestSchema, create(GetRunRequestSchema, { id: "run_4" })));
    const packed = new URLSearchParams({
      connect: "v1",
      encoding: "proto",
      base64: "1",
      message: binary.toString("base64url"),
    });
    const response = await fetch(`${made.url}${getRun}?${packed}`, { headers: good });
    expect([response.status, response.headers.get("content-type")]).toEqual([200, "application/proto"]);
  });
});

const withKey =
  (key: string): Interceptor =>
  (next) =>
  (request) => {
    request.header.set("Authorization", `Bearer ${key}`);
    return next(request);
  };

const transports: [string, (key: string) => Transport][] = [
  ["Connect JSON", (key) => createConnectTransport({ baseUrl: made.url, interceptors: [withKey(key)] })],
  [
    "Connect binary",
    (key) =>
      createConnectTransport({ baseUrl: made.url, useBinaryFormat: true, interceptors: [withKey(key)] }),
  ],
  ["gRPC-Web", (key) => createGrpcWebTransport({ baseUrl: made.url, interceptors: [withKey(key)] })],
  [
    "gRPC-Web JSON",
    (key) =>
      createGrpcWebTransport({ baseUrl: made.url, useBinaryFormat: false, interceptors: [withKey(key)] }),
  ],
  [
    "Connect over cleartext HTTP/2, packed",
    (key) =>
      nodeTransport({
        baseUrl: made.url,
        httpVersion: "2",
        compressMinBytes: 1,
        interceptors: [withKey(key)],
      }),
  ],
  [
    "Connect GET",
    (key) =>
      createConnectTransport({
        baseUrl: made.url,
        useHttpGet: true,
        useBinaryFormat: true,
        interceptors: [withKey(key)],
      }),
  ],
];

const failure = async (work: Promise<unknown>): Promise<ConnectError> => {
  try {
    await work;
  } catch (error) {
    return ConnectError.from(error);
  }
  throw new Error("did not fail");
};

describe.each(transports)("%s", (_, transport) => {
  const runs = (key = "good") => createClient(SvcService, transport(key));
  const topics = (key = "good") => createClient(PubSubService, transport(key));

  test("unary calls and their errors", async () => {
    expect(await runs().getRun({ id: "run_9" })).toMatchObject({ id: "run_9", input: { a: 1 } });
    const listed = await runs().listRuns({ statuses: [RunStatus.RUNNING] });
    expect(listed.runs[0]?.status).toBe(RunStatus.RUNNING);
    expect(await topics().emit({ event: "e", data: { n: 1 } })).toMatchObject({ eventId: "evt_e" });
    const refused = await failure(runs().getRun({}));
    expect([refused.code, refused.rawMessage]).toEqual([Code.InvalidArgument, "id: must not be empty"]);
    const contended = await failure(runs().getFunction({ id: "contended" }));
    expect([contended.code, contended.metadata.get("svc-error-reason")]).toEqual([Code.Aborted, "contended"]);
    expect((await failure(runs().getFunction({ id: "defect" }))).rawMessage).toMatch(
      /^internal error \(id req_/,
    );
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
    expect((await failure(drained("good", ""))).rawMessage).toBe("pattern: must not be empty");
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
});

test("REST speaks cleartext HTTP/2 as well", async () => {
  const session = connectHttp2(made.url);
  session.on("error", () => {});
  const stream = session.request({
    ":method": "POST",
    ":path": "/api/v1/things",
    authorization: "Bearer good",
    "content-type": "application/json",
  });
  let status = 0;
  let text = "";
  stream.on("response", (headers) => {
    status = Number(headers[":status"]);
  });
  stream.setEncoding("utf8").on("data", (piece: string) => {
    text += piece;
  });
  const ended = new Promise((done) => stream.on("end", done));
  stream.end('{"name":"n"}');
  await ended;
  session.close();
  expect([status, JSON.parse(text)]).toEqual([201, { name: "n" }]);
});
