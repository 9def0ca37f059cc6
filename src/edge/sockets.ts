import { Fault } from "../kit/fault.ts";
import { openHolderLimit } from "../kit/holder-limit.ts";
import { socketBufferBytesMax, socketFrameBytesMax, socketWaitBytes } from "../kit/limits.ts";
import type { Call, Operation } from "../kit/operation.ts";
import { type Edge, faultOf, type RequestCall } from "./call.ts";
import { decidingHeaders, protocolsOf } from "./credential.ts";
import { requestIdOf } from "./headers.ts";
import type { EdgeServer, Upgrade } from "./http.ts";
import { admit, enter, observeCall, prepare } from "./perform.ts";
import { type BufferedConnection, watchSendBuffers } from "./send-buffers.ts";

/** One connection, as whoever speaks on it needs it. */
export interface SocketConnection {
  send(text: string): void | Promise<void>;
  join(channelId: string): void;
  leave(channelId: string): void;
  end(): void;
}

/** A subscription as the operation takes it. */
export interface Subscribed {
  pattern: string;
  consumerGroup?: string | undefined;
}

export interface SocketSession {
  /** Undefined for a binary frame. */
  onMessage(text: string | undefined): void;
  /** What the gate is asked about, of its subscriptions. */
  subscriptions(): Iterable<Subscribed>;
  /** Ends the subscriptions that this was asked of: the caller may not have them any more. */
  deny(asked: Subscribed, fault: Fault): void;
  onClose(): void;
}

export interface SocketsDeps {
  edge: Edge;
  /** What the upgrade and each subscription are asked for at the gate. */
  operation: Operation;
  connect: (options: {
    environmentId: string;
    /** Key or user. */
    holder: string;
    connection: SocketConnection;
    permit: (asked: Subscribed) => Promise<void>;
    caller: Pick<Call, "screen" | "onRenewed">;
    isLegacy: boolean;
  }) => SocketSession;
}

export interface Sockets {
  upgrade: Upgrade;
  /** To every connection that has joined the channel. */
  publish(channelId: string, text: string): void;
  /** Closes all with 1012: their clients find another node. */
  drain(): void;
  size(): number;
}

/** Bun's own limits on every socket; a slow reader is closed, and goes on by sequence. */
export const socketOptions = {
  maxPayloadLength: socketFrameBytesMax,
  backpressureLimit: socketBufferBytesMax,
  closeOnBackpressureLimit: true,
  idleTimeout: 60,
  sendPings: true,
};

/** Bun's socket. */
interface RawSocket {
  readonly readyState: number;
  send(text: string): number;
  subscribe(channelId: string): void;
  unsubscribe(channelId: string): void;
  getBufferedAmount(): number;
  close(code: number, reason: string): void;
  terminate(): void;
}

/** Sockets of one key or user at a node. */
export const socketsOfCallerMax = 1_000;

const protocol = "svc.v1";
const isOpen = 1;
/** RFC 6455 close codes; any but 1000 lets clients come back. */
const closes = { restart: 1012, refused: 1008, gone: 1001 } as const;

const kept = [...decidingHeaders, "x-svc-environment", "x-svc-org", "x-request-id", "user-agent"];

/** What the caller is known by, apart from the request, which ends with the upgrade. */
function credentialsOf(request: Request): Request {
  const headers = new Headers();
  for (const name of kept) {
    const value = request.headers.get(name);
    if (value !== null) headers.set(name, value);
  }
  return new Request(request.url, { headers });
}

export function openSockets(deps: SocketsDeps): Sockets {
  const { edge, operation, connect } = deps;
  const prepared = prepare(operation);
  const all = new Set<RawSocket>();
  let publishing: EdgeServer | undefined;
  let draining = false;
  const holdings = openHolderLimit({ most: socketsOfCallerMax, what: "sockets" });
  const sendBuffers = watchSendBuffers(edge);

  async function admitCaller(credentials: Request, requestId: string): Promise<RequestCall> {
    const call = await admit(edge, prepared, credentials, requestId);
    await enter(edge, prepared, call);
    return call;
  }

  /** The policies that hold now, as of a caller who may have changed since the upgrade. */
  const permitAs = (credentials: Request, requestId: string) => async (input: Subscribed) => {
    const call = await admitCaller(credentials, requestId);
    const startedAt = edge.clock.elapsed();
    let fault: Fault | undefined;
    try {
      await edge.guard?.(call, operation, input);
    } catch (error) {
      fault = faultOf(edge, error, operation, requestId);
      throw fault;
    } finally {
      observeCall(edge, operation, call, { fault, input, startedAt });
    }
  };

  /** Asked again and again whether its caller may still listen, to each of its patterns. */
  const watchAuthorization = (raw: RawSocket, call: RequestCall, session: SocketSession) =>
    edge.reauthorizer?.add({
      edge,
      operation,
      call,
      inputs: () => session.subscriptions(),
      refuse(fault, input) {
        if (input === undefined) raw.close(closes.refused, "the credential is not good any more");
        else session.deny(input as Subscribed, fault);
      },
    });

  function dataOf(
    credentials: Request,
    call: RequestCall,
    { isLegacy, letGo: releaseSlot }: { isLegacy: boolean; letGo: () => void },
  ) {
    let reader: BufferedConnection | undefined;
    let talk: SocketSession | undefined;
    let leave: (() => void) | undefined;
    let drained: (() => void) | undefined;
    let room: Promise<void> | undefined;
    const release = () => {
      drained?.();
      drained = undefined;
      room = undefined;
    };
    const line = (raw: RawSocket): SocketConnection => ({
      send(text) {
        if (raw.readyState !== isOpen) return;
        raw.send(text);
        sendBuffers.sent(text.length);
        if (raw.readyState !== isOpen || raw.getBufferedAmount() < socketWaitBytes) return;
        room ??= new Promise((resolve) => {
          drained = resolve;
        });
        return room;
      },
      join: (channelId) => void (raw.readyState === isOpen && raw.subscribe(channelId)),
      leave: (channelId) => void (raw.readyState === isOpen && raw.unsubscribe(channelId)),
      end: () => raw.close(closes.refused, "the environment is gone"),
    });
    return {
      open(raw: RawSocket) {
        all.add(raw);
        reader = {
          holder: call.caller.id,
          unread: () => (raw.readyState === isOpen ? raw.getBufferedAmount() : 0),
          // It goes on by sequence, as after any cut.
          cut: () => raw.terminate(),
        };
        sendBuffers.add(reader);
        if (draining) return raw.close(closes.restart, "the server is going away");
        talk = connect({
          environmentId: call.environmentId,
          holder: call.caller.id,
          connection: line(raw),
          permit: permitAs(credentials, call.requestId),
          caller: call,
          isLegacy,
        });
        leave = watchAuthorization(raw, call, talk);
      },
      message: (_raw: RawSocket, message: string | Uint8Array) =>
        talk?.onMessage(typeof message === "string" ? message : undefined),
      drain: release,
      close(raw: RawSocket) {
        all.delete(raw);
        releaseSlot();
        if (reader) sendBuffers.remove(reader);
        leave?.();
        talk?.onClose();
        release();
      },
    };
  }

  return {
    upgrade: {
      path: "/ws",
      async handle(request, server) {
        if (request.headers.get("upgrade")?.toLowerCase() !== "websocket")
          return new Response('{"error":"a WebSocket upgrade is wanted","code":"upgrade_required"}', {
            status: 426,
            headers: { upgrade: "websocket", "content-type": "application/json" },
          });
        const requestId = requestIdOf(request, edge.ids);
        const offered = protocolsOf(request);
        const credentials = credentialsOf(request);
        let call: RequestCall;
        try {
          if (draining) throw new Fault("unavailable", "the server is going away");
          call = await admitCaller(credentials, requestId);
        } catch (error) {
          throw faultOf(edge, error, operation, requestId);
        }
        const speaks = offered.includes(protocol);
        // The runtime would echo the first that was offered, which may be the credential.
        if (offered.length > 0 && !speaks)
          throw new Fault("invalid_argument", `offer the subprotocol ${protocol}`);
        publishing = server;
        const letGo = holdings.acquire(call.caller.id);
        const options = {
          data: dataOf(credentials, call, { isLegacy: !speaks, letGo }),
          ...(speaks && { headers: { "Sec-WebSocket-Protocol": protocol } }),
        };
        if (server.upgrade(request, options)) return undefined;
        letGo();
        throw new Fault("invalid_argument", "the upgrade is malformed");
      },
    },

    publish(channelId, text) {
      publishing?.publish(channelId, text);
      sendBuffers.sent(text.length * all.size);
    },

    drain() {
      draining = true;
      for (const raw of [...all]) raw.close(closes.restart, "the server is going away");
    },

    size: () => all.size,
  };
}
