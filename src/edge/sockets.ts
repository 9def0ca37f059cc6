import { Fault } from "../kit/fault.ts";
import { openHoldings } from "../kit/holdings.ts";
import { socketBufferBytesMax, socketFrameBytesMax, socketWaitBytes } from "../kit/limits.ts";
import type { Operation } from "../kit/operation.ts";
import { type Edge, faultOf, type RequestCall } from "./call.ts";
import { requestIdOf } from "./headers.ts";
import type { EdgeServer, Upgrade } from "./http.ts";
import { admit, enter, prepare, tell } from "./perform.ts";
import { type Reader, watchUnread } from "./unread.ts";

/** One connection, as whoever speaks on it needs it. */
export interface SocketLine {
  send(text: string): void | Promise<void>;
  join(channelId: string): void;
  leave(channelId: string): void;
  end(): void;
}

export interface SocketTalk {
  /** Undefined for a binary frame. */
  onMessage(text: string | undefined): void;
  /** Of its subscriptions. */
  patterns(): Iterable<string>;
  /** Ends the subscriptions to this pattern: the caller may not have them any more. */
  deny(pattern: string, fault: Fault): void;
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
    line: SocketLine;
    permit: (pattern: string) => Promise<void>;
    isLegacy: boolean;
  }) => SocketTalk;
  /** A session cookie is only taken from pages of this site. False where everybody is let in anyway. */
  checksOrigin: boolean;
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
const credentialPrefix = "svc.auth.bearer.";
const isOpen = 1;
/** RFC 6455 close codes; any but 1000 lets clients come back. */
const closes = { restart: 1012, refused: 1008, gone: 1001 } as const;

const offeredBy = (request: Request): string[] =>
  (request.headers.get("sec-websocket-protocol") ?? "")
    .split(",")
    .map((one) => one.trim())
    .filter((one) => one !== "");

/** The credential that was offered as a subprotocol, as the header that others send. */
function authorizationOf(request: Request, offered: readonly string[]): string | undefined {
  const sent = request.headers.get("authorization");
  if (sent) return sent;
  const encoded = offered.find((one) => one.startsWith(credentialPrefix))?.slice(credentialPrefix.length);
  if (encoded === undefined) return undefined;
  const text = Buffer.from(encoded, "base64url").toString();
  // Anything that no key looks like is refused as one that is not known.
  return `Bearer ${/^[\x21-\x7e]+$/.test(text) ? text : "-"}`;
}

const kept = ["x-svc-environment", "x-svc-org", "x-request-id", "cookie", "user-agent"];

/** What the caller is known by, apart from the request, which ends with the upgrade. */
function credentialsOf(request: Request, offered: readonly string[]): Request {
  const headers = new Headers();
  for (const name of kept) {
    const value = request.headers.get(name);
    if (value !== null) headers.set(name, value);
  }
  const authorization = authorizationOf(request, offered);
  if (authorization !== undefined) headers.set("authorization", authorization);
  return new Request(request.url, { headers });
}

/** A page of another site may open a socket, and the browser would send our cookie with it. */
function requireOwnPage(request: Request, credentials: Request): void {
  const { headers } = credentials;
  if (headers.has("authorization") || !headers.has("cookie")) return;
  if (new URL(request.url).searchParams.has("token")) return;
  const origin = request.headers.get("origin");
  const host = request.headers.get("host");
  if (origin !== null && host !== null && origin.replace(/^https?:\/\//, "") !== host)
    throw new Fault("permission_denied", "a session cookie is good for this site's own pages only");
}

export function openSockets(deps: SocketsDeps): Sockets {
  const { edge, operation, connect, checksOrigin } = deps;
  const prepared = prepare(operation);
  const all = new Set<RawSocket>();
  let publishing: EdgeServer | undefined;
  let draining = false;
  const holdings = openHoldings({ most: socketsOfCallerMax, what: "sockets" });
  const unread = watchUnread(edge);

  async function letIn(credentials: Request, requestId: string): Promise<RequestCall> {
    const call = await admit(edge, prepared, credentials, requestId);
    await enter(edge, prepared, call);
    return call;
  }

  /** The policies that hold now, as of a caller who may have changed since the upgrade. */
  const permitAs = (credentials: Request, requestId: string) => async (pattern: string) => {
    const call = await letIn(credentials, requestId);
    const startedAt = edge.clock.elapsed();
    const input = { pattern };
    let fault: Fault | undefined;
    try {
      await edge.guard?.(call, operation, input);
    } catch (error) {
      fault = faultOf(edge, error, operation, requestId);
      throw fault;
    } finally {
      tell(edge, operation, call, { fault, input, startedAt });
    }
  };

  /** Asked again and again whether its caller may still listen, to each of its patterns. */
  const stand = (raw: RawSocket, call: RequestCall, talk: SocketTalk) =>
    edge.standing?.add({
      edge,
      operation,
      call,
      inputs: () => Array.from(new Set(talk.patterns()), (pattern) => ({ pattern })),
      refuse(fault, input) {
        if (input === undefined) raw.close(closes.refused, "the credential is not good any more");
        else talk.deny((input as { pattern: string }).pattern, fault);
      },
    });

  function dataOf(
    credentials: Request,
    call: RequestCall,
    { isLegacy, letGo }: { isLegacy: boolean; letGo: () => void },
  ) {
    let reader: Reader | undefined;
    let talk: SocketTalk | undefined;
    let leave: (() => void) | undefined;
    let drained: (() => void) | undefined;
    let room: Promise<void> | undefined;
    const release = () => {
      drained?.();
      drained = undefined;
      room = undefined;
    };
    const line = (raw: RawSocket): SocketLine => ({
      send(text) {
        if (raw.readyState !== isOpen) return;
        raw.send(text);
        unread.sent(text.length);
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
        unread.add(reader);
        if (draining) return raw.close(closes.restart, "the server is going away");
        talk = connect({
          environmentId: call.environmentId,
          holder: call.caller.id,
          line: line(raw),
          permit: permitAs(credentials, call.requestId),
          isLegacy,
        });
        leave = stand(raw, call, talk);
      },
      message: (_raw: RawSocket, message: string | Uint8Array) =>
        talk?.onMessage(typeof message === "string" ? message : undefined),
      drain: release,
      close(raw: RawSocket) {
        all.delete(raw);
        letGo();
        if (reader) unread.remove(reader);
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
        const offered = offeredBy(request);
        const credentials = credentialsOf(request, offered);
        let call: RequestCall;
        try {
          if (checksOrigin) requireOwnPage(request, credentials);
          if (draining) throw new Fault("unavailable", "the server is going away");
          call = await letIn(credentials, requestId);
        } catch (error) {
          throw faultOf(edge, error, operation, requestId);
        }
        const speaks = offered.includes(protocol);
        // The runtime would echo the first that was offered, which may be the credential.
        if (offered.length > 0 && !speaks)
          throw new Fault("invalid_argument", `offer the subprotocol ${protocol}`);
        publishing = server;
        const letGo = holdings.take(call.caller.id);
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
      unread.sent(text.length * all.size);
    },

    drain() {
      draining = true;
      for (const raw of [...all]) raw.close(closes.restart, "the server is going away");
    },

    size: () => all.size,
  };
}
