import { Type } from "@sinclair/typebox";
import { SvcService } from "../gen/svc/v1/svc_pb.ts";
import { type Clock, rfc3339 } from "../kit/clock.ts";
import type { Draining } from "../kit/closing.ts";
import { described, shape } from "../kit/described.ts";
import { type Operation, rpc, unary } from "../kit/operation.ts";
import { timestampOf } from "../kit/wkt.ts";

/** Loaded by the first reader: a start does not wait for the words of every field. */
const description = () => import("./openapi.ts");

/** For a probe, a database that answers later than this is down. */
const pingMsMax = 2_000;

export interface Capabilities {
  authRequired: boolean;
  /**
   * The transports that work now: `rest`, `connect`, `grpc-web`, `websocket`, `grpc`, `grpc-bidirectional`.
   */
  transports: readonly string[];
  features: readonly string[];
}

export interface ProbesHost {
  clock: Clock;
  version: string;
  store: { ping(): Promise<void> };
  /** Left out when the process has no message bus. */
  bus?: { connected(): boolean };
  capabilities: Capabilities;
  draining?: Draining;
  /** What does not work although the server answers: it makes the server `degraded`. */
  troubles?: () => readonly string[];
  /** Things an operator should look at although the server works. */
  warnings?: () => readonly string[];
  /** Every operation that is served, these included; asked at the first request. */
  registry: () => readonly Operation[];
}

const nothing = Type.Object({});
const words = Type.Array(Type.String());

const Health = Type.Object({
  status: shape.text(
    "`healthy`, `degraded` or `unhealthy`: a degraded server answers, but a part of it does no work.",
  ),
  timestamp: Type.String({ format: "date-time" }),
  version: shape.text("Version of the server."),
  warnings: Type.Optional(
    described(
      words,
      "What an operator should look at; first, why the database cannot be written, then what fails again and again.",
    ),
  ),
});

const Ready = Type.Object({
  status: shape.text("`ready`, `not_ready` or `draining`."),
  issues: Type.Optional(described(words, "What is missing; absent when nothing is.")),
});

const CapabilitiesAnswer = Type.Object({
  version: shape.text("Version of the server."),
  auth_required: shape.flag("Whether calls need a credential."),
  transports: described(words, "Transports that work now, such as `rest`, `connect` and `websocket`."),
  features: described(words, "Features that work here."),
});

const Routes = Type.Object({
  routes: Type.Array(
    Type.Object({
      name: shape.text("Name of the operation, such as `runs.cancel`."),
      method: shape.text("HTTP method of the way in; `POST` for RPC."),
      path: shape.text("Path with its parameters in braces."),
      action: shape.text("Action that the caller must hold; `public` for none."),
      protocol: shape.text("`rest`, `connect`, `connect-stream` or `websocket`."),
    }),
    { description: "Every way to every operation." },
  ),
  count: shape.count("How many there are."),
});

/** What load balancers, curious clients and people ask of the server itself. */
export function probes(host: ProbesHost): Operation[] {
  return [health(host), ready(host), capabilities(host), routes(host), openApi(host)];
}

const noAnswer = "the database does not answer";

/** The store's own word for why nothing can be written, known by shape; other errors may name hosts. */
const reasonOf = (error: unknown): string =>
  error instanceof Error && "reason" in error ? String(error.reason) : noAnswer;

/** Why nothing can be written; undefined when it can. */
async function storeTrouble({ clock, store }: ProbesHost): Promise<string | undefined> {
  const answered = new AbortController();
  const ping = store.ping().then(() => undefined, reasonOf);
  const late = clock.sleep(pingMsMax, answered.signal).then(() => noAnswer);
  const trouble = await Promise.race([ping, late]);
  answered.abort();
  return trouble;
}

function health(host: ProbesHost): Operation {
  const { clock, version } = host;
  const look = async () => {
    const trouble = await storeTrouble(host);
    const troubles = host.troubles?.() ?? [];
    const warnings = [
      ...(trouble === undefined ? [] : [trouble]),
      ...new Set([...troubles, ...(host.warnings?.() ?? [])]),
    ];
    const status = trouble !== undefined ? "unhealthy" : troubles.length > 0 ? "degraded" : "healthy";
    return { trouble, at: clock.now(), status, warnings };
  };
  return unary({
    name: "server.health",
    action: null,
    scope: "none",
    reads: true,
    summary:
      "Whether the database can be written, and the parts of the server do their work. The message bus is not asked.",
    input: nothing,
    output: Health,
    rest: {
      route: "GET /health",
      also: [503],
      encode: ({ trouble, at, status, warnings }) => ({
        status: trouble === undefined ? 200 : 503,
        body: { status, timestamp: rfc3339(at), version, ...(warnings.length > 0 && { warnings }) },
      }),
    },
    rpc: rpc(
      SvcService.method.health,
      () => ({}),
      ({ trouble, at, status }: Awaited<ReturnType<typeof look>>) => ({
        status,
        timestamp: timestampOf(at),
        components: {
          database: trouble === undefined ? { status: "healthy" } : { status, message: trouble },
        },
      }),
    ),
    handle: look,
  });
}

function ready(host: ProbesHost): Operation {
  const look = async () => {
    // Answered at once, whatever the database does: a load balancer has little time to notice.
    if (host.draining?.active) return { status: "draining", issues: [] };
    const issues: string[] = [];
    const trouble = await storeTrouble(host);
    if (trouble !== undefined) issues.push(trouble);
    if (host.bus && !host.bus.connected()) issues.push("the message bus is not connected");
    return { status: issues.length === 0 ? "ready" : "not_ready", issues };
  };
  return unary({
    name: "server.ready",
    action: null,
    scope: "none",
    reads: true,
    summary:
      "Whether traffic should be sent here: the database can be written and the message bus is connected.",
    input: nothing,
    output: Ready,
    rest: {
      route: "GET /ready",
      also: [503],
      encode: ({ status, issues }) => ({
        status: status === "ready" ? 200 : 503,
        body: { status, ...(issues.length > 0 && { issues }) },
      }),
    },
    handle: look,
  });
}

function capabilities(host: ProbesHost): Operation {
  const { version } = host;
  return unary({
    name: "server.capabilities",
    action: null,
    scope: "none",
    reads: true,
    summary: "The version, the transports and the features that work here.",
    input: nothing,
    output: CapabilitiesAnswer,
    rest: {
      route: "GET /api/v1/capabilities",
      encode: ({ authRequired, transports, features }) => ({
        status: 200,
        body: { version, auth_required: authRequired, transports, features },
      }),
    },
    rpc: rpc(
      SvcService.method.getCapabilities,
      () => ({}),
      ({ transports, features }: Capabilities) => ({
        transports: [...transports],
        features: [...features],
        version,
      }),
    ),
    handle: () => host.capabilities,
  });
}

function routes(host: ProbesHost): Operation {
  return unary({
    name: "server.routes",
    action: "authenticated",
    scope: "none",
    reads: true,
    summary: "Every operation, its ways in and the action it needs.",
    input: nothing,
    output: Routes,
    rest: "GET /api/v1/routes",
    async handle() {
      const list = (await description()).manifest(host.registry());
      return { routes: list, count: list.length };
    },
  });
}

function openApi(host: ProbesHost): Operation {
  // Shared by all answers: anybody may leave one untaken.
  let document: Blob | undefined;
  return unary({
    name: "server.openapi",
    action: null,
    scope: "none",
    reads: true,
    summary: "This document.",
    input: nothing,
    output: Type.Object({}, { additionalProperties: true }),
    rest: ["/openapi.json", "/api/v1/openapi.json"].map((path) => ({
      route: `GET ${path}`,
      encode: (body: Blob) => ({ status: 200, body, headers: { "Content-Type": "application/json" } }),
    })),
    async handle() {
      const { openApiDocument } = await description();
      document ??= new Blob([JSON.stringify(openApiDocument(host.registry(), host.version))]);
      return document;
    },
  });
}
