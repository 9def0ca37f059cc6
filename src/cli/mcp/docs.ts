import { type IndexRow, openFinding } from "../../docs/finding.ts";
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

const pageOf = ({ href }: IndexRow): string => href.replace(/^\/docs\/([^#]*).*$/, "$1");

/** As the index says it, which a node needs a quarter of a second to make ready. */
function docsOf(index: string) {
  const rows: IndexRow[] = JSON.parse(index);
  const find = openFinding(rows);
  return {
    pages: [...new Set(rows.map(pageOf))],
    /** What says most about these words, best first. */
    search: (words: string) =>
      find(words).map((row) => ({ topic: pageOf(row), heading: row.heading, text: row.text })),
    page: (name: string): string =>
      rows
        .filter((row) => pageOf(row) === name)
        .map(({ heading, text }) => `## ${heading}\n${text}`)
        .join("\n\n"),
  };
}

/** The last one that was read, by its address, which has the hash of its content. */
let known: { address: string; docs: ReturnType<typeof docsOf> } | undefined;

/** The documentation that a server shows at `/docs`: its sections, found by words. */
export async function openServerDocs(url: string, signal: AbortSignal) {
  const read = async (path: string) => {
    const answer = await fetch(new URL(path, url), { signal });
    if (!answer.ok) throw new Error(`${path}: the server answered ${answer.status}`);
    return answer.text();
  };
  const index = /data-index="([^"]+)"/.exec(await read("/docs"))?.[1];
  if (index === undefined) throw new Error("the server has no documentation to search");
  const address = new URL(index, url).href;
  if (known?.address === address) return known.docs;
  const docs = docsOf(await read(index));
  known = { address, docs };
  return docs;
}
