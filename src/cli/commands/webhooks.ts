import type { Group } from "../group.ts";

const sourceColumns = ["id", "name", "sourceType", "eventPrefix", "verifySecretSet", "createdAt"];
const deliveryColumns = ["id", "status", "eventName", "eventId", "createdAt", "error"];

/** One of these, by its id or name. */
const oneOf = (byName: string) => ({ takes: ["id"], byName, shows: { items: "" } });
const ofSource = oneOf("webhooks.list");
const ofEndpoint = oneOf("webhookEndpoints.list");

/** Webhooks in and out, and tools of agents. */
export const webhookGroups: readonly Group[] = [
  {
    name: "webhook",
    about: "Webhooks in: sources and their deliveries.",
    plain: [
      { name: "list", operation: "webhooks.list", shows: { columns: sourceColumns } },
      { name: "get", operation: "webhooks.get", ...ofSource },
      { name: "create", operation: "webhooks.create", shows: { items: "" } },
      { name: "update", operation: "webhooks.update", ...ofSource },
      {
        name: "deliveries",
        operation: "webhooks.listDeliveries",
        takes: ["sourceId"],
        byName: "webhooks.list",
        shows: { columns: deliveryColumns, items: "deliveries" },
      },
      { name: "delivery", operation: "webhooks.getDelivery", takes: ["id"], shows: { items: "" } },
      { name: "redeliver", operation: "webhooks.redeliver", takes: ["id"], shows: { items: "" } },
      {
        name: "send",
        operation: "webhooks.receive",
        takes: ["id"],
        byName: "webhooks.list",
        flags: { body: "payload" },
        about: "Sends a request to a source, as its provider would.",
      },
      { name: "test", operation: "webhooks.test", shows: { items: "" } },
      { name: "rotate-secret", operation: "webhooks.rotateSecret", ...ofSource },
      {
        ...{ name: "rotate-token", operation: "webhooks.rotateToken", ...ofSource },
        confirms: "Give source {id} another token? The address that its provider has ends at once.",
      },
      {
        name: "delete",
        operation: "webhooks.delete",
        takes: ["id"],
        byName: "webhooks.list",
        confirms: "Delete webhook source {id}?",
      },
    ],
    groups: [
      {
        name: "endpoint",
        about: "Webhooks out: events that are sent to URLs.",
        plain: [
          { name: "list", operation: "webhookEndpoints.list" },
          { name: "get", operation: "webhookEndpoints.get", ...ofEndpoint },
          { name: "create", operation: "webhookEndpoints.create", shows: { items: "" } },
          { name: "update", operation: "webhookEndpoints.update", ...ofEndpoint },
          { name: "pause", operation: "webhookEndpoints.pause", ...ofEndpoint },
          { name: "resume", operation: "webhookEndpoints.resume", ...ofEndpoint },
          { name: "rotate-secret", operation: "webhookEndpoints.rotateSecret", ...ofEndpoint },
          {
            name: "dead-letters",
            operation: "webhookEndpoints.listDeadLetters",
            takes: ["endpointId"],
            byName: "webhookEndpoints.list",
          },
          {
            name: "redeliver",
            operation: "webhookEndpoints.redeliver",
            takes: ["endpointId", "eventId"],
            byName: "webhookEndpoints.list",
          },
          {
            name: "discard",
            operation: "webhookEndpoints.discard",
            takes: ["endpointId", "eventId"],
            byName: "webhookEndpoints.list",
            confirms: "Discard the dead letter of {eventId}?",
          },
          {
            name: "delete",
            operation: "webhookEndpoints.delete",
            takes: ["id"],
            byName: "webhookEndpoints.list",
            confirms: "Delete endpoint {id}?",
          },
        ],
      },
    ],
  },
  {
    name: "tool",
    about: "Tools that agents register.",
    plain: [
      {
        name: "list",
        operation: "agentTools.list",
        shows: { columns: ["qualifiedName", "description", "requiredScopes"], items: "tools" },
      },
      { name: "invoke", operation: "agentTools.invoke", takes: ["toolName"], shows: { items: "" } },
    ],
  },
];

const alertColumns = ["id", "rule", "state", "count", "openedAt", "detail"];

/** Who is told when something goes wrong. */
export const alertGroups: readonly Group[] = [
  {
    name: "alert",
    about: "What alert rules found.",
    plain: [
      { name: "list", operation: "alerts.list", shows: { columns: alertColumns, items: "alerts" } },
      { name: "resolve", operation: "alerts.resolve", takes: ["id"], shows: { items: "" } },
    ],
    groups: [
      {
        name: "rule",
        about: "Rules that tell somebody when something goes wrong.",
        plain: [
          { name: "list", operation: "alerts.listRules" },
          { name: "get", operation: "alerts.getRule", takes: ["name"], shows: { items: "" } },
          {
            name: "put",
            operation: "alerts.putRule",
            takes: ["name"],
            shows: { items: "" },
            replaces: { found: "alerts.getRule", question: "Replace alert rule {name}?" },
          },
          { name: "silence", operation: "alerts.silenceRule", takes: ["name"], shows: { items: "" } },
          { name: "test", operation: "alerts.testRule", takes: ["name"], shows: { items: "results" } },
          {
            name: "delete",
            operation: "alerts.deleteRule",
            takes: ["name"],
            confirms: "Delete alert rule {name} with its alerts?",
          },
        ],
      },
    ],
  },
];
