import { pageText } from "./page-text.ts";

export const docTopics = {
  openapi: "The OpenAPI document of the server.",
  "push-protocol": "How push endpoints are called, and what else the wire says.",
  "function-authoring": "How functions and their steps are written.",
} as const;

export type DocTopic = keyof typeof docTopics;

export const isDocTopic = (text: unknown): text is DocTopic =>
  typeof text === "string" && Object.hasOwn(docTopics, text);

/** The page of a topic; the document is the server's own. */
export async function docText(topic: DocTopic, openApi: () => Promise<unknown>): Promise<string> {
  return topic === "openapi" ? JSON.stringify(await openApi()) : pageText(topic);
}
