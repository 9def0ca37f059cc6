import { idempotencyKeyBytesMax } from "../../kit/limits.ts";
import { nodeIdBytes, ours, type Tables } from "./table.ts";

/** What the nodes of an installation share. */
export const tablesOfCluster = {
  installation: {
    holds: "facts of the installation by name: its id, which answers carry",
    scope: "installation",
    endsWith: "nothing: one row a fact",
    columns: "name TEXT PRIMARY KEY, value TEXT NOT NULL",
    texts: { name: ours },
    exported: "of the installation",
  },
  keyring: {
    holds: "sealed secrets of the installation",
    scope: "installation",
    endsWith: "24 hours after they were replaced, loop `cluster.forget`; keys of the audit stay",
    // Older versions stay as long as what they signed is believed.
    columns: `kind TEXT NOT NULL, version BIGINT NOT NULL, sealed TEXT NOT NULL, fingerprint TEXT NOT NULL,
      created_at BIGINT NOT NULL, created_by TEXT NOT NULL, retired_at BIGINT, PRIMARY KEY (kind, version)`,
    texts: { kind: ours },
    exported: "secrets of the installation",
  },
  leaders: {
    holds: "who leads which duty",
    scope: "installation",
    endsWith: "nothing: one row a duty",
    columns: `duty TEXT PRIMARY KEY, epoch BIGINT NOT NULL, node_id TEXT NOT NULL, lease_until BIGINT NOT NULL`,
    texts: { duty: ours },
    exported: "of the installation",
  },
  nodes: {
    holds: "nodes and their heartbeats",
    scope: "installation",
    endsWith: "an hour after the last heartbeat, loop `cluster.forget`",
    columns: `id TEXT PRIMARY KEY, version TEXT NOT NULL, url TEXT NOT NULL, started_at BIGINT NOT NULL,
      heartbeat_at BIGINT NOT NULL, draining_at BIGINT, facts TEXT NOT NULL`,
    texts: { id: nodeIdBytes },
    exported: "of the installation",
  },
  primary_server: {
    holds: "the server of PostgreSQL that the database was last written on, and its timeline",
    scope: "installation",
    endsWith: "nothing: one row",
    columns: `id TEXT PRIMARY KEY, system_identifier TEXT NOT NULL, timeline BIGINT NOT NULL,
      seen_at BIGINT NOT NULL`,
    texts: { id: ours },
    exported: "of the installation",
  },
  rotations: {
    holds: "rotations of secrets that nodes still take up",
    scope: "installation",
    endsWith: "24 hours after the rotation, loop `cluster.forget`",
    // Outcomes, answered again to a repeated Idempotency-Key.
    columns: `id TEXT PRIMARY KEY, org_id TEXT NOT NULL, idempotency_key TEXT, request_hash TEXT NOT NULL,
      kind TEXT NOT NULL, rotated_at BIGINT NOT NULL, actor_id TEXT NOT NULL, confirmed TEXT NOT NULL`,
    indexes: [
      "UNIQUE rotations_by_key (org_id, idempotency_key) WHERE idempotency_key IS NOT NULL",
      "rotations_by_time (rotated_at)",
    ],
    texts: { id: ours, idempotency_key: idempotencyKeyBytesMax },
    exported: "of the installation",
  },
} as const satisfies Tables;
