import { explain, type Why } from "../why.ts";
import { docText, docTopics, isDocTopic, openServerDocs } from "./docs.ts";
import { asTool } from "./next.ts";

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
