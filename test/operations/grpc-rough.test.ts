import { afterAll, beforeAll, expect, test } from "bun:test";
import { randomBytes } from "node:crypto";
import { type ClientHttp2Session, connect as connectHttp2, constants } from "node:http2";
import { connect } from "node:net";
import { create, toBinary } from "@bufbuild/protobuf";
import { createClient } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import type { Connections } from "../../src/edge/connections.ts";
import { PubSubService } from "../../src/gen/svc/v1/pubsub_pb.ts";
import { GetRunRequestSchema, SvcService } from "../../src/gen/svc/v1/svc_pb.ts";
import { until } from "../support/until.ts";
import { bodyBytesMax, type MadeUp, startMadeUp } from "./edge-support.ts";

let made: MadeUp;
let session: ClientHttp2Session;
beforeAll(async () => {
  made = await startMadeUp();
  session = connectHttp2(made.grpc.url);
  session.on("error", () => {});
});
afterAll(async () => {
  session.destroy();
  await made.stop();
});

const port = () => made.grpc.port;
const alive = async () => {
  const client = createClient(
    SvcService,
    createGrpcTransport({ baseUrl: made.grpc.url, headers: {} } as never),
  );
  return (await client.getRun({ id: "alive" }, { headers: { authorization: "Bearer good" } })).id === "alive";
};

const head = {
  ":method": "POST",
  ":path": "/svc.v1.SvcService/GetRun",
  "content-type": "application/grpc",
  te: "trailers",
  authorization: "Bearer good",
};

function frame(message: Uint8Array, { flags = 0, length = message.byteLength } = {}): Buffer {
  const prefix = Buffer.alloc(5);
  prefix.writeUInt8(flags, 0);
  prefix.writeUInt32BE(length, 1);
  return Buffer.concat([prefix, message]);
}
const request = toBinary(GetRunRequestSchema, create(GetRunRequestSchema, { id: "run_1" }));

/** The HTTP status and the gRPC status of what was sent. */
function send(body: Uint8Array, headers: Record<string, string> = {}): Promise<string> {
  return new Promise((done) => {
    const stream = session.request({ ...head, ...headers });
    let http = "";
    let grpc = "";
    const note = (from: Record<string, unknown>) => {
      if (from[":status"]) http = String(from[":status"]);
      if (from["grpc-status"] !== undefined) grpc = String(from["grpc-status"]);
    };
    stream.on("response", note);
    stream.on("trailers", note);
    stream.on("error", () => done("reset"));
    stream.on("close", () => done(`${http} ${grpc}`.trim()));
    stream.resume();
    stream.end(body);
  });
}

test.each([
  ["a good one", frame(request), {}, "200 0"],
  ["no message", Buffer.alloc(0), {}, "200 12"],
  ["two messages", Buffer.concat([frame(request), frame(request)]), {}, "200 12"],
  ["half a prefix", Buffer.from([0, 0]), {}, "200 3"],
  ["a frame that promises more than comes", frame(request, { length: 500 }), {}, "200 3"],
  ["a frame that promises more than is allowed", frame(request, { length: bodyBytesMax + 1 }), {}, "200 8"],
  ["a frame that promises four gigabytes", frame(request, { length: 0xffffffff }), {}, "200 8"],
  ["flags that mean nothing", frame(request, { flags: 0x7c }), {}, "200 0"],
  ["packed without saying how", frame(request, { flags: 1 }), {}, "200 13"],
  ["said to be gzip and is not", frame(request, { flags: 1 }), { "grpc-encoding": "gzip" }, "200 3"],
  ["an unknown packing", frame(request, { flags: 1 }), { "grpc-encoding": "zz" }, "200 12"],
  ["bytes that are no message", frame(randomBytes(64).fill(0xff)), {}, "200 13"],
  ["an odd deadline", frame(request), { "grpc-timeout": "soon" }, "200 3"],
  ["nobody", frame(request), { authorization: "Bearer bad" }, "200 16"],
  ["an unknown method", frame(request), { ":path": "/svc.v1.SvcService/Nothing" }, "200 12"],
  ["a path with odd bytes", frame(request), { ":path": "/%ff%zz?a=%00" }, "200 12"],
  ["another content type", frame(request), { "content-type": "text/plain" }, "415"],
  ["another method", frame(request), { ":method": "PUT" }, "405"],
  ["an authority that is none", frame(request), { ":authority": "a b:c" }, "reset"],
])("%s", async (_, body, headers, expected) => {
  const before = made.ran.length;
  expect(await send(body, headers)).toBe(expected);
  expect(made.ran.length).toBe(before);
  expect(await send(frame(request))).toBe("200 0");
});

test("CONNECT, which has no path, and unknown paths that are reset at once", async () => {
  const other = connectHttp2(made.grpc.url);
  other.on("error", () => {});
  for (let count = 0; count < 100; count++) {
    const asked: Record<string, string> =
      count % 2 === 0 ? { ":method": "CONNECT", ":authority": "a" } : { ...head, ":path": "/nowhere" };
    const stream = other.request(asked);
    stream.on("error", () => {});
    if (count > 10) stream.close(constants.NGHTTP2_CANCEL);
    stream.end();
  }
  expect(await alive()).toBe(true);
  other.destroy();
  expect(await send(frame(request))).toBe("200 0");
});

test("unknown fields are skipped, as protobuf has it, and bound by the same limit", async () => {
  // Field 5,000, a text.
  const unknown = Buffer.concat([Buffer.from([0xc2, 0xb8, 0x02, 3]), Buffer.from("odd")]);
  expect(await send(frame(Buffer.concat([request, unknown])))).toBe("200 0");
});

test("random bytes, with and without the preface, and connections that say nothing", async () => {
  const preface = Buffer.from("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
  const settings = Buffer.from([0, 0, 0, 4, 0, 0, 0, 0, 0]);
  const attempts = Array.from({ length: 200 }, (_, place) => {
    const noise = randomBytes(1 + ((place * 37) % 2_000));
    return [noise, Buffer.concat([preface, noise]), Buffer.concat([preface, settings, noise])][place % 3]!;
  });
  const opened = attempts.map(
    (bytes) =>
      new Promise<void>((done) => {
        const socket = connect(port(), "127.0.0.1", () => socket.end(bytes));
        socket.on("error", () => done());
        socket.on("close", () => done());
        socket.resume();
      }),
  );
  const silent = Array.from({ length: 50 }, () => connect(port(), "127.0.0.1").on("error", () => {}));
  expect(await alive()).toBe(true);
  await Promise.all(opened);
  for (const socket of silent) socket.destroy();
  expect(await alive()).toBe(true);
});

test("1,000 streams reset at once leave nothing open", async () => {
  const other = connectHttp2(made.grpc.url);
  other.on("error", () => {});
  const { open, ended } = made.streams;
  for (let count = 0; count < 1_000; count++) {
    const stream = other.request({ ...head, ":path": "/svc.v1.PubSubService/Subscribe" });
    stream.on("error", () => {});
    // A subscription to `t` without an end.
    stream.end(frame(Buffer.from([0x0a, 1, 0x74])));
    stream.close(constants.NGHTTP2_CANCEL);
    if (count % 50 === 0) await new Promise((done) => setImmediate(done));
  }
  expect(await alive()).toBe(true);
  other.destroy();
  await until(() => made.streams.open - open === made.streams.ended - ended, {
    about: "every stream to end",
  });
  expect(made.logged.filter((line) => /defect/.test(line))).toEqual([]);
});

test("1,000 connections cut in the middle of a request", async () => {
  for (let round = 0; round < 20; round++) {
    await Promise.all(
      Array.from(
        { length: 50 },
        () =>
          new Promise<void>((done) => {
            const socket = connect(port(), "127.0.0.1", () => {
              socket.write("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
              socket.resetAndDestroy();
            });
            socket.on("error", () => done());
            socket.on("close", () => done());
          }),
      ),
    );
  }
  expect(await alive()).toBe(true);
});

test("connections that say nothing do not hold up a stop", async () => {
  const quick = await startMadeUp();
  const silent = Array.from({ length: 5 }, () => connect(quick.grpc.port, "127.0.0.1").on("error", () => {}));
  const closed = silent.map((socket) => new Promise((done) => socket.resume().on("close", done)));
  await Promise.all(silent.map((socket) => new Promise((done) => socket.on("connect", done))));
  const startedAt = performance.now();
  const graceMs = 25_000;
  await quick.grpc.stop(graceMs);
  await Promise.all(closed);
  expect(performance.now() - startedAt).toBeLessThan(graceMs / 2);
  await quick.stop();
});

test("connections without a request are closed after a while; open streams are not cut", async () => {
  const short = await startMadeUp({ grpcIdleMs: 1_000 });
  const closed = { silent: false, half: false, idle: false };
  const silent = connect(short.grpc.port, "127.0.0.1");
  silent.on("error", () => {});
  silent.on("close", () => {
    closed.silent = true;
  });
  // Half open: the client has ended its side and reads no more.
  const half = connect({ port: short.grpc.port, host: "127.0.0.1", allowHalfOpen: true });
  half.on("connect", () => half.end("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"));
  half.on("error", () => {});
  half.on("close", () => {
    closed.half = true;
  });
  half.resume();
  silent.resume();
  const idle = connectHttp2(short.grpc.url);
  idle.on("error", () => {});
  idle.on("close", () => {
    closed.idle = true;
  });
  const client = createClient(PubSubService, createGrpcTransport({ baseUrl: short.grpc.url }));
  const told = client.subscribe({ pattern: "t" }, { headers: { authorization: "Bearer good" } });
  const open = told[Symbol.asyncIterator]();
  expect((await open.next()).value?.sequence).toBe(1n);
  await until(() => closed.silent && closed.half && closed.idle, {
    about: "idle connections to be closed",
  }).catch((error) => {
    throw new Error(JSON.stringify(closed), { cause: error });
  });
  // Open for longer than a connection may idle, and still told something.
  const { value } = await open.next();
  expect(value?.sequence).toBe(2n);
  await open.return?.();
  await short.stop();
});

/** A stream whose client goes on for ever after its head. */
function openStream(on: ClientHttp2Session, authorization?: string) {
  const { authorization: _, ...sent } = head;
  const known = authorization === undefined ? {} : { authorization };
  const stream = on.request({ ...sent, ...known }, { endStream: false });
  const heard = { stream, status: "", isClosed: false };
  stream.on("error", () => {});
  stream.on("trailers", (trailers) => {
    heard.status = String(trailers["grpc-status"]);
  });
  stream.on("close", () => {
    heard.isClosed = true;
  });
  stream.resume();
  return heard;
}

test("only callers who are known use their connections, and an answer ends the stream", async () => {
  let [used, uses] = [0, 0];
  const connections = {
    listensAt() {},
    useFrom() {
      uses++;
      used++;
      return () => void used--;
    },
  } as unknown as Connections;
  const counted = await startMadeUp({ connections });
  const client = connectHttp2(counted.grpc.url);
  client.on("error", () => {});
  for (const [authorization, status] of [
    [undefined, "16"],
    ["Bearer bad", "16"],
    ["Bearer weak", "7"],
  ] as const) {
    const refused = openStream(client, authorization);
    await until(() => refused.isClosed, { about: "the end of a refused stream" });
    expect(refused.status).toBe(status);
  }
  expect(uses).toBe(0);
  const known = openStream(client, "Bearer good");
  await until(() => used === 1, { about: "a known caller" });
  expect(known.isClosed).toBe(false);
  known.stream.write(frame(request));
  known.stream.end();
  await until(() => known.isClosed && used === 0, { about: "the end of the known caller's stream" });
  expect([known.status, uses]).toEqual(["0", 1]);
  client.destroy();
  await counted.stop();
});
