import { Type } from "@sinclair/typebox";
import { described, shape } from "../../../kit/described.ts";

const text = Type.String();
const instant = Type.String({ format: "date-time" });

/** Shown to operators of the installation; other callers see how many nodes are in each state. */
const NodeDetails = Type.Partial(
  Type.Object({
    id: described(text, "Id of the node (`node_…`)."),
    version: described(text, "Version of the program."),
    url: described(text, "Address of the node, for other nodes."),
    started_at: instant,
    last_heartbeat: described(instant, "When the node said last that it is alive, RFC 3339."),
    bus_connected: shape.flag("Whether the node reaches the message bus."),
    clock_offset_ms: shape.number("Milliseconds that its clock is ahead of the database's."),
    clock_uncertainty_ms: shape.number("How far off `clock_offset_ms` may be, in milliseconds."),
    cpu_percent: Type.Number(),
    memory_bytes: shape.number("Memory that the process takes, in bytes."),
    loops: Type.Array(
      Type.Object({
        name: described(text, "Name of the loop."),
        last_progress: Type.Union([instant, Type.Null()], {
          description: "When the loop ended a round last, RFC 3339; null before the first.",
        }),
        failures: shape.number("Rounds in a row that failed."),
        error: Type.Optional(described(text, "What the last failed round said; absent after a good one.")),
      }),
      { description: "Background loops of the node." },
    ),
  }),
);

export const Health = Type.Object({
  status: described(text, "`healthy` or `degraded`."),
  issues: Type.Array(text, { description: "What is wrong, for people." }),
  mode: described(text, "`standalone` or `cluster`."),
  node_id: Type.Optional(described(text, "The node that answers (`node_…`).")),
  nodes: Type.Array(
    Type.Composite([Type.Object({ status: described(text, "`up`, `draining` or `silent`.") }), NodeDetails]),
    { description: "Nodes; callers who are not admins see states only." },
  ),
  leaders: Type.Optional(
    Type.Array(
      Type.Object({
        duty: described(text, "What only one node does at a time."),
        node_id: text,
        epoch: shape.number("Rises with each new leader of the duty."),
        lease_expires_at: instant,
      }),
      { description: "Which node has which duty." },
    ),
  ),
  secrets: Type.Optional(
    Type.Array(
      Type.Object({
        kind: described(
          text,
          "Which secret, as `POST /api/v1/cluster/rotate-token` names it, or `audit_key`.",
        ),
        version: shape.number("How often it was made anew, from 1."),
        rotated_at: described(instant, "When it was made or rotated last, RFC 3339."),
        previous_until: Type.Optional(
          described(instant, "Until when the one before is good, too; absent where none is."),
        ),
      }),
      { description: "Secrets of the installation and their rotations, never the secrets." },
    ),
  ),
  database: Type.Object(
    {
      engine: described(text, "`postgres` or `libsql`."),
      status: described(text, "`healthy` or `unhealthy`."),
      round_trip_ms: shape.number("How long a question to the store takes, in milliseconds."),
    },
    { description: "The database, as this node sees it." },
  ),
  bus: Type.Object(
    {
      kind: described(text, "`nats`, or `in-process` for one node alone."),
      status: described(text, "`connected` or `disconnected`."),
    },
    { description: "The message bus, as this node sees it." },
  ),
});
