import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { connect, type Socket } from "node:net";
import { firstToGo } from "../../src/edge/connections.ts";
import { listen } from "../support/raw-stream.ts";
import { type SpawnedServer, spawnServer } from "../support/server.ts";
import { openSocket } from "../support/sockets.ts";
import { until } from "../support/until.ts";

test("of too many connections the longest silent ones go first, of the network that has the most", () => {
  const one = (file: number, from: string, silentMs: number, isUsed = false) => ({
    file,
    from,
    silentMs,
    isUsed,
  });
  const all = [
    ...[one(1, "a", 9_000), one(2, "b", 5), one(3, "b", 7), one(4, "b", 6)],
    ...[one(5, "b", 90_000, true), one(6, "c", 1), one(7, "c", 2)],
  ];
  const files = (count: number) => firstToGo(all, count).map(({ file }) => file);
  expect(files(0)).toEqual([]);
  // Four of `b`, then two of each, then one of each; those that are used at the end.
  expect(files(9)).toEqual([3, 4, 2, 7, 1, 6, 5]);
});

/** What a client has sent, until it falls silent. */
const silences = {
  nothing: "",
  "half a head": "GET /ready HTTP/1.1\r\nHost: s",
  "half a body":
    "POST /api/v1/auth/login HTTP/1.1\r\nHost: svc\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{",
  "a request, answered": "GET /live HTTP/1.1\r\nHost: svc\r\n\r\n",
};
const strangersCount = 5_000;

describe("a node with 1,024 files and 5,000 connections", () => {
  let server: SpawnedServer;
  const strangers: Socket[] = [];
  beforeAll(async () => {
    const command = ["sh", "-c", 'ulimit -n 1024; exec "$@"', "sh"];
    server = await spawnServer({ engine: "libsql", command, settings: { metricsEnabled: true } });
  });
  afterAll(async () => {
    for (const one of strangers) one.destroy();
    await server.stop();
  });

  test("answers, takes events, and keeps what known callers have open", async () => {
    const headers = { connection: "close" };
    const socket = await openSocket(server.url, { key: server.adminKey });
    await socket.subscribe("events:>");
    const authorization = `Bearer ${server.adminKey}`;
    const stream = listen(server.url, "Subscribe", { headers: { authorization } }, { pattern: "events:>" });
    const { hostname: host, port } = new URL(server.url);
    const said = Object.values(silences);
    let closed = 0;
    for (let place = 0; place < strangersCount; place++) {
      // The first of them shares the network of those who are known.
      const localAddress = `127.0.0.${1 + (place % 7)}`;
      const one = connect({ host, port: Number(port), localAddress }, () =>
        one.write(said[place % said.length]!),
      );
      one.on("error", () => {});
      one.on("data", () => {});
      one.once("close", () => closed++);
      strangers.push(one);
    }
    const statuses = new Set<number>();
    let emitted = 0;
    const beside = async () => {
      const [ready, emit] = await Promise.all([
        server.api("/ready", { key: null, headers }),
        server.rpc("SvcService", "Emit", { event: `beside.${emitted++}`, data: {} }, { headers }),
      ]);
      statuses.add(ready.status).add(emit.status);
    };
    await until(
      async () => {
        await beside();
        return closed > strangersCount / 2;
      },
      { about: "the end of those that are too many" },
    );
    await beside();
    expect([...statuses]).toEqual([200]);
    const last = `beside.${emitted - 1}`;
    await until(() => socket.texts.some((text) => text.includes(last)) && stream.heard.text.includes(last), {
      about: "the last event",
    });
    const metrics = (await server.api("/metrics", { headers })).body;
    expect(Number(/^svc_connections_closed_total (\d+)/m.exec(metrics)?.[1])).toBeGreaterThan(
      strangersCount / 2,
    );
    expect(await server.output()).toContain('"connections.closed"');
    stream.cut();
    socket.close();
  }, 60_000);
});
