import type { StoreEngine } from "../store.ts";

/** Endpoints that events of the log are sent to. */
export const webhookEndpoints = {
  version: 35,
  name: "webhook_endpoints",
  compatible: true,
  statements: (engine: StoreEngine): string[] => {
    const hot =
      engine === "postgres"
        ? " WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000)"
        : "";
    return [
      // Everything up to `position` is delivered, a dead letter, or none of the endpoint's. `holder` sends until
      // `lease_until`; `fence` grows with each. `attempts` are of the event `failing_event_id`, first at `tried_since`.
      `CREATE TABLE webhook_endpoints (
        environment_id TEXT NOT NULL, id TEXT NOT NULL, name TEXT NOT NULL, url TEXT NOT NULL, pattern TEXT NOT NULL,
        filter TEXT NOT NULL, status TEXT NOT NULL, disabled_reason TEXT NOT NULL, sealed TEXT NOT NULL, prev_sealed TEXT,
        prev_expires_at BIGINT, position BIGINT NOT NULL, holder TEXT, fence BIGINT NOT NULL, lease_until BIGINT NOT NULL,
        due_at BIGINT NOT NULL, attempts BIGINT NOT NULL, failing_event_id TEXT, tried_since BIGINT, failing_since BIGINT,
        last_error TEXT, last_delivered_at BIGINT, stopped_at BIGINT, created_at BIGINT NOT NULL,
        updated_at BIGINT NOT NULL, PRIMARY KEY (environment_id, id))${hot}`,
      `CREATE INDEX webhook_endpoints_active ON webhook_endpoints (due_at) WHERE status = 'active'`,
      `CREATE INDEX webhook_endpoints_prev ON webhook_endpoints (prev_expires_at) WHERE prev_expires_at IS NOT NULL`,
      // `due_at` is set while a letter is to be sent again.
      `CREATE TABLE webhook_dead_letters (
        environment_id TEXT NOT NULL, endpoint_id TEXT NOT NULL, event_id TEXT NOT NULL, event_name TEXT NOT NULL,
        position BIGINT NOT NULL, attempts BIGINT NOT NULL, last_error TEXT NOT NULL, dead_at BIGINT NOT NULL,
        due_at BIGINT, PRIMARY KEY (environment_id, endpoint_id, event_id))`,
      `CREATE INDEX webhook_dead_letters_due ON webhook_dead_letters (environment_id, endpoint_id, due_at)
        WHERE due_at IS NOT NULL`,
      `CREATE INDEX webhook_dead_letters_age ON webhook_dead_letters (dead_at)`,
    ];
  },
};
