import { Type } from "@sinclair/typebox";
import { roleGrants } from "../../access/actions.ts";
import { rfc3339 } from "../../kit/clock.ts";
import { keyOf } from "../../kit/idempotency-key.ts";
import { type Caller, unary } from "../../kit/operation.ts";
import type { ClusterHealth } from "./health.ts";
import type { Cluster, Rotation } from "./service.ts";

const text = Type.String();
const instant = Type.String({ format: "date-time" });

const Health = Type.Object({
  status: text,
  issues: Type.Array(text),
  mode: text,
  node_id: text,
  nodes: Type.Array(
    Type.Object({
      id: text,
      status: text,
      version: text,
      url: Type.Optional(text),
      started_at: instant,
      last_heartbeat: instant,
      bus_connected: Type.Boolean(),
      clock_offset_ms: Type.Number(),
      clock_uncertainty_ms: Type.Number(),
      cpu_percent: Type.Optional(Type.Number()),
      memory_bytes: Type.Optional(Type.Number()),
      loops: Type.Optional(
        Type.Array(
          Type.Object({
            name: text,
            last_progress: Type.Union([instant, Type.Null()]),
            failures: Type.Number(),
          }),
        ),
      ),
    }),
  ),
  leaders: Type.Array(
    Type.Object({ duty: text, node_id: text, epoch: Type.Number(), lease_expires_at: instant }),
  ),
  database: Type.Object({ engine: text, status: text, round_trip_ms: Type.Number() }),
  bus: Type.Object({ kind: text, status: text }),
});

/** Whoever runs the installation, or an org of it. */
const isOperator = ({ kind, roles }: Caller): boolean =>
  kind === "dev" || kind === "platform" || roleGrants(roles, "cluster:rotate-token");

/** What everybody else sees: states, not where nodes are and what they do. */
const statesOf = ({ nodes, ...health }: ClusterHealth) => ({
  ...health,
  nodes: nodes.map(({ url: _url, cpu_percent: _cpu, memory_bytes: _memory, loops: _loops, ...node }) => node),
});

export const clusterOperations = (cluster: Cluster) => [
  unary({
    name: "cluster.health",
    action: "authenticated",
    // Every role of the platform holds it.
    platformAction: "platform:tenants:read",
    scope: "none",
    reads: true,
    summary: "Nodes, leaders, database and message bus, as this node sees them.",
    input: Type.Object({}),
    output: Health,
    rest: { route: "GET /api/v1/cluster/health", give: (body: object) => ({ status: 200, body }) },
    async handle(_input, { caller }): Promise<object> {
      const health = await cluster.health();
      return isOperator(caller) ? health : statesOf(health);
    },
  }),
  unary({
    name: "cluster.rotateToken",
    action: "cluster:rotate-token",
    platformAction: "platform:keys:manage",
    scope: "none",
    summary:
      "Replaces a secret on every node: `jwt_secret`, `signing_key`, `master_key` (all that is sealed is sealed again) or the `api_key` that `remote_key_id` names.",
    input: Type.Object({
      kind: Type.String({ maxLength: 64 }),
      new_value: Type.String({ maxLength: 1024 }),
      remote_key_id: Type.Optional(Type.String({ maxLength: 128 })),
    }),
    output: Type.Object({ status: text, rotated_at: instant, confirmed_nodes: Type.Array(text) }),
    rest: {
      route: "POST /api/v1/cluster/rotate-token",
      give: ({ rotatedAt, confirmed, replayed }: Rotation) => ({
        status: 200,
        body: { status: "rotated", rotated_at: rfc3339(rotatedAt), confirmed_nodes: confirmed },
        ...(replayed && { headers: { "Idempotent-Replay": "1" } }),
      }),
    },
    handle: (input, call) =>
      cluster.rotate(input, call.caller, keyOf(undefined, call.idempotencyKey) ?? undefined),
  }),
];
