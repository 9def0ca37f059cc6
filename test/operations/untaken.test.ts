import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { connect } from "node:net";
import {
  bodiesOfCallerBytesMax,
  openBodyBudget,
  sentInPieces,
  wholeBytesMax,
} from "../../src/edge/body-budget.ts";
import { livedTime } from "../support/lived.ts";
import { type SpawnedServer, spawnServer } from "../support/server.ts";
import { askAndTakeNothing } from "../support/untaken.ts";
import { until } from "../support/until.ts";
import { startMadeUp } from "./edge-support.ts";

const megabytes = (pid: number) =>
  Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1]) / 1024;

const readyMsMax = 50;

test("an answer that is not taken stands in its caller's budget until it is taken or left", async () => {
  const unsent = openBodyBudget("answers that are not taken");
  const text = "ä".repeat(500_000);
  const answer = (reads: boolean) => sentInPieces(text, {}, unsent.reading("ak_a"), reads);
  const taken = answer(true);
  expect(unsent.bytes()).toBe(1_000_000);
  expect(await taken.text()).toBe(text);
  expect(unsent.bytes()).toBe(0);
  await answer(true).body?.cancel();
  expect(unsent.bytes()).toBe(0);
  expect(await sentInPieces("x".repeat(wholeBytesMax), {}, unsent.reading("ak_a"), true).text()).toHaveLength(
    wholeBytesMax,
  );
  const kept = Array.from({ length: Math.floor(bodiesOfCallerBytesMax / 1_000_000) }, () => answer(true));
  expect(() => answer(true)).toThrow("too many answers that are not taken at once");
  // What a write has done is answered; the next call of its caller is refused before it does anything.
  kept.push(answer(false));
  expect(() => unsent.reading("ak_a").acquire(0)).toThrow("too many answers");
  expect(() => unsent.reading("ak_b").acquire(1_000_000)).not.toThrow();
});

describe("answers that their clients do not take", () => {
  let server: SpawnedServer;
  beforeAll(async () => {
    server = await spawnServer({ engine: "libsql" });
  });
  afterAll(() => server.stop());

  /** Asks `/ready` twenty times; answers how long another client waits, in lived time. */
  const readyMs = async () => {
    const lived = await livedTime();
    const waits: number[] = [];
    while (waits.length < 20) {
      const from = lived.now();
      expect((await server.api("/ready", { key: null })).status).toBe(200);
      waits.push(lived.now() - from);
    }
    await lived.stop();
    waits.sort((a, b) => a - b);
    return { median: waits[waits.length >> 1]!, worst: waits.at(-1)! };
  };

  const untaken = async (paths: readonly string[], key?: string) => {
    const clients = Array.from({ length: 20 }, () => askAndTakeNothing(server.url, paths, key));
    await until(() => clients.every((one) => one.heads() >= paths.length), { about: "all heads" });
    return () => {
      for (const one of clients) one.close();
    };
  };

  const grown = async (paths: readonly string[]) => {
    // The first one makes what all share.
    for (const path of new Set(paths)) await server.api(path);
    const before = megabytes(server.pid());
    // On a busy machine an answer is late whoever asks: what counts is what the others add to it.
    const most = readyMsMax + (await readyMs()).worst;
    const leave = await untaken(paths);
    const after = megabytes(server.pid());
    expect((await readyMs()).median).toBeLessThan(most);
    leave();
    return after - before;
  };

  test.each([
    "/openapi.json",
    "/docs/api/swagger-ui-bundle.js",
    "/docs/api/swagger-ui.css",
    "/dashboard/",
    "/docs",
    "/docs/no-such-page",
  ])(
    "of %s, asked without a credential, need no memory",
    async (path) => {
      expect(await grown(Array(128).fill(path))).toBeLessThan(100);
    },
    60_000,
  );

  test("of one key stand in its share, and others are served", async () => {
    const put = await server.rpc("SvcService", "Emit", { event: "large.one", data: "x".repeat(1_000_000) });
    expect(put.status).toBe(200);
    const path = "/api/v1/events?name=large.one";
    const status = async (asked = path) => (await server.api(asked)).status;
    const leave = await untaken(Array(16).fill(path), server.adminKey);
    expect(await status()).toBe(429);
    expect(await status("/api/v1/events?name=small.one")).toBe(200);
    leave();
    await until(async () => (await status()) === 200, { about: "room for answers" });
  }, 120_000);
});

test("a stranger's call that would be held, or a stream, holds no connection", async () => {
  const made = await startMadeUp({ idleSeconds: 1 });
  try {
    const asked = ["/svc.v1.PubSubService/Subscribe", "/svc.v1.SvcService/GetRun", "/api/v1/slow"];
    const sockets = asked.map((path) => {
      const seen = { path, text: "", closed: false };
      const socket = connect(made.listening.port, "127.0.0.1");
      socket.on("error", () => {});
      socket.on("data", (bytes) => (seen.text += bytes));
      socket.on("close", () => (seen.closed = true));
      const head = `POST ${path} HTTP/1.1\r\nHost: svc\r\nContent-Type: application/connect+json\r\n`;
      socket.write(`${head}Content-Length: 5\r\n\r\n\0\0\0\0\0`);
      return seen;
    });
    await until(() => sockets.every(({ text }) => text !== ""), { about: "answers" });
    await until(() => sockets.every(({ closed }) => closed), { about: "their end", deadlineMs: 25_000 });
  } finally {
    await made.stop();
  }
}, 120_000);
