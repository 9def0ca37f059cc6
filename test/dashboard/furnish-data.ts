import { createHmac } from "node:crypto";
import type { TestServer } from "../support/server.ts";

/** A request to a source, as a provider sends it. */
export async function sendToSource(
  server: TestServer,
  source: { id: string; ingestToken: string },
  { body, signature }: { body: string; signature: string },
): Promise<Response> {
  return fetch(`${server.url}/api/v1/webhooks/${source.id}?token=${source.ingestToken}`, {
    method: "POST",
    headers: { "content-type": "application/json", "x-signature": signature, "x-event": "paid" },
    body,
  });
}

export const signed = (secret: string, body: string): string =>
  createHmac("sha256", secret).update(body).digest("hex");

/** A source whose requests are signed, and name their event in a header. */
export async function makeSource(server: TestServer, eventPrefix: string, secret: string, name = "") {
  const verifyConfig = { eventNamePath: "header:x-event" };
  const asked = { eventPrefix, name, preset: "generic-hmac", verifySecret: secret, verifyConfig };
  const { status, body } = await server.rpc("WebhookService", "CreateWebhookSource", asked);
  if (status !== 200) throw new Error(`no source: ${body.message}`);
  return body as { id: string; ingestToken: string };
}

const schemaOf = (more: object) =>
  JSON.stringify({
    type: "object",
    required: ["order"],
    properties: { order: { type: "integer" }, ...more },
  });

/** Something on each page about data; `text` stands wherever text may stand. */
export async function furnishData(server: TestServer, text = "for the till"): Promise<void> {
  const append = (expectedVersion: string, eventName: string, data: object) =>
    server.rpc("EntityStreamService", "AppendEvent", {
      ...{ entityId: "order-17", entityType: "order", eventName, data, expectedVersion },
    });
  await append("0", "order.opened", { order: 17, customer: text, items: [], [text]: 1 });
  await append("1", "order.filled", { items: [{ sku: "a-1", count: 2 }], total: 42 });
  await append("2", "order.paid", { paid: true, receipt: "r-9" });
  const snapshot = {
    entityId: "order-17",
    entityType: "order",
    entityVersion: "2",
    state: { total: 42, text },
  };
  await server.rpc("EntityStreamService", "CreateSnapshot", snapshot);
  for (const total of [12, 17, 9])
    await server.rpc("PubSubService", "Publish", { topic: "prices.changed", data: { sku: text, total } });
  await server.rpc("PubSubService", "CreateConsumerGroup", {
    ...{ name: "billing", pattern: "events:order.*", ackMode: "ACK_MODE_MANUAL" },
  });
  const register = (version: number, more: object, description: string) =>
    server.rpc("EventSchemaService", "RegisterSchema", {
      ...{ eventName: "order.checked", version, schemaJson: schemaOf(more), description },
    });
  await register(1, {}, text);
  await register(2, { total: { type: "number" }, [text]: { description: text } }, text);
  const source = await makeSource(server, "bank", "a secret of the bank", text);
  const body = JSON.stringify({ amount: 42, text });
  await sendToSource(server, source, { body, signature: signed("a secret of the bank", body) });
  await sendToSource(server, source, { body, signature: "0000" });
  await server.rpc("WebhookEndpointService", "CreateWebhookEndpoint", {
    ...{ name: text, url: "https://ledger.example.test/events", pattern: "events:order.*" },
  });
}

/** Where it is shown. */
export async function dataPaths(server: TestServer): Promise<{ name: string; path: string }[]> {
  const { sources } = (await server.rpc("WebhookService", "ListWebhookSources", {})).body;
  const source = sources[0].id as string;
  const asked = { sourceId: source, status: "rejected" };
  const { deliveries } = (await server.rpc("WebhookService", "ListWebhookDeliveries", asked)).body;
  const { endpoints } = (await server.rpc("WebhookEndpointService", "ListWebhookEndpoints", {})).body;
  return [
    { name: "streams", path: "streams" },
    { name: "stream", path: "streams/order-17?at=2" },
    { name: "sql", path: `sql?query=${encodeURIComponent("SELECT name, count(*) AS many FROM events")}` },
    { name: "topics", path: "topics" },
    { name: "topic", path: "topics/prices.changed" },
    { name: "groups", path: "groups" },
    { name: "group", path: "groups/default/billing" },
    { name: "schemas", path: "schemas" },
    { name: "schema", path: "schemas/order.checked" },
    { name: "sources", path: "webhooks-in" },
    { name: "source", path: `webhooks-in/${source}?delivery=${deliveries[0].id}` },
    { name: "verification", path: `webhooks-in/${source}?tab=verification` },
    { name: "endpoints", path: "webhooks-out" },
    { name: "endpoint", path: `webhooks-out/${endpoints[0].id}` },
  ];
}
