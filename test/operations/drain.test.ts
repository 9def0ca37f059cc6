import { expect, test } from "bun:test";
import { connect as connectHttp2 } from "node:http2";
import { connect } from "node:net";
import { Code, type ConnectError, createClient } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import { Type } from "@sinclair/typebox";
import { SvcService } from "../../src/gen/svc/v1/svc_pb.ts";
import { systemClock } from "../../src/kit/clock.ts";
import { rpc, unary } from "../../src/kit/operation.ts";
import { freePort } from "../support/process.ts";
import { makeHome, spawnServer, startTestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

/** An operation that answers when it is told to. */
function gate() {
  let open = () => {};
  const opened = new Promise<void>((done) => {
    open = done;
  });
  const state = { asked: 0, open };
  const operation = unary({
    name: "test.gate",
    action: null,
    summary: "Answers when the test says so.",
    held: true,
    input: Type.Object({}),
    rest: "GET /gate",
    rpc: rpc(
      SvcService.method.info,
      () => ({}),
      () => ({}),
    ),
    async handle() {
      state.asked++;
      await opened;
      return { done: true };
    },
  });
  return { state, operation };
}

/** One HTTP/1.1 connection, request after request; what it answers as text. */
async function keepAlive(port: number) {
  const socket = connect(port, "127.0.0.1");
  let text = "";
  const world = { closed: false };
  socket.on("data", (bytes) => {
    text += String(bytes);
  });
  socket.on("close", () => {
    world.closed = true;
  });
  socket.on("error", () => {});
  const ask = async (path: string) => {
    const from = text.length;
    socket.write(`GET ${path} HTTP/1.1\r\nHost: localhost\r\n\r\n`);
    return until(() => /\r\n\r\n[\s\S]*\}/.test(text.slice(from)) && text.slice(from), { about: path });
  };
  return { ask, world, end: () => socket.destroy() };
}

test("while it drains: ready says so at once, everything else is served, connections are asked to go", async () => {
  const { state, operation } = gate();
  // The notice is over when the test says so, however long what it looks at meanwhile takes.
  const noticeMs = 600_000;
  const notice = Promise.withResolvers<void>();
  const base = systemClock();
  const server = await startTestServer({
    engine: "libsql",
    clock: { ...base, sleep: (ms, signal) => (ms === noticeMs ? notice.promise : base.sleep(ms, signal)) },
    settings: { drainNoticeMs: noticeMs, drainMs: 60_000, grpcPort: await freePort() },
    operations: [operation],
  });
  const { port, grpcUrl } = server.running;
  const line = await keepAlive(port);
  const first = await line.ask("/health");
  expect(first).toStartWith("HTTP/1.1 200");
  expect(first.toLowerCase()).not.toContain("connection: close");
  const session = connectHttp2(server.url);
  session.on("error", () => {});
  let goaway = false;
  session.on("goaway", () => {
    goaway = true;
  });
  const client = createClient(SvcService, createGrpcTransport({ baseUrl: grpcUrl! }));
  expect((await client.health({})).status).toBe("healthy");

  const stopped = server.stop();
  const ready = await server.api("/ready");
  expect([ready.status, ready.body]).toEqual([503, { status: "draining" }]);
  expect((await server.api("/health")).status).toBe(200);
  expect((await client.health({})).status).toBe("healthy");
  // A client that lets its connections be reused loses no request.
  const many = Array.from({ length: 20 }, () => server.api("/api/v1/capabilities"));
  expect((await Promise.all(many)).map((answer) => answer.status)).toEqual(Array(20).fill(200));
  const over2 = session.request({ ":path": "/health" });
  const status = await new Promise((done) => over2.on("response", (headers) => done(headers)));
  expect(status).toMatchObject({ ":status": 200 });
  expect(status).not.toHaveProperty("connection");
  over2.resume();
  const last = await line.ask("/health");
  expect(last).toStartWith("HTTP/1.1 200");
  expect(last.toLowerCase()).toContain("connection: close");
  await until(() => line.world.closed, { about: "the connection to be closed" });
  // Open requests, over both ports, end although listening stops meanwhile.
  const open = fetch(`${server.url}/gate`);
  const openRpc = client.info({});
  await until(() => state.asked === 2, { about: "both to be asked" });
  expect((await server.api("/health")).status).toBe(200);
  notice.resolve();
  await until(
    () =>
      fetch(`${server.url}/health`).then(
        () => false,
        () => true,
      ),
    {
      about: "listening to stop",
    },
  );
  state.open();
  expect((await open).status).toBe(200);
  await openRpc;
  await stopped;
  await until(() => goaway, { about: "HTTP/2 to be told to go" });
  session.destroy();
  line.end();
}, 120_000);

test("a second SIGTERM does not wait", async () => {
  const server = await spawnServer({ engine: "libsql", settings: { drainNoticeMs: 60_000 } });
  try {
    process.kill(server.pid(), "SIGTERM");
    await until(async () => (await server.api("/ready")).status === 503, { about: "the drain" });
    expect((await server.api("/health")).status).toBe(200);
    expect(await server.terminate()).toBe(1);
  } finally {
    await server.stop();
    await server.home.remove();
  }
});

test("a call of an endpoint that is under way has the time of open requests, and its report is kept", async () => {
  const answer = Promise.withResolvers<void>();
  let asked = false;
  const endpoint = Bun.serve({
    port: 0,
    hostname: "127.0.0.1",
    async fetch() {
      asked = true;
      await answer.promise;
      return Response.json({ status: "completed", steps: [], result: "in time" });
    },
  });
  const home = await makeHome("libsql");
  const options = {
    ...{ engine: "libsql" as const, home },
    settings: { drainMs: 60_000, pushTimeoutMs: 60_000, pushAllowPrivate: ["127.0.0.0/8"] },
  };
  const server = await startTestServer(options);
  const endpointUrl = `http://127.0.0.1:${endpoint.port}/`;
  await server.rpc("SvcService", "RegisterFunction", {
    id: "slow",
    endpointUrl,
    triggers: [{ event: "slow" }],
  });
  const { runIds } = (await server.rpc("SvcService", "Emit", { event: "slow" })).body;
  await until(() => asked, { about: "the call" });
  const stopped = server.stop();
  const isGone = () =>
    fetch(`${server.url}/health`).then(
      () => false,
      () => true,
    );
  await until(isGone, { about: "listening to stop" });
  answer.resolve();
  await stopped;
  const next = await startTestServer(options);
  const { body } = await next.rpc("SvcService", "GetRun", { id: runIds[0] });
  expect(body).toMatchObject({ status: "RUN_STATUS_COMPLETED", outputValue: "in time" });
  await next.stop();
  await home.remove();
  endpoint.stop(true);
});

test("what does not end in time is cut, on both ports", async () => {
  const { state, operation } = gate();
  const server = await startTestServer({
    engine: "libsql",
    settings: { drainMs: 100, grpcPort: await freePort() },
    operations: [operation],
  });
  const client = createClient(SvcService, createGrpcTransport({ baseUrl: server.running.grpcUrl! }));
  const call = client.info({}).then(
    () => undefined,
    (error) => (error as ConnectError).code,
  );
  const request = fetch(`${server.url}/gate`).then(
    () => "answered",
    () => "cut",
  );
  await until(() => state.asked === 2, { about: "both to be asked" });
  await server.stop();
  expect([await call, await request]).toEqual([Code.Unavailable, "cut"]);
  state.open();
});

test("a taken gRPC port is told by its flag", async () => {
  const port = await freePort();
  const server = await startTestServer({ engine: "libsql", settings: { grpcPort: port } });
  try {
    expect((await server.api("/api/v1/capabilities")).body.transports).toContain("grpc");
    const second = startTestServer({ engine: "libsql", settings: { grpcPort: port } });
    await expect(second).rejects.toThrow(
      `127.0.0.1:${port} is in use: stop the program that has it, or choose another --grpc-port`,
    );
  } finally {
    await server.stop();
  }
});
