import { Type } from "@sinclair/typebox";
import { rfc3339 } from "../../../kit/clock.ts";
import { described } from "../../../kit/described.ts";
import { keyOf } from "../../../kit/key-claims.ts";
import { type Call, unary } from "../../../kit/operation.ts";
import type { ClusterHealth } from "./health.ts";
import type { Cluster, Rotation } from "./service.ts";
import { Health } from "./wire.ts";

const text = Type.String();
const instant = Type.String({ format: "date-time" });

export const clusterOperations = (
  cluster: Cluster,
  /** Whether the caller operates the installation, or an org of it. */
  seesDetails: (call: Call) => Promise<boolean>,
) => [
  unary({
    name: "cluster.health",
    action: "authenticated",
    // Every role of the platform holds it.
    platformAction: "platform:tenants:read",
    scope: "none",
    reads: true,
    summary:
      "Nodes, leaders, database and message bus, as this node sees them; callers who are not admins see states and counts only.",
    input: Type.Object({}),
    output: Health,
    rest: { route: "GET /api/v1/cluster/health", encode: (body: ClusterHealth) => ({ status: 200, body }) },
    handle: async (_input, call) => cluster.health(await seesDetails(call)),
  }),
  unary({
    name: "cluster.rotateToken",
    action: "cluster:rotate-token",
    platformAction: "platform:keys:manage",
    scope: "none",
    summary:
      "Replaces a secret on every node: the org's `api_key` that `remote_key_id` names. A platform credential replaces `jwt_secret`, `platform_jwt_secret`, `signing_key` or `master_key`, which seals everything again.",
    input: Type.Object({
      kind: Type.String({
        maxLength: 64,
        description: "Which secret: `api_key` or one of the installation's.",
      }),
      new_value: Type.String({
        maxLength: 1024,
        description: "The secret from now on, at most 1,024 characters.",
      }),
      remote_key_id: Type.Optional(
        Type.String({ maxLength: 128, description: "The key that is rotated, of kind `api_key`." }),
      ),
    }),
    output: Type.Object({
      status: described(text, "Always `rotated`."),
      rotated_at: described(instant, "When it was rotated, RFC 3339."),
      confirmed_nodes: Type.Array(text, {
        description: "Nodes that use the new value already; others follow by themselves.",
      }),
    }),
    // The same rights as the rotation of a key by its own route.
    about: ({ kind, remote_key_id: id }: { kind: string; remote_key_id?: string }) => [
      kind,
      ...(kind === "api_key" && id !== undefined ? [{ type: "apikeys", id, action: "apikeys:manage" }] : []),
    ],
    alsoAsks: ["apikeys:manage"],
    rest: {
      route: "POST /api/v1/cluster/rotate-token",
      encode: ({ rotatedAt, confirmed, replayed }: Rotation) => ({
        status: 200,
        body: { status: "rotated", rotated_at: rfc3339(rotatedAt), confirmed_nodes: confirmed },
        ...(replayed && { headers: { "Idempotent-Replay": "1" } }),
      }),
    },
    handle: (input, call) =>
      cluster.rotate(input, call.caller, keyOf(undefined, call.idempotencyKey) ?? undefined),
  }),
];
