import { good, type Scene, type Stage, says } from "./scenes.ts";

/** Opens a dialog, fills its fields and presses the button that sends it. */
async function send(
  { hands, button, field }: Stage,
  { opens, fields, sends }: { opens: string; fields: Record<string, string>; sends: string },
): Promise<void> {
  await hands.press(button(opens));
  for (const [label, text] of Object.entries(fields)) await hands.fill(field(label), text);
  await hands.press(button(sends));
}

const heading = (stage: Stage, name: string) => stage.page.getByRole("heading", { level: 1, name }).waitFor();

const asked = JSON.stringify({ type: "object", properties: { order: { type: "integer" } } });

/** What is kept: streams, projections, schemas, keys, documents and secrets. */
export const dataScenes: readonly Scene[] = [
  {
    path: "streams",
    async make({ server, word, link }) {
      const first = { entityType: "cart", eventName: "cart.opened", data: {}, expectedVersion: "0" };
      good(await server.rpc("EntityStreamService", "AppendEvent", { entityId: word, ...first }));
      return link(word);
    },
    async act(stage) {
      const fields = {
        Entity: `${stage.word}-typed`,
        Type: "cart",
        Event: "cart.opened",
        "Data (JSON)": "{}",
      };
      await send(stage, { opens: "Append…", fields, sends: "Append" });
      await heading(stage, `${stage.word}-typed`);
    },
    found: async ({ server, word }) =>
      says(
        await server.rpc("EntityStreamService", "ReadStream", { entityId: `${word}-typed` }),
        "cart.opened",
      ),
  },
  {
    path: "projections",
    async make({ server, word, link }) {
      const folds = { name: word, events: ["order.placed"] };
      good(await server.rpc("ProjectionService", "RegisterProjection", folds));
      return link(word);
    },
    async act({ hands, link, button, page, word }) {
      await hands.press(link(word));
      await hands.press(button("Pause"));
      await page.getByRole("heading", { level: 1 }).getByText("Paused").waitFor();
    },
    found: async ({ server, word }) =>
      says(await server.rpc("ProjectionService", "GetProjection", { name: word }), "paused"),
  },
  {
    path: "schemas",
    async make({ server, word, link }) {
      const schema = { eventName: `${word}.came`, version: 1, schemaJson: asked };
      good(await server.rpc("EventSchemaService", "RegisterSchema", schema));
      return link(`${word}.came`);
    },
    async act(stage) {
      const fields = { Event: `${stage.word}.typed`, "JSON Schema": asked };
      await send(stage, { opens: "Register…", fields, sends: "Register" });
      await heading(stage, `${stage.word}.typed`);
    },
    found: async ({ server, word }) =>
      says(await server.rpc("EventSchemaService", "ListSchemas", {}), `${word}.typed`),
  },
  {
    path: "sql?query=SELECT%20count(*)%20AS%20many%20FROM%20events",
    async act({ hands, page, server, word, button }) {
      good(await server.rpc("SvcService", "Emit", { event: word }));
      const query = page.getByRole("textbox", { name: "Query" });
      await page.locator(".cm-editor").waitFor();
      await hands.fill(query, `SELECT name FROM events WHERE name = '${word}'`);
      await page.keyboard.press("Escape");
      await hands.press(button("Run"));
      await page.getByRole("region", { name: "Answer" }).getByRole("cell", { name: word }).waitFor();
    },
    found: async ({ server, word }) => says(await server.api(`/api/v1/events?name=${word}`), word),
  },
  {
    path: "kv",
    async make({ server, word, link }) {
      good(await server.api("/api/v1/kv/buckets", { body: { name: word } }));
      return link(word);
    },
    async act(stage) {
      const fields = { Name: `${stage.word}-typed`, Description: "made in the page" };
      await send(stage, { opens: "New bucket…", fields, sends: "Make" });
      await heading(stage, `${stage.word}-typed`);
      await send(stage, { opens: "Put a key…", fields: { Key: "users/ada", Value: "42" }, sends: "Put" });
      await stage.link("users/ada").first().waitFor();
    },
    found: async ({ server, word }) =>
      says(await server.api(`/api/v1/kv/buckets/${word}-typed/keys/users/ada`), btoa("42")),
  },
  {
    path: "config",
    async make({ server, word, link }) {
      good(await server.api(`/api/v1/config/${word}`, { body: { currency: "EUR" } }));
      return link(word);
    },
    async act(stage) {
      const fields = { Name: `${stage.word}-typed`, "Document (JSON)": '{"currency": "CHF"}' };
      await send(stage, { opens: "New document…", fields, sends: "Make" });
      await heading(stage, `${stage.word}-typed`);
    },
    found: async ({ server, word }) => says(await server.api(`/api/v1/config/${word}-typed`), "CHF"),
  },
  {
    path: "secrets",
    async make({ server, word, link }) {
      const name = `${word.toUpperCase()}_KEY`;
      good(await server.api("/api/v1/secrets", { body: { name, value: "of the API" } }));
      return link(name);
    },
    async act(stage) {
      const name = `${stage.word.toUpperCase()}_TYPED`;
      const fields = { Name: name, Value: "of the page", Description: "made in the page" };
      await send(stage, { opens: "New secret…", fields, sends: "Make" });
      await stage.page.getByText(name).first().waitFor();
    },
    found: async ({ server, word }) =>
      says(await server.api("/api/v1/secrets"), `${word.toUpperCase()}_TYPED`),
  },
  {
    path: "topics",
    async make({ server, word, link }) {
      good(await server.rpc("PubSubService", "Publish", { topic: word, data: { sku: 1 } }));
      return link(word);
    },
    async act(stage) {
      const fields = { Topic: `${stage.word}.typed`, "Data (JSON)": '{"sku": 2}' };
      await send(stage, { opens: "Publish…", fields, sends: "Publish" });
      await stage.page.getByText('{"sku":2}').waitFor();
    },
    found: async ({ server, word }) =>
      says(await server.rpc("PubSubService", "ListTopics", {}), `${word}.typed`),
  },
  {
    path: "groups",
    async make({ server, word, link }) {
      const group = { name: word, pattern: "topic:prices" };
      good(await server.rpc("PubSubService", "CreateConsumerGroup", group));
      return link(word);
    },
    async act(stage) {
      const fields = { Name: `${stage.word}-typed`, Pattern: "topic:prices" };
      await send(stage, { opens: "Create…", fields, sends: "Create" });
      await heading(stage, `${stage.word}-typed`);
    },
    found: async ({ server, word }) =>
      says(await server.rpc("PubSubService", "ListConsumerGroups", {}), `${word}-typed`),
  },
  {
    path: "webhooks-in",
    async make({ server, word, link }) {
      const source = { eventPrefix: word, name: word, preset: "generic-hmac", verifySecret: "of both" };
      good(await server.rpc("WebhookService", "CreateWebhookSource", source));
      return link(word);
    },
    async act(stage) {
      const { hands, button, page, word } = stage;
      const fields = { Name: `${word}-typed`, "Prefix of its events": `${word}t`, Secret: "of both" };
      await send(stage, { opens: "Add a source…", fields, sends: "Add" });
      await page.getByText(/webhooks\/whs_\w+\?token=ifwh_/).waitFor();
      await hands.press(button("I have kept it"));
      await heading(stage, `${word}-typed`);
    },
    found: async ({ server, word }) =>
      says(await server.rpc("WebhookService", "ListWebhookSources", {}), `${word}-typed`),
  },
  {
    path: "webhooks-out",
    async make({ server, word, link }) {
      const to = { name: word, url: "https://ledger.example.test/a", pattern: "events:ledger.*" };
      good(await server.rpc("WebhookEndpointService", "CreateWebhookEndpoint", to));
      return link(word);
    },
    async act(stage) {
      const { hands, button, page, word } = stage;
      const fields = {
        ...{ Name: `${word}-typed`, URL: "https://ledger.example.test/b", Pattern: "events:ledger.*" },
      };
      await send(stage, { opens: "Add an endpoint…", fields, sends: "Add" });
      await page.getByText(/^whsec_/).waitFor();
      await hands.press(button("I have kept it"));
      await heading(stage, `${word}-typed`);
    },
    found: async ({ server, word }) =>
      says(await server.rpc("WebhookEndpointService", "ListWebhookEndpoints", {}), `${word}-typed`),
  },
  {
    path: "tools",
    async make({ server, word, link }) {
      const tool = {
        name: "plan",
        description: "Plans",
        requiredScopes: [],
        timeoutMs: 1_000,
        inputSchemaJson: "{}",
      };
      const agent = { agentName: word, callbackUrl: "http://127.0.0.1:9/tools", tools: [tool] };
      good(await server.rpc("AgentToolsService", "RegisterTool", agent));
      return link(`${word}.plan`);
    },
    async act({ hands, page, link, button, word }) {
      await hands.press(link(`${word}.plan`));
      await hands.press(button(/^Remove .*…$/));
      await hands.press(page.getByRole("dialog").getByRole("button", { name: /^Remove/ }));
      await page.getByRole("heading", { name: "Agent tools" }).waitFor();
    },
    found: async ({ server, word }) => !says(await server.rpc("AgentToolsService", "ListTools", {}), word),
  },
];
