import type { StoreEngine } from "../store.ts";

/** Sources of inbound webhooks, and what providers sent to them. */
export const webhooks = {
  version: 34,
  name: "webhooks",
  compatible: true,
  statements: (_engine: StoreEngine): string[] => [
    // `sealed` is the secret that verifies, `prev_sealed` the one before until `prev_expires_at`.
    `CREATE TABLE webhook_sources (
      environment_id TEXT NOT NULL, id TEXT NOT NULL, name TEXT NOT NULL, event_prefix TEXT NOT NULL,
      source_type TEXT NOT NULL, verify_header TEXT NOT NULL, verify_algorithm TEXT NOT NULL, verify_config TEXT,
      metadata TEXT NOT NULL, sealed TEXT, prev_sealed TEXT, prev_expires_at BIGINT, token_hash TEXT NOT NULL,
      token_prefix TEXT NOT NULL, created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL,
      PRIMARY KEY (environment_id, id))`,
    `CREATE UNIQUE INDEX webhook_sources_id ON webhook_sources (id)`,
    `CREATE INDEX webhook_sources_prev ON webhook_sources (prev_expires_at) WHERE prev_expires_at IS NOT NULL`,
    // `body_whole` is 1 where `request_body` is the body byte for byte. `external_id` is the provider's own id, or empty.
    `CREATE TABLE webhook_deliveries (
      environment_id TEXT NOT NULL, id TEXT NOT NULL, source_id TEXT NOT NULL, external_id TEXT NOT NULL,
      status TEXT NOT NULL, signature_key TEXT NOT NULL, event_id TEXT, event_name TEXT, error TEXT,
      is_repeat BIGINT NOT NULL, redelivered_from TEXT, body_whole BIGINT NOT NULL, created_at BIGINT NOT NULL,
      request_headers TEXT NOT NULL, request_body TEXT NOT NULL, PRIMARY KEY (environment_id, id))`,
    `CREATE INDEX webhook_deliveries_list ON webhook_deliveries (environment_id, created_at, id)`,
    `CREATE INDEX webhook_deliveries_source ON webhook_deliveries (environment_id, source_id, created_at, id)`,
    `CREATE INDEX webhook_deliveries_known ON webhook_deliveries (environment_id, source_id, external_id, created_at)
      WHERE status = 'accepted' AND external_id <> ''`,
    `CREATE INDEX webhook_deliveries_age ON webhook_deliveries (created_at)`,
  ],
};
