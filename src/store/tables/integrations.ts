import { functionIdBytesMax } from "../../kit/limits.ts";
import { changing, ours, restless, type Tables } from "./table.ts";

/** Webhooks of both directions, tools of agents, and alerts. */
export const tablesOfIntegrations = {
  webhook_sources: {
    holds: "sources of inbound webhooks with their sealed secrets",
    endsWith: "their owner deletes them; at most 500 an environment",
    // `sealed` is the secret that verifies, `prev_sealed` the one before until `prev_expires_at`.
    columns: `environment_id TEXT NOT NULL, id TEXT NOT NULL, name TEXT NOT NULL, event_prefix TEXT NOT NULL,
      source_type TEXT NOT NULL, verify_header TEXT NOT NULL, verify_algorithm TEXT NOT NULL,
      verify_config TEXT, metadata TEXT NOT NULL, sealed TEXT, prev_sealed TEXT, prev_expires_at BIGINT,
      token_hash TEXT NOT NULL, token_prefix TEXT NOT NULL, created_at BIGINT NOT NULL,
      updated_at BIGINT NOT NULL, PRIMARY KEY (environment_id, id)`,
    indexes: [
      "UNIQUE webhook_sources_id (id)",
      "webhook_sources_prev (prev_expires_at) WHERE prev_expires_at IS NOT NULL",
    ],
    purge: { at: 133 },
    texts: { id: ours },
    exported: {
      in: "webhooks",
      leaves: "id name event_prefix source_type verify_header verify_algorithm created_at updated_at",
      json: "verify_config metadata",
      stays: "sealed prev_sealed prev_expires_at token_hash token_prefix",
    },
  },
  webhook_deliveries: {
    holds: "what providers sent to sources of inbound webhooks",
    endsWith: "`SVC_WEBHOOK_DELIVERY_DAYS`, loop `webhooks.forget`",
    // `body_whole` is 1 where `request_body` is the body byte for byte. `external_id` is the provider's own
    // id, or empty. Ids begin with their time: lists go by them.
    columns: `environment_id TEXT NOT NULL, id TEXT NOT NULL, source_id TEXT NOT NULL,
      external_id TEXT NOT NULL, status TEXT NOT NULL, signature_key TEXT NOT NULL, event_id TEXT,
      event_name TEXT, error TEXT, is_repeat BIGINT NOT NULL, redelivered_from TEXT,
      body_whole BIGINT NOT NULL, created_at BIGINT NOT NULL, request_headers TEXT NOT NULL,
      request_body TEXT NOT NULL, PRIMARY KEY (environment_id, id)`,
    indexes: [
      "webhook_deliveries_age (created_at)",
      "webhook_deliveries_source (environment_id, source_id, id)",
      "webhook_deliveries_by_event (environment_id, event_id) WHERE event_id IS NOT NULL",
    ],
    purge: { at: 134, under: "webhook_sources" },
    texts: { id: ours, source_id: ours },
    exported: "bodies with signatures, which are kept for days",
  },
  webhook_endpoints: {
    holds: "endpoints of outbound webhooks, how far each is, and who sends to it",
    endsWith: "their owner deletes them; at most 100 an environment",
    // Everything up to `position` is delivered, a dead letter, or none of the endpoint's. `holder` sends
    // until `lease_until`; `fence` grows with each. `attempts` are of the event `failing_event_id`, first at
    // `tried_since`.
    columns: `environment_id TEXT NOT NULL, id TEXT NOT NULL, name TEXT NOT NULL, url TEXT NOT NULL,
      pattern TEXT NOT NULL, filter TEXT NOT NULL, status TEXT NOT NULL, disabled_reason TEXT NOT NULL,
      sealed TEXT NOT NULL, prev_sealed TEXT, prev_expires_at BIGINT, position BIGINT NOT NULL, holder TEXT,
      fence BIGINT NOT NULL, lease_until BIGINT NOT NULL, due_at BIGINT NOT NULL, attempts BIGINT NOT NULL,
      failing_event_id TEXT, tried_since BIGINT, failing_since BIGINT, last_error TEXT,
      last_delivered_at BIGINT, stopped_at BIGINT, created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL,
      PRIMARY KEY (environment_id, id)`,
    indexes: [
      "webhook_endpoints_active (due_at) WHERE status = 'active'",
      "webhook_endpoints_prev (prev_expires_at) WHERE prev_expires_at IS NOT NULL",
    ],
    room: restless,
    purge: { at: 131 },
    texts: { id: ours },
    exported: {
      in: "webhooks",
      leaves:
        "id name url pattern filter status disabled_reason last_error position last_delivered_at created_at updated_at",
      stays:
        "sealed prev_sealed prev_expires_at holder fence lease_until due_at attempts failing_event_id tried_since failing_since stopped_at",
    },
  },
  webhook_dead_letters: {
    holds: "events that an endpoint of outbound webhooks did not take",
    endsWith:
      "they are redelivered or discarded, their endpoint is deleted, else after 30 days, loop `webhooks.forget`",
    // `due_at` is set while a letter is to be sent again.
    columns: `environment_id TEXT NOT NULL, endpoint_id TEXT NOT NULL, event_id TEXT NOT NULL,
      event_name TEXT NOT NULL, position BIGINT NOT NULL, attempts BIGINT NOT NULL, last_error TEXT NOT NULL,
      dead_at BIGINT NOT NULL, due_at BIGINT, PRIMARY KEY (environment_id, endpoint_id, event_id)`,
    indexes: [
      "webhook_dead_letters_due (environment_id, endpoint_id, due_at) WHERE due_at IS NOT NULL",
      "webhook_dead_letters_age (dead_at)",
      "webhook_dead_letters_list (environment_id, endpoint_id, position, event_id)",
    ],
    purge: { at: 132, under: "webhook_endpoints" },
    texts: { endpoint_id: ours },
    exported: "what this installation could not send",
  },
  agents: {
    holds: "agents whose tools are called, with their URLs and sealed secrets",
    endsWith: "they are unregistered; at most 100 an environment",
    // `sealed` is the secret that signs calls to the agent.
    columns: `environment_id TEXT NOT NULL, name TEXT NOT NULL, callback_url TEXT NOT NULL,
      sealed TEXT NOT NULL, registered_at BIGINT NOT NULL, PRIMARY KEY (environment_id, name)`,
    purge: { at: 135 },
    texts: { name: 100 },
    exported: "they have secrets, and register when they start",
  },
  agent_tools: {
    holds: "tools of agents, with the schemas of their inputs",
    endsWith: "their agent registers again or is unregistered; at most 1,000 an environment",
    // `bytes` are those of its schema and description.
    columns: `environment_id TEXT NOT NULL, qualified_name TEXT NOT NULL, agent_name TEXT NOT NULL,
      description TEXT NOT NULL, input_schema TEXT NOT NULL, required_scopes TEXT NOT NULL,
      timeout_ms BIGINT NOT NULL, bytes BIGINT NOT NULL, PRIMARY KEY (environment_id, qualified_name)`,
    indexes: ["agent_tools_agent (environment_id, agent_name)"],
    purge: { at: 136, under: "agents" },
    texts: { qualified_name: 201, agent_name: 100 },
    exported: "agents register them when they start",
  },
  alert_rules: {
    holds: "rules that say when somebody is told, and whom",
    endsWith: "their owner deletes them; at most 100 an environment",
    // `bounds`: JSON of the numbers of its condition. `targets`: JSON of them as they are shown, `sealed`:
    // as they are. `seen`: JSON of what was counted at the last look. `look_at`: when it is looked at next.
    columns: `environment_id TEXT NOT NULL, name TEXT NOT NULL, condition TEXT NOT NULL, function_id TEXT,
      bounds TEXT NOT NULL, targets TEXT NOT NULL, sealed TEXT NOT NULL, repeat_after_ms BIGINT NOT NULL,
      resolve_after_ms BIGINT NOT NULL, silenced_until BIGINT, seen TEXT, look_at BIGINT NOT NULL,
      created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL, PRIMARY KEY (environment_id, name)`,
    indexes: ["alert_rules_by_look (look_at)"],
    room: changing,
    purge: { at: 139 },
    texts: { name: 100 },
    exported: "their targets are secrets",
  },
  alerts: {
    holds: "what rules found, and what became of it",
    endsWith: "30 days after their end, loop `alerts.forget`, or their rule is deleted",
    // `subject`: the thing it is about, empty for the environment. `seen_at`: when it was found last.
    // `ended_at`: what it tells is over; one that a person resolved lasts until then.
    columns: `environment_id TEXT NOT NULL, id TEXT NOT NULL, rule TEXT NOT NULL, condition TEXT NOT NULL,
      subject TEXT NOT NULL, detail TEXT NOT NULL, count BIGINT NOT NULL, opened_at BIGINT NOT NULL,
      seen_at BIGINT NOT NULL, told_at BIGINT, resolved_at BIGINT, resolved_by TEXT, ended_at BIGINT,
      PRIMARY KEY (environment_id, id)`,
    indexes: [
      "UNIQUE alerts_open (environment_id, rule, subject) WHERE ended_at IS NULL",
      "alerts_ended (ended_at) WHERE ended_at IS NOT NULL",
    ],
    room: changing,
    purge: { at: 138, under: "alert_rules" },
    texts: { id: ours, rule: 100, subject: functionIdBytesMax },
    exported: "what this installation found",
  },
  alert_deliveries: {
    holds: "what each target of an alert was told last, or is still to be told",
    endsWith: "their alert is deleted",
    // One an alert and target: what is newer takes the place of what was not taken yet. `target`: the hash
    // of where it goes; `number` counts what it was told. `state`: `waiting`, `sent` or `given_up`.
    columns: `environment_id TEXT NOT NULL, alert_id TEXT NOT NULL, target TEXT NOT NULL,
      shown TEXT NOT NULL, kind TEXT NOT NULL, number BIGINT NOT NULL, state TEXT NOT NULL,
      attempts BIGINT NOT NULL, due_at BIGINT NOT NULL, last_error TEXT, sent_at BIGINT,
      PRIMARY KEY (environment_id, alert_id, target)`,
    indexes: ["alert_deliveries_waiting (environment_id, target, due_at, alert_id) WHERE state = 'waiting'"],
    room: changing,
    purge: { at: 137, under: "alerts" },
    texts: { alert_id: ours, target: ours },
    exported: "what this installation told",
  },
} as const satisfies Tables;
