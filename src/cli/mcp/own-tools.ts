import { type IndexRow, openFinding } from "../../docs/finding.ts";
import { explain, type Why } from "../why.ts";
import { asTool } from "./next.ts";
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
async function openServerDocs(url: string, signal: AbortSignal) {
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

export type Arguments = Readonly<Record<string, unknown>>;

/** What a tool that is more than one call needs of the server. */
export interface OwnAsker {
  url: string;
  ask: <Answer>(operation: string, input?: Arguments) => Promise<Answer>;
  signal: AbortSignal;
}

interface OwnTool {
  description: string;
  properties: Readonly<Record<string, { type: string; description: string; minimum?: number }>>;
  required: readonly string[];
  /** A text is said as it is. */
  call(given: Arguments, asker: OwnAsker): Promise<unknown>;
}

/** Texts of a tool's answer are bounded apart: pages go on by `offset`. */
export interface PagedText {
  text: string;
  from: number;
}

const textOf = (given: Arguments, name: string): string => {
  const value = given[name];
  if (typeof value !== "string" || value === "") throw new TypeError(`${name}: must be a text`);
  return value;
};

const sectionCharsMax = 600;

export const ownTools: Readonly<Record<string, OwnTool>> = {
  svc_get_docs: {
    description: `A page of documentation, from \`offset\` on: ${Object.keys(docTopics).join(", ")}, or the topic of what svc_search_docs found.`,
    properties: {
      topic: { type: "string", description: "Name of the page." },
      offset: { type: "integer", minimum: 0, description: "The first character." },
    },
    required: ["topic"],
    async call(given, { url, ask, signal }): Promise<PagedText> {
      const { topic, offset = 0 } = given;
      const from = Number(offset);
      if (isDocTopic(topic)) return { text: await docText(topic, () => ask("server.openapi", {})), from };
      const { pages, page } = await openServerDocs(url, signal);
      const text = page(textOf(given, "topic"));
      if (text === "")
        throw new TypeError(`topic: must be one of ${[...Object.keys(docTopics), ...pages].join(", ")}`);
      return { text, from };
    },
  },
  svc_search_docs: {
    description:
      "Sections of the documentation, found by words; `topic` opens a whole page with svc_get_docs.",
    properties: { query: { type: "string", description: "Words, such as `dedupe events`." } },
    required: ["query"],
    async call(given, { url, signal }) {
      const { search } = await openServerDocs(url, signal);
      const found = search(textOf(given, "query"));
      return found.map(({ text, ...row }) => ({ ...row, text: text.slice(0, sectionCharsMax) }));
    },
  },
  svc_why: {
    description:
      "Why a run failed or does not move: what happened (`because`), and what may be done about it (`next`).",
    properties: {
      run_id: {
        type: "string",
        description: "Id of the run, as svc_error_groups and svc_list_runs have it.",
      },
    },
    required: ["run_id"],
    async call(given, { ask }): Promise<Why> {
      const why = await explain(ask, textOf(given, "run_id"));
      return { ...why, next: why.next.map(asTool) };
    },
  },
};

export const isPage = (answer: unknown): answer is PagedText =>
  typeof answer === "object" && answer !== null && "from" in answer && "text" in answer;

export const describedOwnTools = () =>
  Object.entries(ownTools).map(([name, { description, properties, required }]) => ({
    ...{ name, description },
    inputSchema: {
      type: "object" as const,
      properties: {
        ...properties,
        ...(name === "svc_why" && { env: { type: "string", description: "Name or id of the environment." } }),
      },
      required: [...required],
      additionalProperties: false,
    },
    annotations: { readOnlyHint: true, destructiveHint: false, openWorldHint: false },
  }));
