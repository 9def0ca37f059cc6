import createClient from "openapi-fetch";
// Generated from the document of a running server into the folder that this file is copied to.
import type { paths } from "./api.d.ts";

/** What the tour needs of the server, and whom it tells what was answered. */
export interface Tour {
  url: string;
  adminKey: string;
  environment: string;
  onAnswer(answer: { method: string; path: string; status: number; body: unknown }): void;
}

/** The data of a call that must succeed. */
export async function must<T>(asked: Promise<{ data?: T; error?: unknown; response: Response }>): Promise<T> {
  const { data, error, response } = await asked;
  if (!response.ok) throw new Error(`${response.status} ${response.url} ${JSON.stringify(error)}`);
  return data as T;
}

export function clientOf({ url, onAnswer }: Tour, key: string) {
  const client = createClient<paths>({ baseUrl: url, headers: { Authorization: `Bearer ${key}` } });
  client.use({
    async onResponse({ request, response, schemaPath }) {
      const text = await response.clone().text();
      const isJson = response.headers.get("content-type")?.includes("json") === true && text !== "";
      const { method } = request;
      onAnswer({
        method,
        path: schemaPath,
        status: response.status,
        body: isJson ? JSON.parse(text) : undefined,
      });
    },
  });
  return client;
}

export type Client = ReturnType<typeof clientOf>;
