import { closeSync, existsSync, openSync, readdirSync, readFileSync, statSync } from "node:fs";
import type { Clock } from "../kit/clock.ts";
import type { Log } from "../kit/log.ts";
import type { LoopOptions } from "../kit/loop.ts";
import type { Metrics } from "../kit/metrics.ts";
import type { IdleTimer } from "./rest.ts";

const filesFolder = "/proc/self/fd";
/** A flood may bring hundreds of connections between two looks, which the files left to the store must outlast. */
const lookEveryMs = 50;
/** A look over very many takes long: others compute meanwhile. */
const lookShareMax = 0.05;
/** Once there are too many, this share is closed at once: each look goes over all of them. */
const closedShare = 1 / 8;
/** Of the files of the process, where no setting says how many connections there may be. */
const clientsShare = 3 / 4;
const linesEveryMs = 10_000;
/** Requests that may have ended unheard are looked through when there are so many more. */
const unheardMax = 1_000;

const ipv6 = 10;
/** Bytes of `sockaddr_in6`, and of as much of `tcp_info` as is read. */
const addressBytes = 28;
const infoBytes = 56;
const tcp = 6;
const tcpInfo = 11;
const bothWays = 2;

/**
 * The server as an upgrade needs it; Elysia's dispatcher calls `open`, `message`, `drain` and `close` of
 * `data`.
 */
export interface EdgeServer extends IdleTimer {
  upgrade(
    request: Request,
    options: { headers?: Record<string, string>; data: object & { close?(raw: never): void } },
  ): boolean;
  publish(topic: string, data: string | Uint8Array): number;
  subscriberCount(topic: string): number;
}

export interface ClientConnection {
  file: number;
  /** The network that it comes from: one IPv4 address, or the first 64 bits of an IPv6 address. */
  from: string;
  /** A known caller has a request, a stream or a socket on it. */
  isUsed: boolean;
  /** Since a byte came or went. */
  silentMs: number;
}

/**
 * Those that go first, when there are too many: unused ones of the network that has the most, the longest silent first, until all
 * networks have as many; then used ones in the same order.
 */
export function firstToGo(all: readonly ClientConnection[], count: number): ClientConnection[] {
  const counts = new Map<string, number>();
  const later = all.toSorted((a, b) => Number(b.isUsed) - Number(a.isUsed) || a.silentMs - b.silentMs);
  const placed = later.map((one) => {
    const place = counts.get(one.from) ?? 0;
    counts.set(one.from, place + 1);
    return { one, place };
  });
  placed.sort(
    (a, b) =>
      Number(a.one.isUsed) - Number(b.one.isUsed) || b.place - a.place || b.one.silentMs - a.one.silentMs,
  );
  return placed.slice(0, Math.max(0, count)).map(({ one }) => one);
}

/** Asked once there are too many: Bun tells of no connection before its first request, and closes none for us. */
async function openSockets() {
  const { dlopen, ptr } = await import("bun:ffi");
  const named = { args: ["i32", "ptr", "ptr"], returns: "i32" } as const;
  const calls = {
    getsockname: named,
    getpeername: named,
    getsockopt: { args: ["i32", "i32", "i32", "ptr", "ptr"], returns: "i32" },
    shutdown: { args: ["i32", "i32"], returns: "i32" },
  } as const;
  const { symbols } = dlopen("libc.so.6", calls);
  const address = Buffer.alloc(addressBytes);
  const info = Buffer.alloc(infoBytes);
  const length = new Uint32Array(1);
  const into = (buffer: Buffer) => {
    length[0] = buffer.length;
    return ptr(buffer);
  };
  const portOf = (end: "getsockname" | "getpeername", file: number) =>
    symbols[end](file, into(address), ptr(length)) === 0 ? address.readUInt16BE(2) : -1;
  const network = () => {
    if (address.readUInt16LE(0) !== ipv6) return address.subarray(4, 8).join(".");
    const isMapped = address.readUInt32BE(16) === 0xffff && address.readBigUInt64BE(8) === 0n;
    if (isMapped) return address.subarray(20, 24).join(".");
    return `${address.toString("hex", 8, 16).replace(/(....)(?!$)/g, "$1:")}::/64`;
  };
  return {
    /** The connection of the file, where it is one of a client at one of the ports. */
    read(file: number, ports: ReadonlySet<number>, used: ReadonlySet<number>): ClientConnection | undefined {
      if (!ports.has(portOf("getsockname", file))) return undefined;
      const port = portOf("getpeername", file);
      if (port < 0) return undefined;
      const isKnown = symbols.getsockopt(file, tcp, tcpInfo, into(info), ptr(length)) === 0;
      const silentMs = isKnown ? Math.min(info.readUInt32LE(44), info.readUInt32LE(52)) : 0;
      return { file, from: network(), isUsed: used.has(port), silentMs };
    },
    /** The server sees the end of the connection, and gives it up. */
    close: (file: number) => void symbols.shutdown(file, bothWays),
  };
}

/** How many files this process may have open; undefined where it cannot know. */
function filesMax(): number | undefined {
  if (!existsSync(filesFolder)) return undefined;
  const [, soft] = /^Max open files +(\d+)/m.exec(readFileSync("/proc/self/limits", "utf8")) ?? [];
  return soft === undefined ? undefined : Number(soft);
}

/** How many are open; before Linux 6.2 the lowest number that is free, of which all below are open. */
function openCount(): number {
  const { size } = statSync(filesFolder);
  if (size > 0) return size;
  try {
    const file = openSync("/dev/null", "r");
    closeSync(file);
    return file;
  } catch {
    return Number.POSITIVE_INFINITY;
  }
}

export interface ConnectionsHost {
  clock: Pick<Clock, "elapsed">;
  log: Log;
  metrics: Metrics;
  /** Undefined leaves a quarter of the files of the process to everything else. */
  most: number | undefined;
}

/** Counts the connections of clients, and closes the silent ones before they use up the files of the process. */
export interface Connections {
  /** Those of the port are clients'. */
  listensAt(port: number): void;
  /** A known caller uses the connection of the request until it is answered. */
  begun(request: Request): void;
  answered(request: Request): void;
  /** The same by its port at the client, until the returned function is called. */
  useFrom(port: number | undefined): () => void;
  /** The server that handlers see: what it holds open for them is used. */
  following(server: EdgeServer): EdgeServer;
  loops: readonly LoopOptions[];
}

export function openConnections({ clock, log, metrics, most: wanted }: ConnectionsHost): Connections {
  const files = filesMax();
  const most = wanted ?? Math.floor((files ?? 0) * clientsShare);
  const closedCount = metrics.counter({
    name: "svc_connections_closed_total",
    help: "Connections of clients that were closed because a node had as many as it may.",
  })();
  const ports = new Set<number>();
  const requests = new Set<Request>();
  /** Held calls and streams: no one hears of their end. */
  const held = new Set<Request>();
  let heldMax = unheardMax;
  const fromPorts = new Map<number, number>();
  let server: EdgeServer | undefined;
  let sockets: Awaited<ReturnType<typeof openSockets>> | undefined;
  let unsaid = 0;
  let saidAt = Number.NEGATIVE_INFINITY;

  function forgetEnded(): void {
    for (const one of held) if (!server?.requestIP?.(one)) held.delete(one);
    heldMax = 2 * held.size + unheardMax;
  }

  function useFrom(port: number | undefined): () => void {
    if (port === undefined) return () => {};
    fromPorts.set(port, (fromPorts.get(port) ?? 0) + 1);
    return () => {
      const left = fromPorts.get(port)! - 1;
      if (left > 0) fromPorts.set(port, left);
      else fromPorts.delete(port);
    };
  }

  /** A look needs a file itself; where none is left, all numbers are in use. */
  function openFiles(): number[] {
    try {
      return readdirSync(filesFolder).map(Number);
    } catch {
      return Array.from({ length: files ?? 0 }, (_, number) => number);
    }
  }

  async function closeSilent(): Promise<void> {
    if (openCount() < most) return;
    sockets ??= await openSockets();
    forgetEnded();
    const used = new Set(fromPorts.keys());
    for (const one of [...requests, ...held]) used.add(server?.requestIP?.(one)?.port ?? 0);
    const all = openFiles().flatMap((file) => sockets!.read(file, ports, used) ?? []);
    if (all.length < most) return;
    const gone = firstToGo(all, all.length - Math.floor(most * (1 - closedShare)));
    for (const { file } of gone) sockets.close(file);
    closedCount.add(gone.length);
    unsaid += gone.length;
    if (clock.elapsed() - saidAt < linesEveryMs) return;
    const first = gone[0]!;
    log.warn("connections.closed", {
      count: unsaid,
      open: all.length,
      most,
      from: first.from,
      silentMs: first.silentMs,
    });
    saidAt = clock.elapsed();
    unsaid = 0;
  }

  return {
    listensAt: (port) => void ports.add(port),
    begun: (request) => void requests.add(request),
    answered: (request) => void requests.delete(request),
    useFrom,
    following: (real) => {
      server = real;
      return {
        publish: (topic, data) => real.publish(topic, data),
        subscriberCount: (topic) => real.subscriberCount(topic),
        requestIP: (request) => real.requestIP?.(request) ?? null,
        timeout(request, seconds) {
          real.timeout(request, seconds);
          if (seconds > 0) held.delete(request);
          else held.add(request);
          if (held.size > heldMax) forgetEnded();
        },
        upgrade(request, { data, headers }) {
          const leave = useFrom(real.requestIP?.(request)?.port);
          const close = (raw: never) => {
            leave();
            data.close?.(raw);
          };
          const upgraded = real.upgrade(request, { ...(headers && { headers }), data: { ...data, close } });
          if (!upgraded) leave();
          return upgraded;
        },
      };
    },
    loops:
      files === undefined || most === 0
        ? []
        : [
            {
              name: "edge.connections",
              about: "Closes connections of clients when there are more than the files of the process allow.",
              everyMs: lookEveryMs,
              shareMax: lookShareMax,
              tick: closeSilent,
            },
          ],
  };
}
