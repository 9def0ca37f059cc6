import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";

const root = join(import.meta.dir, "../../..");

const pages = {
  "push-protocol": {
    file: "proto/README.md",
    about: "How push endpoints are called, and what else the wire says.",
  },
  "function-authoring": { file: "src/sdk/README.md", about: "How functions and their steps are written." },
} as const;

export const docTopics = {
  openapi: "The OpenAPI document of the server.",
  "push-protocol": pages["push-protocol"].about,
  "function-authoring": pages["function-authoring"].about,
} as const;

export type DocTopic = keyof typeof docTopics;

export const isDocTopic = (text: unknown): text is DocTopic =>
  typeof text === "string" && Object.hasOwn(docTopics, text);

/** The page of a topic; the document is the server's own. */
export async function docText(topic: DocTopic, openApi: () => Promise<unknown>): Promise<string> {
  if (topic === "openapi") return JSON.stringify(await openApi());
  const file = join(root, pages[topic].file);
  if (!existsSync(file)) throw new Error(`${pages[topic].file} is not installed beside svc`);
  return readFileSync(file, "utf8");
}
