import { Type } from "@sinclair/typebox";

const text = Type.String();
const instant = Type.String({ format: "date-time" });

/** Shown to operators of the installation; other callers see how many nodes are in each state. */
const NodeDetails = Type.Partial(
  Type.Object({
    id: text,
    version: text,
    url: text,
    started_at: instant,
    last_heartbeat: instant,
    bus_connected: Type.Boolean(),
    clock_offset_ms: Type.Number(),
    clock_uncertainty_ms: Type.Number(),
    cpu_percent: Type.Number(),
    memory_bytes: Type.Number(),
    loops: Type.Array(
      Type.Object({
        name: text,
        last_progress: Type.Union([instant, Type.Null()]),
        failures: Type.Number(),
      }),
    ),
  }),
);

export const Health = Type.Object({
  status: text,
  issues: Type.Array(text),
  mode: text,
  node_id: Type.Optional(text),
  nodes: Type.Array(Type.Composite([Type.Object({ status: text }), NodeDetails])),
  leaders: Type.Optional(
    Type.Array(Type.Object({ duty: text, node_id: text, epoch: Type.Number(), lease_expires_at: instant })),
  ),
  database: Type.Object({ engine: text, status: text, round_trip_ms: Type.Number() }),
  bus: Type.Object({ kind: text, status: text }),
});
