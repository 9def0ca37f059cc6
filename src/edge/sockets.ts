import { Fault } from "../kit/fault.ts";
import { openHolderLimit } from "../kit/holder-limit.ts";
import type { Call, Operation } from "../kit/operation.ts";
import { type Edge, faultOf, type RequestCall } from "./call.ts";
import { decidingHeaders, protocolsOf } from "./credential.ts";
import { requestIdOf } from "./headers.ts";
import type { EdgeServer, Upgrade } from "./http.ts";
import {
  closes,
  OpenSocket,
  type RawSocket,
  type SocketConnection,
  type SocketSession,
  type Subscribed,
} from "./open-socket.ts";
import { watchSendBuffers } from "./send-buffers.ts";
import { openSocketGate } from "./socket-gate.ts";

/** What a client may send in one WebSocket frame. */
export const socketFrameBytesMax = 1024 * 1024;
/** A socket with this much unsent is closed. */
const socketBufferBytesMax = 8 * 1024 * 1024;

export interface SocketsDeps {
  edge: Edge;
  /** The operation that the gate checks at the upgrade and for each subscription. */
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
  /** Closes all sockets with 1012, after which clients look for another node. */
  drain(): void;
  size(): number;
}

/**
 * Bun's options for every socket. A reader that is too slow is closed; its client comes back and resumes by
 * sequence.
 */
export const socketOptions = {
  maxPayloadLength: socketFrameBytesMax,
  backpressureLimit: socketBufferBytesMax,
  closeOnBackpressureLimit: true,
  idleTimeout: 60,
  sendPings: true,
};

/** Open sockets of one key or user at a node. */
export const socketsOfCallerMax = 1_000;

export const socketPath = "/ws";
const protocol = "svc.v1";

const kept = [...decidingHeaders, "x-svc-environment", "x-svc-org", "x-request-id", "user-agent"];

/** A request with the caller's credentials only: the upgrade's own request ends with the upgrade. */
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
  const gate = openSocketGate(edge, operation);
  const all = new Set<RawSocket>();
  let publishing: EdgeServer | undefined;
  let draining = false;
  const holdings = openHolderLimit({ most: socketsOfCallerMax, what: "sockets" });
  const sendBuffers = watchSendBuffers(edge);

  /** Bun calls these functions for the connection. */
  function handlersOf(
    credentials: Request,
    call: RequestCall,
    { isLegacy, releasePlace }: { isLegacy: boolean; releasePlace: () => void },
  ) {
    const socket = new OpenSocket({
      call,
      releasePlace,
      all,
      sendBuffers,
      isDraining: () => draining,
      connect: (connection) =>
        connect({
          environmentId: call.environmentId,
          holder: call.caller.id,
          connection,
          permit: gate.permitAs(credentials, call.requestId),
          caller: call,
          isLegacy,
        }),
      watchAuthorization: (raw, session) => gate.watch(raw, call, session),
    });
    return {
      open: (raw: RawSocket) => socket.open(raw),
      message: (_raw: RawSocket, message: string | Uint8Array) => socket.message(message),
      drain: () => socket.drain(),
      close: (raw: RawSocket) => socket.close(raw),
    };
  }

  /** Lets the caller in and turns the request into a socket. */
  async function upgrade(request: Request, server: EdgeServer): Promise<undefined> {
    const requestId = requestIdOf(request, edge.ids);
    const offered = protocolsOf(request);
    const credentials = credentialsOf(request);
    let call: RequestCall;
    try {
      if (draining) throw new Fault("unavailable", "the server is going away");
      call = await gate.admit(credentials, requestId);
    } catch (error) {
      throw faultOf(edge, error, operation, requestId);
    }
    const isLegacy = !offered.includes(protocol);
    // Without an answer of ours the runtime would echo the first protocol offered, which may be the
    // credential.
    if (offered.length > 0 && isLegacy)
      throw new Fault("invalid_argument", `unknown subprotocol: offer ${protocol}`);
    publishing = server;
    const releasePlace = holdings.acquire(call.caller.id);
    const options = {
      data: handlersOf(credentials, call, { isLegacy, releasePlace }),
      ...(!isLegacy && { headers: { "Sec-WebSocket-Protocol": protocol } }),
    };
    if (server.upgrade(request, options)) return undefined;
    releasePlace();
    throw new Fault("invalid_argument", "malformed WebSocket upgrade");
  }

  return {
    upgrade: {
      path: socketPath,
      handle(request, server) {
        if (request.headers.get("upgrade")?.toLowerCase() === "websocket") return upgrade(request, server);
        return new Response('{"error":"expected a WebSocket upgrade","code":"upgrade_required"}', {
          status: 426,
          headers: { upgrade: "websocket", "content-type": "application/json" },
        });
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
