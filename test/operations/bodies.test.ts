import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import {
  bodiesBytesMax,
  bodiesOfCallerBytesMax,
  bodiesOfNobodyBytesMax,
  openBodyRoom,
  publicBodyBytesMax,
} from "../../src/edge/body-room.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";

test("bodies that are being read share a bound, and who holds little is served", () => {
  const room = openBodyRoom();
  const mega = 1024 * 1024;
  const takes = (holder: string, bytes: number) => {
    try {
      room.reading(holder).take(bytes);
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
  reading.take(mega);
  reading.release();
  reading.release();
  expect(room.bytes()).toBe(before);
});

describe("bodies over a socket", () => {
  let server: TestServer;
  beforeAll(async () => {
    server = await startTestServer({ engine: engines[0] });
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
});
