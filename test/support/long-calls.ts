import { expect } from "bun:test";
import type { ConnectError } from "@connectrpc/connect";
import type { TestServer } from "./server.ts";
import { openSocket, type TestSocket } from "./sockets.ts";
import { openSubscriber, type StreamSubscriber } from "./stream-subscriber.ts";
import { openStreamWorker, transportOf } from "./stream-worker.ts";
import { until } from "./until.ts";

/** One of each that goes on for long, at one server, all at work. */
export interface LongCalls {
  /** With a subscription to `a.>`. */
  socket: TestSocket;
  /** Of `a.>`. */
  stream: StreamSubscriber;
  worker: { over(): ConnectError | null | undefined };
  /** Statuses of a held poll and a synchronous invoke; 0 while they are held, -1 when their connection was lost. */
  poll: { status: number };
  invoke: { status: number };
  /** Names of those that are over. */
  ended(): string[];
  close(): void;
}

export const longCalls = ["socket", "stream", "worker", "poll", "invoke"] as const;

/** Of functions that nobody works for; an event `a.…` for the stream to begin with. */
export async function prepareLongCalls(server: TestServer, key = server.adminKey): Promise<void> {
  for (const id of ["asked", "polled"])
    expect((await server.rpc("SvcService", "RegisterFunction", { id }, { key })).status).toBe(200);
  expect((await server.rpc("SvcService", "Emit", { event: "a.b" }, { key })).status).toBe(200);
}

/** `id` tells its workers from others'. The server must hold polls for longer than the test looks. */
export async function openLongCalls(server: TestServer, key: string, id: string): Promise<LongCalls> {
  const transport = transportOf("connect json", { url: server.url, grpcUrl: undefined });
  const socket = await openSocket(server.url, { key });
  expect((await socket.subscribe("a.>")).status).toBe("ok");
  const stream = openSubscriber(transport, { key, pattern: "a.>", replay: 1 });
  await until(() => stream.heard.length > 0, { about: "the stream's first event" });
  const worker = openStreamWorker(transport, { key, id });
  await worker.register(["polled"]);
  let workerOver: ConnectError | null | undefined;
  void worker.ended.then((error) => {
    workerOver = error ?? null;
  });
  const poll = { status: 0 };
  const path = `/api/v1/workers/${id}-poll`;
  expect((await server.api(`${path}/register`, { key, body: { function_ids: ["polled"] } })).status).toBe(
    200,
  );
  const statusOf = ({ status }: { status: number }) => status;
  const lost = () => -1;
  void server
    .api(`${path}/jobs?available=1`, { key })
    .then(statusOf, lost)
    .then((status) => {
      poll.status = status;
    });
  const invoke = { status: 0 };
  const sync = { functionId: "asked", data: {}, timeoutMs: 120_000 };
  void server
    .rpc("SvcService", "InvokeFunctionSync", sync, { key })
    .then(statusOf, lost)
    .then((status) => {
      invoke.status = status;
    });
  // What came later has been answered: both are held.
  expect((await server.api("/api/v1/workers", { key })).status).toBe(200);
  const over = {
    socket: () => socket.closed !== undefined,
    stream: () => stream.over() !== undefined,
    worker: () => workerOver !== undefined,
    poll: () => poll.status !== 0,
    invoke: () => invoke.status !== 0,
  };
  return {
    socket,
    stream,
    worker: { over: () => workerOver },
    poll,
    invoke,
    ended: () => longCalls.filter((name) => over[name]()),
    close() {
      socket.close();
      stream.cut();
      worker.cut();
    },
  };
}
