import type { Fault } from "../kit/fault.ts";
import type { Operation } from "../kit/operation.ts";
import type { RequestCall } from "./call.ts";
import type { PublishPace } from "./publish-pace.ts";
import type { BufferedConnection, SendBuffers } from "./send-buffers.ts";

/** Reads from the store for a socket pause while it has this much unsent. */
const socketWaitBytes = 1024 * 1024;

/** A connection as its session uses it. */
export interface SocketConnection {
  /** Answers a promise when the client reads too slowly: wait for it before sending more. */
  send(text: string): void | Promise<void>;
  join(channelId: string): void;
  leave(channelId: string): void;
  /** Says by default that the environment is gone. */
  end(code?: number, reason?: string): void;
}

/** A subscription as the operation's input has it. */
export interface Subscribed {
  pattern: string;
  consumerGroup?: string | undefined;
}

export interface SocketSession {
  /** `text` is undefined for a binary frame. */
  onMessage(text: string | undefined): void;
  /** Every open subscription, for the gate to check. */
  subscriptions(): Iterable<Subscribed>;
  /** Ends the subscriptions equal to `asked`: the caller may not have them any more. */
  deny(asked: Subscribed, fault: Fault): void;
  onClose(): void;
}

/** Bun's socket. */
export interface RawSocket {
  readonly readyState: number;
  send(text: string): number;
  subscribe(channelId: string): void;
  unsubscribe(channelId: string): void;
  getBufferedAmount(): number;
  close(code: number, reason: string): void;
  terminate(): void;
}

const isOpen = 1;
/** RFC 6455 close codes; clients come back after any but 1000. */
export const closes = { restart: 1012, refused: 1008, gone: 1001 } as const;

interface OpenSocketDeps {
  call: RequestCall;
  /** Gives the caller's place among the sockets of its key or user back. */
  releasePlace: () => void;
  /** The sockets of this node. */
  all: Set<RawSocket>;
  sendBuffers: SendBuffers;
  pace: Pick<PublishPace, "flush">;
  isDraining: () => boolean;
  /** Starts the session of the connection. */
  connect: (connection: SocketConnection) => SocketSession;
  /** Re-authorizes the session from time to time, until the answer is called. */
  watchAuthorization: (raw: RawSocket, session: SocketSession) => (() => void) | undefined;
}

/** One WebSocket, from its upgrade to its close. Bun calls `open`, `message`, `drain` and `close`. */
export class OpenSocket implements SocketConnection, BufferedConnection {
  readonly #deps: OpenSocketDeps;
  #raw: RawSocket | undefined;
  #session: SocketSession | undefined;
  #unwatch: (() => void) | undefined;
  /** Resolves when the client has read enough; undefined while it keeps up. */
  #room: { promise: Promise<void>; resolve: () => void } | undefined;

  constructor(deps: OpenSocketDeps) {
    this.#deps = deps;
  }

  open(raw: RawSocket): void {
    const { all, sendBuffers, isDraining, connect, watchAuthorization } = this.#deps;
    this.#raw = raw;
    all.add(raw);
    sendBuffers.add(this);
    if (isDraining()) {
      raw.close(closes.restart, "the server is going away");
      return;
    }
    this.#session = connect(this);
    this.#unwatch = watchAuthorization(raw, this.#session);
  }

  message(message: string | Uint8Array): void {
    this.#session?.onMessage(typeof message === "string" ? message : undefined);
  }

  drain(): void {
    this.#room?.resolve();
    this.#room = undefined;
  }

  close(raw: RawSocket): void {
    this.#deps.all.delete(raw);
    this.#deps.releasePlace();
    this.#deps.sendBuffers.remove(this);
    this.#unwatch?.();
    this.#session?.onClose();
    this.drain();
  }

  send(text: string): void | Promise<void> {
    const raw = this.#raw!;
    if (raw.readyState !== isOpen) return;
    raw.send(text);
    this.#deps.sendBuffers.sent(text.length);
    if (raw.readyState !== isOpen || raw.getBufferedAmount() < socketWaitBytes) return;
    this.#room ??= Promise.withResolvers<void>();
    return this.#room.promise;
  }

  join(channelId: string): void {
    this.#deps.pace.flush();
    if (this.#raw!.readyState === isOpen) this.#raw!.subscribe(channelId);
  }

  leave(channelId: string): void {
    this.#deps.pace.flush();
    if (this.#raw!.readyState === isOpen) this.#raw!.unsubscribe(channelId);
  }

  end(code: number = closes.refused, reason = "the environment is gone"): void {
    this.#deps.pace.flush();
    this.#raw!.close(code, reason);
  }

  get holder(): string {
    return this.#deps.call.caller.id;
  }

  unread(): number {
    return this.#raw!.readyState === isOpen ? this.#raw!.getBufferedAmount() : 0;
  }

  /** The client comes back and resumes by sequence, as after any cut. */
  cut(): void {
    this.#raw!.terminate();
  }
}

/** One path at which requests become sockets. */
export interface SocketDoor {
  operation: Operation;
  path: string;
  admit(credentials: Request, requestId: string): Promise<RequestCall>;
  /** Called with a place taken. What it throws is the answer to the upgrade. */
  begin(asked: AskedSocket): BegunSocket | Promise<BegunSocket>;
}

export interface AskedSocket {
  call: RequestCall;
  /** The caller's credentials only: the upgrade's own request ends with the upgrade. */
  credentials: Request;
  request: Request;
  params: Record<string, string>;
  isLegacy: boolean;
}

export interface BegunSocket extends Pick<OpenSocketDeps, "connect" | "watchAuthorization"> {
  /** Called instead of `connect` when no socket comes of it. */
  leave?(): void;
}
