import type { CallOptions } from "./server.ts";

/** What a caller sends to make a row of a table. */
export interface Making {
  /** The column of the table's key that the caller names; left out where the key is an id of ours. */
  named?: string;
  /** `name` is what the caller names it; `marker` stands wherever else the row holds text. */
  ask(texts: { name: string; marker: string }): { path: string } & CallOptions;
}

/**
 * Of every table that callers make rows of in an environment: how. `made-under-deleted` makes it while its
 * environment is deleted, `intruder` looks for its marker from another org, `key-bounds` gives it names that
 * are too long. Later ones may need earlier ones.
 */
export const made: Record<string, Making> = {
  functions: {
    named: "id",
    ask: ({ name, marker }) => ({
      path: "/svc.v1.SvcService/RegisterFunction",
      body: { id: name, name: marker, triggers: [{ event: "same.event" }] },
    }),
  },
  run_attribute_names: {
    named: "name",
    ask: ({ name, marker }) => ({
      path: "/svc.v1.SvcService/RegisterFunction",
      body: { id: "with-attributes", name: marker, attributes: [{ name, path: marker }, { name: marker }] },
    }),
  },
  workers: {
    named: "id",
    ask: ({ name, marker }) => ({
      path: `/api/v1/workers/${encodeURIComponent(name)}/register`,
      body: { function_ids: ["same", marker], deployment: `build-${marker}` },
    }),
  },
  delayed_events: {
    ask: ({ marker }) => ({
      path: "/svc.v1.SvcService/Emit",
      body: { event: `${marker}.delayed`, delayMs: 3_600_000 },
    }),
  },
  secrets: {
    named: "name",
    ask: ({ name, marker }) => ({ path: "/api/v1/secrets", body: { name, value: "v", description: marker } }),
  },
  streams: {
    named: "entity_id",
    ask: ({ name, marker }) => ({
      path: "/svc.v1.EntityStreamService/AppendEvent",
      body: { entityId: name, entityType: marker, eventName: "same.appended", data: { marker } },
    }),
  },
  projections: {
    named: "name",
    ask: ({ name, marker }) => ({
      path: "/svc.v1.ProjectionService/RegisterProjection",
      body: { name, events: ["same.event", `${marker}.*`] },
    }),
  },
  kv_buckets: {
    named: "name",
    ask: ({ name, marker }) => ({ path: "/api/v1/kv/buckets", body: { name, description: marker } }),
  },
  event_schemas: {
    named: "event_name",
    ask: ({ name, marker }) => ({
      path: "/svc.v1.EventSchemaService/RegisterSchema",
      body: { eventName: name, schemaJson: JSON.stringify({ title: marker }), description: marker },
    }),
  },
  webhook_sources: {
    ask: ({ name, marker }) => ({
      path: "/svc.v1.WebhookService/CreateWebhookSource",
      body: { name, eventPrefix: "same.hook", metadata: { marker } },
    }),
  },
  webhook_endpoints: {
    ask: ({ name, marker }) => ({
      path: "/svc.v1.WebhookEndpointService/CreateWebhookEndpoint",
      body: { name, url: `https://${marker}.example.test/`, pattern: `${marker}.never.*` },
    }),
  },
  alert_rules: {
    named: "name",
    ask: ({ name, marker }) => ({
      path: "/svc.v1.AlertService/PutAlertRule",
      body: {
        ...{ name, condition: "dead_letter" },
        targets: [{ type: "webhook", url: `https://${marker}.example.test/` }],
      },
    }),
  },
  agents: {
    named: "name",
    ask: ({ name, marker }) => ({
      path: "/svc.v1.AgentToolsService/RegisterTool",
      body: {
        agentName: name,
        callbackUrl: `https://${marker}.example.test/`,
        tools: [{ name: "same", description: marker }],
      },
    }),
  },
  repairs: {
    ask: ({ name, marker }) => ({
      path: "/svc.v1.RepairService/StartRepair",
      body: { action: "cancel", filter: { functionId: name.slice(0, 200) }, reason: marker },
    }),
  },
  consumer_groups: {
    named: "name",
    ask: ({ name, marker }) => ({
      path: "/svc.v1.PubSubService/CreateConsumerGroup",
      body: { name, pattern: `topic:${marker}.>` },
    }),
  },
};
