import { afterAll, beforeAll, expect, test } from "bun:test";
import { createClient, createFunction, createProjection, createWorker } from "../../src/sdk/index.ts";
import { type NatsServer, startNats } from "../support/nats.ts";
import { openRawSocket } from "../support/raw-socket.ts";
import { type Home, makeHome, type SpawnedServer, spawnServer } from "../support/server.ts";
import { until } from "../support/until.ts";

// Clients and workers that know two nodes, and an address between them at which another installation answers.

const silent = { debug() {}, info() {}, warn() {}, error() {} };

let nats: NatsServer;
let home: Home;
let first: SpawnedServer;
let second: SpawnedServer;
let stranger: ReturnType<typeof startStranger>;

/** It keeps what it was sent. */
function startStranger() {
  const heads: Headers[] = [];
  const server = Bun.serve({
    hostname: "127.0.0.1",
    port: 0,
    fetch(request) {
      heads.push(request.headers);
      return Response.json({ status: "ready" }, { headers: { "x-svc-installation": "ins_stranger" } });
    },
  });
  return { url: `http://127.0.0.1:${server.port}`, heads, stop: () => server.stop(true) };
}

beforeAll(async () => {
  nats = await startNats();
  home = await makeHome("postgres");
  const spawn = (nodeId: string) =>
    spawnServer({ engine: "postgres", nats: nats.url, home, settings: { nodeId } });
  first = await spawn("first");
  second = await spawn("second");
  stranger = startStranger();
}, 120_000);
afterAll(async () => {
  await Promise.all([first, second].map((node) => node?.stop()));
  await stranger?.stop();
  await nats?.stop();
  await home?.remove();
}, 120_000);

test("every node names its installation in each answer, with a key and without", async () => {
  const named = async (node: SpawnedServer, path: string, key?: null) =>
    (await node.api(path, key === null ? { key } : {})).headers.get("x-svc-installation");
  const own = await named(first, "/ready", null);
  expect(own).toMatch(/^ins_[0-9a-z]{26}$/);
  for (const node of [first, second]) {
    for (const path of ["/health", "/ready", "/api/v1/events", "/api/v1/nowhere"])
      expect([path, await named(node, path, null)]).toEqual([path, own]);
    expect(await named(node, "/api/v1/events")).toBe(own);
    const called = await node.rpc("SvcService", "GetRun", { id: "run_none" });
    expect(called.headers.get("x-svc-installation")).toBe(own);
    expect(called.headers.get("access-control-expose-headers")).toContain("X-Svc-Installation");
    const socket = await openRawSocket(node.url, "/ws", node.adminKey);
    expect(socket.text().toLowerCase()).toContain(`x-svc-installation: ${own}\r\n`);
    socket.close();
  }
});

test("calls, workers, subscriptions and projections go on at the next node, and a stranger sees no key", async () => {
  const connection = { url: [first.url, stranger.url, second.url], apiKey: first.adminKey };
  const client = createClient(connection);
  const served: string[] = [];
  const functions = (["rest", "stream"] as const).map((transport) => {
    const one = createFunction({ id: transport, event: "n" }, ({ event }) => {
      served.push(`${transport} ${(event.data as { n: number }).n}`);
    });
    const options = { ...connection, functions: [one], transport, handleSignals: false, log: silent };
    return createWorker(options);
  });
  const sums = createProjection({
    name: "sums",
    initialState: { sum: 0 },
    handlers: {
      n: (state: { sum: number }, event: { data: unknown }) => ({
        sum: state.sum + (event.data as { n: number }).n,
      }),
    },
  });
  const folding = createWorker({ ...connection, projections: [sums], handleSignals: false, log: silent });
  const workers = [...functions, folding];
  const heard = { websocket: [] as number[], connect: [] as number[] };
  const readers = (["websocket", "connect"] as const).map((over) =>
    createClient(connection).subscribe("n", { over }, ({ data }) => {
      heard[over].push((data as { n: number }).n);
    }),
  );
  const emit = (n: number) => client.emit("n", { n }, { idempotencyKey: `n-${n}` });
  const hasArrived = (n: number) =>
    until(
      () =>
        served.includes(`rest ${n}`) &&
        served.includes(`stream ${n}`) &&
        heard.websocket.includes(n) &&
        heard.connect.includes(n),
      { about: `event ${n} at all of them` },
    );
  const hasFolded = (sum: number) =>
    until(async () => (await client.projections.get(sums)).state?.sum === sum, { about: `the sum ${sum}` });
  try {
    for (const worker of workers) await worker.start();
    await Promise.all(readers.map(({ ready }) => ready));
    await emit(1);
    await hasArrived(1);
    expect(client.transport.url).toBe(first.url);

    await first.kill9();
    await emit(2);
    expect(client.transport.url).toBe(second.url);
    await hasArrived(2);
    await hasFolded(3);

    // And back again, as the second one drains.
    await first.restart();
    await second.terminate();
    await emit(3);
    expect(client.transport.url).toBe(first.url);
    await hasArrived(3);
    await hasFolded(6);

    await first.kill9();
    const failed = emit(4);
    await expect(failed).rejects.toMatchObject({ code: "other_installation", retryable: true });
    await expect(failed).rejects.toThrow(`${stranger.url} belongs to another installation (ins_stranger)`);
    await first.restart();
    await emit(4);
    await hasArrived(4);
    expect(heard).toEqual({ websocket: [1, 2, 3, 4], connect: [1, 2, 3, 4] });
    expect(stranger.heads.length).toBeGreaterThan(0);
    expect(stranger.heads.map((head) => head.get("authorization"))).toEqual(stranger.heads.map(() => null));
    expect(JSON.stringify(stranger.heads.map((head) => [...head]))).not.toContain(first.adminKey);
  } finally {
    for (const reader of readers) reader.close();
    for (const worker of workers) worker.stop();
  }
}, 180_000);
