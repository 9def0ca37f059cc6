import { sql } from "../../src/kit/sql.ts";
import type { TestServer } from "../support/server.ts";
import { type DoorIn, sendText, storedText } from "./doors-in.ts";

/** Bodies that a provider sends, and the metadata of a source. */
export async function webhookDoors(server: TestServer): Promise<DoorIn[]> {
  const made = await server.rpc("WebhookService", "CreateWebhookSource", { event_prefix: "door.hook" });
  const { id, ingest_token: token } = made.body as { id: string; ingest_token: string };
  return [
    {
      name: "POST webhooks",
      takes: () => true,
      async put({ text }) {
        const answer = await sendText(server, `/api/v1/webhooks/${id}?token=${token}`, text);
        if (answer === undefined) return undefined;
        const { event_id } = answer as { event_id: string };
        return storedText(server, sql`SELECT data AS text FROM events WHERE id = ${event_id}`);
      },
    },
    {
      name: "CreateWebhookSource metadata",
      takes: ({ text }) => text.startsWith("{") && text !== "{}" && text.length < 12_000,
      async put({ text }) {
        const body = `{"event_prefix":"door.meta","metadata":${text}}`;
        const answer = await sendText(server, "/svc.v1.WebhookService/CreateWebhookSource", body);
        if (answer === undefined) return undefined;
        const { id: source } = answer as { id: string };
        const { body: shown } = await server.rpc("WebhookService", "GetWebhookSource", { id: source });
        await server.rpc("WebhookService", "DeleteWebhookSource", { id: source });
        return JSON.stringify(shown.metadata ?? {});
      },
    },
  ];
}
