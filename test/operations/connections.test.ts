import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { connect, createServer, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type ClientConnection, firstToGo, openConnections } from "../../src/edge/connections.ts";
import { systemClock } from "../../src/kit/clock.ts";
import { noMetrics } from "../../src/kit/metrics.ts";
import { loggedLines } from "../support/logged.ts";
import { listen } from "../support/raw-stream.ts";
import { type SpawnedServer, spawnServer } from "../support/server.ts";
import { openSocket } from "../support/sockets.ts";
import { until } from "../support/until.ts";

const one = (file: number, from: string, silentMs: number, usedSince?: number) => ({
  ...{ file, from, silentMs, usedSince },
});
const filesToGo = (all: readonly ClientConnection[], most: number) =>
  firstToGo(all, most).map(({ file }) => file);

test("of too many connections the longest silent ones go first, of the network that has the most", () => {
  const all = [
    ...[one(1, "a", 9_000), one(2, "b", 5), one(3, "b", 7), one(4, "b", 6)],
    ...[one(5, "b", 90_000, 1), one(6, "c", 1), one(7, "c", 2), one(8, "b", 1, 2)],
  ];
  expect(filesToGo(all, 80)).toEqual([]);
  // Four of `b`, then two of each, then one of each; those that are used at the end, the newest first.
  expect(filesToGo(all, 0)).toEqual([3, 4, 2, 7, 1, 6, 8, 5]);
});

test("room is made of unused connections; of used ones only those above the limit go, the newest first", () => {
  const used = Array.from({ length: 42 }, (_, file) => one(file, "a", 100 - file, file));
  expect(filesToGo(used, 40)).toEqual([41, 40]);
  expect(filesToGo(used, 42)).toEqual([]);
  expect(filesToGo([...used, one(50, "b", 1), one(51, "b", 2), one(52, "b", 3)], 45)).toEqual([52, 51, 50]);
});

/** A server of this process that may have so many connections; `look` closes what is too many. */
function serveFew(hostname: string, most: number) {
  const held = Bun.serve({ hostname, port: 0, fetch: () => new Response() });
  const connections = openConnections({
    ...{ clock: systemClock(), log: loggedLines().log, metrics: noMetrics, most },
  });
  connections.listensAt(held.port!);
  const client = async (localAddress: string, localPort?: number) => {
    const { promise, resolve } = Promise.withResolvers<void>();
    const port = held.port!;
    const options = { host: "127.0.0.1", port, localAddress, ...(localPort && { localPort }) };
    const socket = connect(options, () => socket.write("GET / HTTP/1.1\r\nHost: svc\r\n\r\n"));
    socket.on("error", () => {});
    socket.once("data", () => resolve());
    await promise;
    return socket;
  };
  const look = connections.loops[0]!.tick;
  return { connections, client, look, stop: () => held.stop(true) };
}

test.each([
  ["0.0.0.0", "127.0.0.2"],
  ["::", "::ffff:127.0.0.2"],
])(
  "on %s a stranger at the port of a known caller, but of another address, is no known one",
  async (hostname, address) => {
    const few = serveFew(hostname, 2);
    const known = await few.client("127.0.0.2");
    const leave = few.connections.useFrom({ address, port: known.localPort! });
    const stranger = await few.client("127.0.0.3", known.localPort!);
    await few.look();
    await until(() => stranger.readableEnded || stranger.destroyed, { about: "the end of the stranger" });
    expect([known.readableEnded, known.destroyed]).toEqual([false, false]);
    leave();
    known.destroy();
    await few.stop();
  },
);

test("a connection to a database of this machine, over a Unix socket, is no client's", async () => {
  const folder = mkdtempSync(join(tmpdir(), "svc-unix-"));
  const path = join(folder, ".s.PGSQL.5432");
  const database = createServer((socket) => socket.on("error", () => {}).pipe(socket));
  await new Promise<void>((done) => database.listen(path, done));
  const few = serveFew("127.0.0.1", 1);
  const stores = [1, 2, 3].map(() => connect(path));
  await Promise.all(stores.map((store) => once(store, "connect")));
  const stranger = await few.client("127.0.0.1");
  await few.look();
  for (const store of stores) {
    store.write("still there");
    expect(String((await once(store, "data"))[0])).toBe("still there");
    store.destroy();
  }
  stranger.destroy();
  await few.stop();
  database.close();
  rmSync(folder, { recursive: true });
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
      // The kernel may lose a new connection while its queue of them is full: who asks gives it up, and asks again.
      const signal = AbortSignal.timeout(5_000);
      const [ready, emit] = await Promise.all([
        server.api("/ready", { key: null, headers, signal }),
        server.rpc("SvcService", "Emit", { event: `beside.${emitted++}`, data: {} }, { headers, signal }),
      ]);
      statuses.add(ready.status).add(emit.status);
      return true;
    };
    await until(
      async () => {
        await beside();
        return closed > strangersCount / 2;
      },
      { about: "the end of those that are too many", deadlineMs: 90_000 },
    );
    await until(beside, { about: "answers beside those that are left", deadlineMs: 60_000 });
    expect([...statuses]).toEqual([200]);
    const last = `beside.${emitted - 1}`;
    await until(() => socket.texts.some((text) => text.includes(last)) && stream.heard.text.includes(last), {
      about: "the last event",
    });
    const metrics = (await server.api("/metrics", { headers })).body;
    // Others the kernel closed, the more of them the less processor the node had.
    expect(Number(/^svc_connections_closed_total (\d+)/m.exec(metrics)?.[1])).toBeGreaterThan(
      strangersCount / 10,
    );
    expect(await server.output()).toContain('"connections.closed"');
    stream.cut();
    socket.close();
  }, 240_000);
});
