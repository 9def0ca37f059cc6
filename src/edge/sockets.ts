import { Fault } from "../kit/fault.ts";
import { openHolderLimit } from "../kit/holder-limit.ts";
import type { Call, Operation, WatchOperation } from "../kit/operation.ts";
import { type Edge, faultOf, type RequestCall } from "./call.ts";
import type { EdgeServer } from "./connections.ts";
import { decidingHeaders, protocolsOf } from "./credential.ts";
import { installationHeader, requestIdOf } from "./headers.ts";
import type { Upgrade } from "./http.ts";
import {
  type BegunSocket,
  closes,
  OpenSocket,
  type RawSocket,
  type SocketConnection,
  type SocketDoor,
  type SocketSession,
  type Subscribed,
} from "./open-socket.ts";
import { admit, enter, observeCall, performStream, prepare } from "./perform.ts";
import { openPublishPace } from "./publish-pace.ts";
import { defaultDecode, parseRoute, queryOf } from "./rest.ts";
import { watchSendBuffers } from "./send-buffers.ts";

/** Of RFC 6455, in a frame of 125 bytes. */
const closeReasonBytesMax = 120;

const reasonOf = (message: string): string =>
  Buffer.byteLength(message) <= closeReasonBytesMax ? message : "";

/** A read of the store, or a wait for one: what a client has not read yet is not read for it. */
async function pump(
  frames: AsyncIterator<string>,
  first: Awaited<ReturnType<typeof frames.next>>,
  connection: SocketConnection,
) {
  for (let next = first; !next.done; next = await frames.next()) {
    const room = connection.send(next.value);
    if (room) await room;
  }
}

/** The path of an operation to which a caller only listens. */
function watchDoor(edge: Edge, operation: Operation & WatchOperation): SocketDoor {
  const prepared = prepare(operation);
  const decode = defaultDecode(operation.input);
  return {
    operation,
    path: parseRoute(operation.route).path,
    admit: (credentials, requestId) => admit(edge, prepared, credentials, requestId),

    async begin({ call, request, params }) {
      const over = new AbortController();
      call.endWith(over.signal);
      const admitted = Promise.withResolvers<void>();
      call.admitted = admitted.resolve;
      const asked = { params, query: queryOf(request.url), headers: request.headers, body: undefined };
      const frames = performStream(edge, prepared, call, () => decode(asked)) as AsyncGenerator<string>;
      const first = frames.next();
      await Promise.race([admitted.promise, first]);
      const leave = () => over.abort();
      return {
        leave() {
          leave();
          void first.then(() => frames.return(undefined)).catch(() => {});
        },
        connect(connection) {
          first
            .then((one) => pump(frames, one, connection))
            .then(
              () => connection.end(closes.gone, "the server has nothing more to say"),
              (error) => {
                const { message, kind: code } = faultOf(edge, error, operation, call.requestId);
                connection.send(JSON.stringify({ type: "error", message, code }));
                connection.end(closes.refused, reasonOf(message));
              },
            );
          return { onMessage() {}, subscriptions: () => [], deny() {}, onClose: leave };
        },
        watchAuthorization: () => undefined,
      };
    },
  };
}

/**
 * The checks of a socket's caller: at the upgrade, at each subscription, and from time to time while it is
 * open.
 */
function openSocketGate(edge: Edge, operation: Operation) {
  const prepared = prepare(operation);

  async function admitCaller(credentials: Request, requestId: string): Promise<RequestCall> {
    const call = await admit(edge, prepared, credentials, requestId);
    await enter(edge, prepared, call);
    return call;
  }

  /** Checks the policies of now, for the caller of now: both may have changed since the upgrade. */
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

  /** Checks from time to time that the caller may still be connected, and listen to each of its patterns. */
  const watch = (raw: RawSocket, call: RequestCall, session: SocketSession) =>
    edge.reauthorizer?.add({
      edge,
      operation,
      call,
      inputs: () => session.subscriptions(),
      refuse(fault, input) {
        if (input === undefined) raw.close(closes.refused, "the credential is no longer valid");
        else session.deny(input as Subscribed, fault);
      },
    });

  return { admit: admitCaller, permitAs, watch };
}

/** What a client may send in one WebSocket frame. */
export const socketFrameBytesMax = 1024 * 1024;
/** A socket with this much unsent is closed. */
const socketBufferBytesMax = 8 * 1024 * 1024;

export interface SocketsDeps {
  edge: Edge;
  /** The operation of `/ws`, which the gate checks at the upgrade and for each subscription. */
  operation: Operation;
  /** Operations that have a path of their own. */
  watches: readonly (Operation & WatchOperation)[];
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

export type Sockets = ReturnType<typeof openSockets>;

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

const notUpgraded = () =>
  new Response('{"error":"expected a WebSocket upgrade","code":"upgrade_required"}', {
    status: 426,
    headers: { upgrade: "websocket", "content-type": "application/json" },
  });

export function openSockets({ edge, operation, watches, connect }: SocketsDeps) {
  const gate = openSocketGate(edge, operation);
  const all = new Set<RawSocket>();
  let publishing: EdgeServer | undefined;
  let draining = false;
  const holdings = openHolderLimit({ most: socketsOfCallerMax, what: "sockets" });
  const sendBuffers = watchSendBuffers(edge);
  const pace = openPublishPace({
    clock: edge.clock,
    send(channelId, text) {
      publishing?.publish(channelId, text);
      sendBuffers.sent(text.length * all.size);
    },
    readersOf: (channelId) => publishing?.subscriberCount(channelId) ?? 0,
  });

  const main: SocketDoor = {
    operation,
    path: socketPath,
    admit: gate.admit,
    begin: ({ call, credentials, isLegacy }) => ({
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
    }),
  };

  /** Bun calls these functions for the connection. */
  function handlersOf(call: RequestCall, begun: BegunSocket, releasePlace: () => void) {
    const isDraining = () => draining;
    const socket = new OpenSocket({ call, releasePlace, all, sendBuffers, pace, isDraining, ...begun });
    return {
      open: (raw: RawSocket) => socket.open(raw),
      message: (_raw: RawSocket, message: string | Uint8Array) => socket.message(message),
      drain: () => socket.drain(),
      close: (raw: RawSocket) => socket.close(raw),
    };
  }

  /** Lets the caller in and turns the request into a socket. */
  async function upgrade(
    door: SocketDoor,
    request: Request,
    server: EdgeServer,
    params: Record<string, string>,
  ): Promise<undefined> {
    const requestId = requestIdOf(request, edge.ids);
    const refusal = (error: unknown) => faultOf(edge, error, door.operation, requestId);
    const offered = protocolsOf(request);
    const credentials = credentialsOf(request);
    let call: RequestCall;
    try {
      if (draining) throw new Fault("unavailable", "the server is going away");
      call = await door.admit(credentials, requestId);
    } catch (error) {
      throw refusal(error);
    }
    const isLegacy = !offered.includes(protocol);
    // Without an answer of ours the runtime would echo the first protocol offered, which may be the
    // credential.
    if (offered.length > 0 && isLegacy)
      throw new Fault("invalid_argument", `unknown subprotocol: offer ${protocol}`);
    publishing = server;
    const releasePlace = holdings.acquire(call.caller.id);
    let begun: BegunSocket;
    try {
      const begins = door.begin({ call, credentials, request, params, isLegacy });
      begun = begins instanceof Promise ? await begins : begins;
    } catch (error) {
      releasePlace();
      throw refusal(error);
    }
    const options = {
      data: handlersOf(call, begun, releasePlace),
      headers: {
        ...(!isLegacy && { "Sec-WebSocket-Protocol": protocol }),
        ...(edge.installation !== undefined && { [installationHeader]: edge.installation }),
      },
    };
    if (server.upgrade(request, options)) return undefined;
    begun.leave?.();
    releasePlace();
    throw new Fault("invalid_argument", "malformed WebSocket upgrade");
  }

  const upgradeAt = (door: SocketDoor): Upgrade => ({
    path: door.path,
    handle: (request, server, params) =>
      request.headers.get("upgrade")?.toLowerCase() === "websocket"
        ? upgrade(door, request, server, params)
        : notUpgraded(),
  });

  return {
    upgrades: [main, ...watches.map((watch) => watchDoor(edge, watch))].map(upgradeAt),

    /** To every connection that has joined the channel. */
    publish: pace.publish,

    /** Closes all sockets with 1012, after which clients look for another node. */
    drain() {
      draining = true;
      pace.flush();
      for (const raw of [...all]) raw.close(closes.restart, "the server is going away");
    },

    size: () => all.size,
  };
}
