import { deferred } from "../wire/deferred.ts";
import { SvcError } from "../wire/errors.ts";
import { pause, reconnectDelayMs } from "../wire/retry.ts";
import type { Transport } from "../wire/transport.ts";
import { openNodeSocket, type SocketEvents } from "./node-socket.ts";
import { socketAddress } from "./socket-frames.ts";

type WatchFrame = Record<string, unknown>;

/** What waits for its reader; beyond, the socket is closed, and opened again once it was read. */
const unreadMax = 1_000;
/** Silence after which the watch opens another socket: a dead server and a quiet one look the same. */
const silenceMs = 5 * 60_000;
const connectMs = 10_000;
const passing = new Set(["unavailable", "internal", "deadline_exceeded", "aborted", "resource_exhausted"]);

export interface Watched<One> {
  /** With the query of this attempt. */
  path: () => string;
  /** Undefined passes the frame over. */
  read: (frame: WatchFrame) => One | undefined;
  /** Throws why the server refuses the watch: a socket does not say. */
  ask: () => Promise<unknown>;
  /** True when the error is mended, and the watch may go on. */
  mends?: (error: SvcError) => boolean;
  signal: AbortSignal | undefined;
}

/** Undefined for a text that is none. */
function frameOf(text: string): WatchFrame | undefined {
  try {
    return JSON.parse(text) as WatchFrame;
  } catch {
    return undefined;
  }
}

/** One socket and what came on it. */
class WatchAttempt implements SocketEvents {
  #frames: WatchFrame[] = [];
  #wake = () => {};
  #close = () => {};
  #lost = () => {};
  #timer: ReturnType<typeof setTimeout> | undefined;
  wasOpened = false;
  isOver = false;
  /** What the server said at last. */
  error: SvcError | undefined;

  async open(transport: Transport, path: string): Promise<void> {
    const headers = await transport.headers();
    if (this.isOver) return;
    const server = transport.url;
    this.#lost = () => transport.lost?.(server);
    const { url, protocols } = socketAddress(server, headers, path);
    this.#rest(connectMs);
    const close = openSocket(url, protocols, this);
    if (!close) throw new SvcError("unsupported", "this runtime has no WebSocket: use Node 20.16 or newer");
    this.#close = close;
  }

  opened(): void {
    this.wasOpened = true;
    this.#rest(silenceMs);
  }

  message(text: string): void {
    if (this.isOver) return;
    this.#rest(silenceMs);
    const frame = frameOf(text);
    if (!frame) {
      this.close();
      return;
    }
    if (frame.type === "error") {
      const { code, message } = frame as { code?: string; message?: string };
      this.error = new SvcError(code ?? "refused", message ?? "the watch has ended", {
        retryable: passing.has(code ?? ""),
      });
      return;
    }
    this.#frames.push(frame);
    this.#wake();
    if (this.#frames.length >= unreadMax) this.close();
  }

  closed(): void {
    clearTimeout(this.#timer);
    if (!this.isOver) this.#lost();
    this.isOver = true;
    this.#wake();
  }

  /** The frames that are there; waits for one. None at the end. */
  async take(): Promise<WatchFrame[]> {
    if (this.#frames.length === 0 && !this.isOver) {
      const more = deferred();
      this.#wake = more.resolve;
      await more.promise;
    }
    return this.#frames.splice(0);
  }

  close(): void {
    this.isOver = true;
    this.#close();
    this.closed();
  }

  #rest(ms: number): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => {
      this.#lost();
      this.close();
    }, ms);
  }
}

function openSocket(url: string, protocols: string[], events: SocketEvents): (() => void) | undefined {
  if (typeof WebSocket === "undefined") return openNodeSocket(url, protocols, events);
  const socket = new WebSocket(url, protocols);
  socket.onopen = () => events.opened();
  socket.onmessage = ({ data }) => events.message(String(data));
  // The close that follows tells what happened.
  socket.onerror = () => {};
  socket.onclose = ({ code, reason }) => events.closed({ code, reason });
  return () => socket.close();
}

/** What is told on sockets, one after the other, until its reader leaves or the server refuses. */
export async function* follow<One>(
  transport: Transport,
  watched: Watched<One>,
): AsyncGenerator<One, void, void> {
  const { signal, mends = () => false } = watched;
  let wasOpened = false;
  // A server that was there and is away comes back; an address that never answered is told.
  const isAway = (error: unknown) => wasOpened && error instanceof SvcError && error.retryable;
  for (let failures = 0; !signal?.aborted; ) {
    const attempt = new WatchAttempt();
    const stop = () => attempt.close();
    signal?.addEventListener("abort", stop, { once: true });
    try {
      await attempt.open(transport, watched.path());
      for (let frames = await attempt.take(); frames.length > 0; frames = await attempt.take())
        for (const frame of frames) {
          const one = watched.read(frame);
          if (one !== undefined) yield one;
          if (signal?.aborted) return;
        }
    } catch (error) {
      if (attempt.wasOpened || !isAway(error)) throw error;
    } finally {
      signal?.removeEventListener("abort", stop);
      attempt.close();
    }
    if (signal?.aborted) return;
    const { error } = attempt;
    if (error && !error.retryable && !mends(error)) throw error;
    wasOpened ||= attempt.wasOpened;
    if (!attempt.wasOpened)
      await watched.ask().catch((error) => {
        if (!isAway(error)) throw error;
      });
    failures = attempt.wasOpened && !error ? 1 : failures + 1;
    await pause(reconnectDelayMs(failures, error), signal);
  }
}
