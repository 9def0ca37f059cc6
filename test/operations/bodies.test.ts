import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { connect as http2 } from "node:http2";
import { connect } from "node:net";
import {
  bodiesBytesMax,
  bodiesOfCallerBytesMax,
  bodiesOfNobodyBytesMax,
  openBodyBudget,
  publicBodyBytesMax,
} from "../../src/edge/body-budget.ts";
import { freePort } from "../support/process.ts";
import { startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

test("bodies that are being read share a bound, and who holds little is served", () => {
  const room = openBodyBudget();
  const mega = 1024 * 1024;
  const takes = (holder: string, bytes: number) => {
    try {
      room.reading(holder).acquire(bytes);
      return true;
    } catch {
      return false;
    }
  };
  expect([takes("", bodiesOfNobodyBytesMax), takes("", 1)]).toEqual([true, false]);
  expect([takes("ak_a", bodiesOfCallerBytesMax), takes("ak_a", 1)]).toEqual([true, false]);
  expect(takes("ak_b", bodiesBytesMax - bodiesOfCallerBytesMax - bodiesOfNobodyBytesMax)).toBe(true);
  expect([takes("ak_c", 16 * mega), takes("ak_c", 4 * mega)]).toEqual([false, true]);
  const before = room.bytes();
  const reading = room.reading("ak_d");
  reading.acquire(mega);
  reading.release();
  reading.release();
  expect(room.bytes()).toBe(before);
});

const large = "x".repeat(1_000_000);

describe("bodies over a socket", () => {
  let server: TestServer;
  beforeAll(async () => {
    server = await startTestServer({ engine: "libsql", settings: { grpcPort: await freePort() } });
  });
  afterAll(() => server.stop());

  test("of public routes are small", async () => {
    const body = { email: "a@example.com", password: "x".repeat(publicBodyBytesMax) };
    const login = await server.api("/api/v1/auth/login", { body, key: null });
    expect(login.status).toBe(413);
    // With a credential they may be as large as ever.
    const data = "x".repeat(4 * publicBodyBytesMax);
    expect((await server.rpc("SvcService", "Emit", { event: "a.b", data })).status).toBe(200);
  });

  /** The beginning of one message of four megabytes, whose end does not come. */
  const begun = () => {
    const bytes = Buffer.alloc(3_900_000, " ");
    bytes.fill(0, 0, 1).writeUInt32BE(4_000_000, 1);
    return bytes;
  };

  test("of streams share the bound of one caller", async () => {
    let answered = 0;
    const sockets = Array.from({ length: 20 }, () => {
      const socket = connect(Number(new URL(server.url).port), "127.0.0.1");
      socket.on("error", () => {});
      socket.once("data", () => answered++);
      socket.write(
        `POST /svc.v1.PubSubService/Subscribe HTTP/1.1\r\nHost: svc\r\nAuthorization: Bearer ${server.adminKey}\r\n` +
          "Content-Type: application/connect+json\r\nContent-Length: 4000005\r\n\r\n",
      );
      socket.write(begun());
      return socket;
    });
    await until(() => answered >= 20 - Math.ceil(bodiesOfCallerBytesMax / 3_900_000), { about: "refusals" });
    for (const socket of sockets) socket.destroy();
    // What they held is free again.
    await until(
      async () => (await server.rpc("SvcService", "Emit", { event: "a.b", data: large })).status === 200,
      { about: "room for the next body" },
    );
  });

  test("of gRPC too", async () => {
    const session = http2(server.running.grpcUrl!);
    let answered = 0;
    for (let number = 0; number < 20; number++) {
      const sent = session.request({
        ...{ ":method": "POST", ":path": "/svc.v1.SvcService/ListRuns", te: "trailers" },
        ...{ "content-type": "application/grpc", authorization: `Bearer ${server.adminKey}` },
      });
      sent.on("error", () => {}).once("response", () => answered++);
      sent.write(begun());
    }
    await until(() => answered >= 20 - Math.ceil(bodiesOfCallerBytesMax / 3_900_000), { about: "refusals" });
    session.destroy();
  });
});
