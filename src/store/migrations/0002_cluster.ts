import type { StoreEngine } from "../store.ts";

/** What nodes know of each other. */
export const cluster = {
  version: 2,
  name: "cluster",
  compatible: true,
  statements: (_engine: StoreEngine): string[] => [
    // One row a duty, for ever: who leads it, and the fence of what its leaders write.
    `CREATE TABLE leaders (
      duty TEXT PRIMARY KEY, epoch BIGINT NOT NULL, node_id TEXT NOT NULL, lease_until BIGINT NOT NULL)`,
    // Forgotten after limits.nodeForgottenMs without a sign of life, by the duty `retention`.
    `CREATE TABLE nodes (
      id TEXT PRIMARY KEY, version TEXT NOT NULL, url TEXT NOT NULL, started_at BIGINT NOT NULL,
      heartbeat_at BIGINT NOT NULL, draining_at BIGINT, facts TEXT NOT NULL)`,
    // Secrets of the installation, sealed with its master key. Older versions stay as long as what they signed is believed.
    `CREATE TABLE keyring (
      kind TEXT NOT NULL, version BIGINT NOT NULL, sealed TEXT NOT NULL, fingerprint TEXT NOT NULL,
      created_at BIGINT NOT NULL, created_by TEXT NOT NULL, retired_at BIGINT,
      PRIMARY KEY (kind, version))`,
    // Outcomes of rotations, answered again to a repeated Idempotency-Key for limits.idempotencyKeptMs.
    `CREATE TABLE rotations (
      id TEXT PRIMARY KEY, org_id TEXT NOT NULL, idempotency_key TEXT, request_hash TEXT NOT NULL, kind TEXT NOT NULL,
      rotated_at BIGINT NOT NULL, actor_id TEXT NOT NULL, confirmed TEXT NOT NULL)`,
    "CREATE UNIQUE INDEX rotations_by_key ON rotations (org_id, idempotency_key) WHERE idempotency_key IS NOT NULL",
    "CREATE INDEX rotations_by_time ON rotations (rotated_at)",
  ],
};
