import { Type } from "@sinclair/typebox";
import type { Edge, Observation } from "../../src/edge/call.ts";
import type { Connections } from "../../src/edge/connections.ts";
import { type ListeningGrpc, listenGrpc } from "../../src/edge/grpc.ts";
import { type ListeningEdge, listenEdge } from "../../src/edge/http.ts";
import { services } from "../../src/edge/services.ts";
import { PubSubService } from "../../src/gen/svc/v1/pubsub_pb.ts";
import { SvcService } from "../../src/gen/svc/v1/svc_pb.ts";
import { RunStatus } from "../../src/gen/svc/v1/types_pb.ts";
import { systemClock } from "../../src/kit/clock.ts";
import { Fault } from "../../src/kit/fault.ts";
import { systemIds } from "../../src/kit/ids.ts";
import type { Log } from "../../src/kit/log.ts";
import { type Operation, rpc, rpcStream, stream, unary } from "../../src/kit/operation.ts";
import { StoreError } from "../../src/store/store.ts";

export const bodyBytesMax = 256 * 1024;

export interface MadeUp {
  listening: ListeningEdge;
  grpc: ListeningGrpc;
  url: string;
  observed: Observation[];
  /** Every line of the log, as text. */
  logged: string[];
  /** What was parsed or asked for before it was refused must not have happened: names of handlers that ran. */
  ran: string[];
  streams: { open: number; ended: number };
  stop(): Promise<void>;
}

const thrown: Record<string, () => Error> = {
  defect: () => new TypeError("secret detail of the inside"),
  unavailable: () => new StoreError("unavailable", "no connection"),
  lock: () => new StoreError("lock_timeout", "heads"),
  stale: () => new Fault("aborted", "execution was superseded", { code: "STALE_EXECUTION" }),
  word: () =>
    new Fault("invalid_argument", "effect 'allow' is gone", { code: "policy_effect_allow_deprecated" }),
  state: () => new Fault("failed_precondition", "run is not cancellable"),
  full: () => new Fault("resource_exhausted", "too many"),
  contended: () =>
    new Fault("aborted", "lost", { headers: { "Svc-Error-Reason": "contended", "Retry-After": "1" } }),
};

const Item = Type.Object({ event: Type.String({ minLength: 1 }), weight: Type.Optional(Type.Integer()) });
const Thing = Type.Object({
  id: Type.Optional(Type.String()),
  name: Type.String({ minLength: 1 }),
  limit: Type.Optional(Type.Integer({ minimum: 1, maximum: 10 })),
  kind: Type.Optional(Type.Union([Type.Literal("a"), Type.Literal("b")])),
  triggers: Type.Optional(Type.Array(Item)),
});

const clock = systemClock();

export function madeUpOperations(made: Pick<MadeUp, "ran" | "streams">): Operation[] {
  const base = { summary: "Made up for the test.", action: "things:write" };
  const note = <T>(name: string, value: T): T => {
    made.ran.push(name);
    return value;
  };
  return [
    unary({
      ...base,
      name: "things.create",
      input: Thing,
      rest: { route: "POST /api/v1/things", encode: (thing) => ({ status: 201, body: thing }) },
      handle: (input) => note("create", input),
    }),
    unary({
      ...base,
      name: "things.update",
      input: Thing,
      rest: ["PUT /api/v1/things/{id}", "PATCH /api/v1/things/{id}"],
      handle: (input) => note("update", input),
    }),
    unary({
      ...base,
      name: "things.list",
      action: "authenticated",
      reads: true,
      input: Type.Object({
        limit: Type.Optional(Type.Integer()),
        deep: Type.Optional(Type.Boolean()),
        names: Type.Optional(Type.Array(Type.String())),
      }),
      rest: "GET /api/v1/things",
      handle: (input) => input,
    }),
    unary({
      ...base,
      name: "things.delete",
      input: Type.Object({ thing: Type.String() }),
      rest: "DELETE /api/v1/things/{thing}",
      handle: () => undefined,
    }),
    unary({
      ...base,
      name: "keys.put",
      input: Type.Object({ bucket: Type.String(), key: Type.String(), bytes: Type.Uint8Array() }),
      rest: {
        route: "PUT /api/v1/buckets/{bucket}/keys/{key...}",
        raw: true,
        decode: ({ params, body }) => ({ ...params, bytes: body }),
        encode: (out) => ({ status: 200, body: out, headers: { ETag: '"7"' } }),
      },
      handle: ({ bucket, key, bytes }) => ({ bucket, key, size: bytes.byteLength }),
    }),
    unary({
      ...base,
      name: "export",
      input: Type.Object({}),
      rest: {
        route: "GET /api/v1/export",
        encode: (pieces) => ({
          status: 200,
          body: pieces,
          headers: { "Content-Type": "application/x-ndjson" },
        }),
      },
      async handle() {
        return (async function* () {
          try {
            made.streams.open++;
            for (let line = 0; ; line++) {
              yield `{"line":${line}}\n`;
              await clock.sleep(5);
            }
          } finally {
            made.streams.ended++;
          }
        })();
      },
    }),
    unary({
      ...base,
      name: "public",
      action: null,
      input: Type.Object({}),
      rest: "GET /open",
      handle: (_, call) => ({ kind: call.caller.kind, requestId: call.requestId }),
    }),
    unary({
      ...base,
      name: "forbidden",
      action: "things:forbidden",
      input: Thing,
      rest: "POST /api/v1/forbidden",
      rpc: rpc(
        SvcService.method.deleteFunction,
        () => ({ name: "x" }),
        () => ({}),
      ),
      handle: (input) => note("forbidden", input),
    }),
    unary({
      ...base,
      name: "throws",
      input: Type.Object({ what: Type.String() }),
      rest: "POST /api/v1/throw/{what}",
      rpc: rpc(
        SvcService.method.getFunction,
        (m) => ({ what: m.id }),
        () => ({}),
      ),
      handle: ({ what }) => {
        throw thrown[what]?.() ?? new Error(what);
      },
    }),
    unary({
      ...base,
      name: "slow",
      held: true,
      input: Type.Object({ until: Type.Optional(Type.String()) }),
      rest: "POST /api/v1/slow",
      rpc: rpc(
        SvcService.method.triggerSync,
        (m) => ({ until: m.event }),
        () => ({ eventId: "evt_1" }),
      ),
      handle: async (input, call) => {
        made.streams.open++;
        if (input.until === "abort") await new Promise((done) => call.signal.addEventListener("abort", done));
        else await clock.sleep(200);
        made.streams.ended++;
        return { done: true };
      },
    }),
    unary({
      ...base,
      name: "events.emit",
      input: Type.Object({ event: Type.String({ minLength: 1 }), data: Type.Optional(Type.Unknown()) }),
      rpc: rpc(
        PubSubService.method.emit,
        (m) => ({ event: m.event, data: m.dataValue ?? m.data }),
        (out: { eventId: string; data: unknown }) => ({ eventId: out.eventId }),
        {
          decode: (body) => ({ event: body.event, data: body.data }),
          encode: ({ eventId }) => ({ eventId }),
        },
      ),
      handle: (input) => note("emit", { eventId: `evt_${input.event}`, data: input.data }),
    }),
    unary({
      ...base,
      name: "runs.get",
      reads: true,
      input: Type.Object({ id: Type.String({ minLength: 1 }) }),
      rpc: rpc(
        SvcService.method.getRun,
        (m) => ({ id: m.id }),
        (id: string) => ({ id, input: { a: 1 } }),
      ),
      handle: ({ id }) => id,
    }),
    unary({
      ...base,
      name: "runs.list",
      reads: true,
      input: Type.Object({ statuses: Type.Array(Type.Integer()) }),
      rpc: rpc(
        SvcService.method.listRuns,
        (m) => ({ statuses: [...m.statuses, m.status].filter((status) => status !== RunStatus.UNSPECIFIED) }),
        (statuses: number[]) => ({
          runs: statuses.map((status) => ({ id: "run_1", status: status as RunStatus })),
          totalCount: 1,
        }),
      ),
      handle: ({ statuses }) => statuses,
    }),
    stream({
      ...base,
      name: "pubsub.subscribe",
      input: Type.Object({ pattern: Type.String({ minLength: 1 }), count: Type.Integer() }),
      rpc: rpcStream(
        PubSubService.method.subscribe,
        (m) => ({ pattern: m.pattern, count: m.options?.replay ?? 0 }),
        (sequence: number) => ({ topic: "t", sequence: BigInt(sequence) }),
      ),
      async *handle({ count, pattern }) {
        made.streams.open++;
        try {
          for (let sequence = 1; count === 0 || sequence <= count; sequence++) {
            yield sequence;
            if (count === 0) await clock.sleep(2);
          }
          if (pattern === "fails") throw new Fault("not_found", "no such topic");
        } finally {
          made.streams.ended++;
        }
      },
    }),
  ];
}

/** A server of its own with made-up operations. `Bearer good` is let in, `Bearer weak` only where any credential does. */
export async function startMadeUp(
  options: {
    tls?: { cert: string; key: string };
    grpcIdleMs?: number;
    idleSeconds?: number;
    /** Of the gRPC port. */
    connections?: Connections;
  } = {},
): Promise<MadeUp> {
  const logged: string[] = [];
  const line = (event: string, fields?: Record<string, unknown>) =>
    void logged.push(`${event} ${JSON.stringify({ ...fields, error: String(fields?.error) })}`);
  const log: Log = { debug: line, info: line, warn: line, error: line };
  const made = { observed: [] as Observation[], logged, ran: [] as string[], streams: { open: 0, ended: 0 } };
  const edge: Edge = {
    clock,
    log,
    ids: systemIds(clock),
    async authenticate(request) {
      const told = request.headers.get("authorization");
      if (told === null) throw new Fault("unauthenticated", "Authentication required");
      if (told !== "Bearer good" && told !== "Bearer weak")
        throw new Fault("unauthenticated", "Invalid API key");
      const roles = told === "Bearer good" ? ["admin"] : ["viewer"];
      return { caller: { kind: "key", id: "ak_1", orgId: "org_1", roles }, environmentId: "env_1" };
    },
    gate({ caller }, { action }) {
      if (action === "authenticated") return;
      if (action === "things:forbidden" || !caller.roles.includes("admin")) {
        throw new Fault("permission_denied", "Insufficient permissions");
      }
    },
    observe: (observation) => void made.observed.push(observation),
  };
  const offered = { edge, registry: madeUpOperations(made), services, bodyBytesMax };
  const place = { hostname: "127.0.0.1", port: 0, tls: options.tls };
  const idle = options.grpcIdleMs === undefined ? {} : { idleMs: options.grpcIdleMs };
  const grpc = await listenGrpc({ ...offered, ...place, ...idle, connections: options.connections });
  const listening = await listenEdge({
    ...offered,
    ...place,
    ...(options.idleSeconds !== undefined && { idleSeconds: options.idleSeconds }),
    pages: [
      { path: "/page", handle: () => new Response("<p>", { headers: { "Content-Type": "text/html" } }) },
    ],
    upgrades: [
      {
        path: "/ws/{room}",
        handle(request, server, { room }) {
          if (request.headers.get("upgrade") !== "websocket")
            throw new Fault("invalid_argument", "upgrade wanted");
          const data = {
            message: (socket: { send(text: string): void }, text: string) => socket.send(`${room}: ${text}`),
          };
          server.upgrade(request, { headers: { "Sec-WebSocket-Protocol": "svc.v1" }, data });
          return undefined;
        },
      },
    ],
  });
  const stop = async () => void (await Promise.all([listening.stop(0), grpc.stop(0)]));
  return { ...made, listening, grpc, url: listening.url, stop };
}

export const good = { Authorization: "Bearer good" };
export const json = { "Content-Type": "application/json" };
