import { closeSync, existsSync, openSync, readdirSync, readFileSync, statSync } from "node:fs";
import { isIPv4 } from "node:net";
import { ipv6Bytes } from "../kit/addresses.ts";
import type { Clock } from "../kit/clock.ts";
import type { Log } from "../kit/log.ts";
import type { LoopOptions } from "../kit/loop.ts";
import type { Metrics } from "../kit/metrics.ts";
import type { IdleTimer } from "./rest.ts";

const filesFolder = "/proc/self/fd";
/** A flood may bring hundreds of connections between two looks; files left to the store must outlast them. */
const lookEveryMs = 50;
/** A look over very many takes long: others compute meanwhile. */
const lookShareMax = 0.05;
/** Once there are too many, this share is closed at once, of unused ones: each look goes over all of them. */
const closedShare = 1 / 8;
/** Of the files of the process, where no setting says how many connections there may be. */
const clientsShare = 3 / 4;
const linesEveryMs = 10_000;
/** Requests that may have ended unheard are looked through when there are so many more. */
const unheardMax = 1_000;

const ipv4 = 2;
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

export interface RemoteEnd {
  address: string;
  port: number;
}

export interface ClientConnection {
  file: number;
  /** The network that it comes from: one IPv4 address, or the first 64 bits of an IPv6 address. */
  from: string;
  /** Since when a known caller has a request, a stream or a socket on it. */
  usedSince: number | undefined;
  /** Since a byte came or went. */
  silentMs: number;
}

/** Used ones in the order of their use, then unused ones, the longest silent last. */
const inOrderOfWorth = (a: ClientConnection, b: ClientConnection): number =>
  (a.usedSince ?? Number.POSITIVE_INFINITY) - (b.usedSince ?? Number.POSITIVE_INFINITY) ||
  a.silentMs - b.silentMs;

/**
 * Those to close: unused ones of the largest network, the longest silent first, until all networks have as
 * many. Then used ones, the newest first, but only as many as are above `most`.
 */
export function firstToGo(all: readonly ClientConnection[], most: number): ClientConnection[] {
  const counts = new Map<string, number>();
  const placed = all.toSorted(inOrderOfWorth).map((one) => {
    const place = counts.get(one.from) ?? 0;
    counts.set(one.from, place + 1);
    return { one, place, isUsed: Number(one.usedSince !== undefined) };
  });
  const unused = placed.filter(({ isUsed }) => !isUsed).length;
  placed.sort((a, b) => a.isUsed - b.isUsed || b.place - a.place || inOrderOfWorth(b.one, a.one));
  const wanted = all.length - Math.floor(most * (1 - closedShare));
  const count = Math.max(all.length - most, Math.min(unused, wanted), 0);
  return placed.slice(0, count).map(({ one }) => one);
}

/** One end of a connection; an IPv4 address is the same in IPv6's form. */
const endOf = (address: Uint8Array, port: number) => `${Buffer.from(address).toString("hex")} ${port}`;
const nameOf = ({ address, port }: RemoteEnd) =>
  endOf(Buffer.from(ipv6Bytes(isIPv4(address) ? `::ffff:${address}` : address) ?? []), port);
const mapped = (address: Uint8Array) => Buffer.concat([Buffer.alloc(10), Buffer.from([255, 255]), address]);

/** Asked once there are too many: Bun shows no connection before its first request, and closes none. */
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
  /** An unnamed socket, such as one to a local database, writes no port, and no family but its own. */
  const portOf = (end: "getsockname" | "getpeername", file: number) => {
    address.fill(0);
    const isNamed = symbols[end](file, into(address), ptr(length)) === 0;
    return isNamed && [ipv4, ipv6].includes(address.readUInt16LE(0)) ? address.readUInt16BE(2) : -1;
  };
  const addressRead = () =>
    address.readUInt16LE(0) === ipv6 ? address.subarray(8, 24) : mapped(address.subarray(4, 8));
  const network = (bytes: Buffer) => {
    if (bytes.subarray(0, 12).equals(mapped(new Uint8Array()))) return bytes.subarray(12).join(".");
    return `${bytes.toString("hex", 0, 8).replace(/(....)(?!$)/g, "$1:")}::/64`;
  };
  return {
    /** The connection of the file, where it is one of a client at one of the ports. */
    read(
      file: number,
      ports: ReadonlySet<number>,
      used: ReadonlyMap<string, number>,
    ): ClientConnection | undefined {
      if (!ports.has(portOf("getsockname", file))) return undefined;
      const port = portOf("getpeername", file);
      if (port < 0) return undefined;
      const from = addressRead();
      const isKnown = symbols.getsockopt(file, tcp, tcpInfo, into(info), ptr(length)) === 0;
      const silentMs = isKnown ? Math.min(info.readUInt32LE(44), info.readUInt32LE(52)) : 0;
      return { file, from: network(from), usedSince: used.get(endOf(from, port)), silentMs };
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

/** Counts client connections, and closes the silent ones before they use up the files of the process. */
export interface Connections {
  /** Those of the port are clients'. */
  listensAt(port: number): void;
  /** A known caller uses the connection of the request until it is answered. */
  begun(request: Request): void;
  answered(request: Request): void;
  /** The same by its end at the client, until the returned function is called. */
  useFrom(end: RemoteEnd | null | undefined): () => void;
  /** The server that handlers see: what it holds open for them is used. */
  following(server: EdgeServer): EdgeServer;
  loops: readonly LoopOptions[];
}

interface Uses extends Omit<Connections, "listensAt" | "loops"> {
  forgetEnded(): void;
  now(): Map<string, number>;
}

/** Which connections known callers use. */
function openUses(clock: ConnectionsHost["clock"]): Uses {
  /** Each since when. */
  const requests = new Map<Request, number>();
  /** Held calls and streams, whose end no event reports. */
  const held = new Map<Request, number>();
  let heldMax = unheardMax;
  const ends = new Map<string, { since: number; count: number }>();
  let server: EdgeServer | undefined;

  function forgetEnded(): void {
    for (const one of held.keys()) if (!server?.requestIP?.(one)) held.delete(one);
    heldMax = 2 * held.size + unheardMax;
  }

  function useFrom(end: RemoteEnd | null | undefined): () => void {
    if (!end) return () => {};
    const name = nameOf(end);
    const use = ends.get(name) ?? { since: clock.elapsed(), count: 0 };
    ends.set(name, use);
    use.count++;
    return () => {
      if (--use.count === 0) ends.delete(name);
    };
  }

  /** Connections that are used, by their ends at the clients, and since when. */
  function now(): Map<string, number> {
    const used = new Map([...ends].map(([name, { since }]) => [name, since]));
    for (const [request, since] of [...requests, ...held]) {
      const end = server?.requestIP?.(request);
      if (end) used.set(nameOf(end), Math.min(since, used.get(nameOf(end)) ?? since));
    }
    return used;
  }

  return {
    begun: (request) => void requests.set(request, clock.elapsed()),
    answered: (request) => void requests.delete(request),
    useFrom,
    forgetEnded,
    now,
    following: (real) => {
      server = real;
      return {
        publish: (topic, data) => real.publish(topic, data),
        subscriberCount: (topic) => real.subscriberCount(topic),
        requestIP: (request) => real.requestIP?.(request) ?? null,
        timeout(request, seconds) {
          real.timeout(request, seconds);
          if (seconds > 0) held.delete(request);
          else held.set(request, clock.elapsed());
          if (held.size > heldMax) forgetEnded();
        },
        upgrade(request, { data, headers }) {
          const leave = useFrom(real.requestIP?.(request));
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
  };
}

export function openConnections({ clock, log, metrics, most: wanted }: ConnectionsHost): Connections {
  const files = filesMax();
  const most = wanted ?? Math.floor((files ?? 0) * clientsShare);
  const closedCount = metrics.counter({
    name: "svc_connections_closed_total",
    help: "Connections of clients that were closed because a node had as many as it may.",
  })();
  const ports = new Set<number>();
  const uses = openUses(clock);
  let sockets: Awaited<ReturnType<typeof openSockets>> | undefined;
  let unsaid = 0;
  let saidAt = Number.NEGATIVE_INFINITY;

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
    uses.forgetEnded();
    const used = uses.now();
    const all = openFiles().flatMap((file) => sockets!.read(file, ports, used) ?? []);
    const gone = all.length < most ? [] : firstToGo(all, most);
    if (gone.length === 0) return;
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
    ...uses,
    listensAt: (port) => void ports.add(port),
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
