import { createHash } from "node:crypto";
import { Server } from "@modelcontextprotocol/sdk/server/index.js";
import {
  CallToolRequestSchema,
  type CallToolResult,
  ErrorCode,
  GetPromptRequestSchema,
  type GetPromptResult,
  ListPromptsRequestSchema,
  ListResourcesRequestSchema,
  ListToolsRequestSchema,
  McpError,
  type Prompt,
  ReadResourceRequestSchema,
} from "@modelcontextprotocol/sdk/types.js";
import { shownText } from "../../kit/log-lines.ts";
import { redactText } from "../../kit/redact.ts";
import { suggestion } from "../../kit/setting.ts";
import { version } from "../../kit/version.ts";
import { SvcError } from "../../sdk/index.ts";
import { call, type EmittedShown, startedNothing } from "../call.ts";
import { connect, type Target } from "../connection.ts";
import {
  mcpAgentToolsMax,
  mcpAnswerCharsMax,
  mcpCallMsMax,
  mcpListDefault,
  mcpListedValueBytes,
  mcpListMax,
  mcpValueBytes,
} from "../limits.ts";
import { choiceOf, operationNamed } from "../operations.ts";
import { boundedText } from "./answer.ts";
import { nextLine } from "./next.ts";
import {
  type Arguments,
  type DocTopic,
  describedOwnTools,
  docText,
  docTopics,
  isDocTopic,
  isPage,
  type OwnAsker,
  ownTools,
  type PagedText,
} from "./own-tools.ts";
import { describedTool, fieldsOf, type McpTool, mcpTools } from "./tools.ts";

interface SvcPrompt extends Omit<Prompt, "name"> {
  steps: string;
}

const about = (description: string) => [{ name: "about", description, required: false }];

const prompts: Readonly<Record<string, SvcPrompt>> = {
  find_out_why: {
    description: "Find out why runs fail or do not move.",
    arguments: about("What was seen, such as `orders fail since noon`."),
    steps: `1. svc_error_groups: which failures look alike, since when, of which function; svc_list_runs with status failed or waiting shows single runs.
2. svc_why with one run of the largest group: what failed and what may be done. svc_get_run, svc_get_run_steps and svc_run_logs have the input, the steps and what the handler wrote.
3. Compare with a run that completed: what differs in input, version or time? svc_search_docs explains words and errors.
4. Say the cause, how many runs it concerns, and the smallest repair. Change nothing yet.`,
  },
  repair: {
    description: "Repair failed runs, after a look at what would be done.",
    arguments: about("Which runs, and what is wrong with them."),
    steps: `1. Know the cause first (prompt find_out_why). Runs fail again while their code or what they call is broken.
2. One run: svc_preview_resume says which steps would run again; svc_resume_run lets it go on. Where a step's output is wrong, svc_patch_step replaces it first, with a reason.
3. Many runs: svc_preview_repair with an action and a filter says how many; show that to the person, then svc_start_repair with the same filter, a reason and confirm.
4. svc_get_repair until it is done, then svc_list_runs: say what completed and what failed again.`,
  },
};

const listedPrompts = (): Prompt[] =>
  Object.entries(prompts).map(([name, { steps: _steps, ...prompt }]) => ({ name, ...prompt }));

/** Undefined where there is none of that name. */
function promptOf(name: string, given: Readonly<Record<string, string>>): GetPromptResult | undefined {
  if (!Object.hasOwn(prompts, name)) return undefined;
  const { description, steps } = prompts[name]!;
  const asked = given.about ? `What is known: ${given.about}\n\n` : "";
  const text = `${description}\n\n${asked}${steps}`;
  return { description, messages: [{ role: "user", content: { type: "text", text } }] };
}

export interface McpOptions {
  target: Target;
  allowsWrites: boolean;
  /** Tools of agents are not listed. */
  isStatic: boolean;
}

class ToolRefusal extends Error {}

const onlyReads = "and this connection only reads: svc mcp --allow-writes, or /mcp?allow-writes=true";

/** What a tool answers, and what to call after it. */
interface Said {
  text: string;
  next?: string | undefined;
}

function pageFrom({ text, from }: PagedText): string {
  const page = text.slice(from, from + mcpAnswerCharsMax);
  const end = from + page.length;
  return end < text.length ? `${page}\n… go on with offset ${end} of ${text.length}` : page;
}

const agentPrefix = "agent_";

interface AgentTool {
  qualifiedName: string;
  description?: string;
  inputSchemaJson?: string;
}

function inputSchemaOf({ inputSchemaJson = "{}" }: AgentTool): { type: "object"; [key: string]: unknown } {
  try {
    const schema: unknown = JSON.parse(inputSchemaJson);
    if (typeof schema === "object" && schema !== null) return { ...schema, type: "object" };
  } catch {
    // An agent may have registered anything; its tool takes any object then.
  }
  return { type: "object" };
}

const plainNameOf = ({ qualifiedName }: AgentTool): string =>
  agentPrefix + qualifiedName.replaceAll(/[^A-Za-z0-9_-]/g, "_");

const hashChars = 8;
const hashedNameOf = (tool: AgentTool): string =>
  `${plainNameOf(tool)}_${createHash("sha256").update(tool.qualifiedName).digest("hex").slice(0, hashChars)}`;

/** Two tools of one name: the one that is listed first would be called in place of the other. */
const unshared = (tools: readonly AgentTool[], nameOf: (tool: AgentTool) => string): Set<string> => {
  const counts = Map.groupBy(tools, nameOf);
  return new Set([...counts].flatMap(([name, { length }]) => (length === 1 ? [name] : [])));
};

/** By name. Two tools of one name get a hash of their full names; what is still ambiguous is left out. */
function namedTools(tools: readonly AgentTool[]): [name: string, tool: AgentTool][] {
  const plain = unshared(tools, plainNameOf);
  const nameOf = (tool: AgentTool) => (plain.has(plainNameOf(tool)) ? plainNameOf(tool) : hashedNameOf(tool));
  const names = unshared(tools, nameOf);
  return tools.flatMap((tool) => (names.has(nameOf(tool)) ? [[nameOf(tool), tool]] : []));
}

/** What an MCP client sees of one server, as one caller. */
class McpTools {
  readonly #options: McpOptions;

  constructor(options: McpOptions) {
    this.#options = options;
  }

  get #visible(): readonly McpTool[] {
    return mcpTools.filter(({ writes }) => !writes || this.#options.allowsWrites);
  }

  async #agentTools(signal: AbortSignal): Promise<[name: string, tool: AgentTool][]> {
    const { isStatic, allowsWrites } = this.#options;
    if (isStatic || !allowsWrites) return [];
    try {
      const { tools = [] } = await this.#ask<{ tools?: AgentTool[] }>(
        "agentTools.list",
        {},
        undefined,
        signal,
      );
      return namedTools(tools).slice(0, mcpAgentToolsMax);
    } catch (error) {
      // Without the right to see tools of agents, or without a server, the others are listed all the same.
      if (error instanceof SvcError) return [];
      throw error;
    }
  }

  #ask<Answer>(
    operation: string,
    input: Arguments,
    env: string | undefined,
    signal: AbortSignal,
  ): Promise<Answer> {
    const { target } = this.#options;
    const connection = connect({ ...target, environment: env ?? target.environment }, mcpCallMsMax);
    return call<Answer>(connection, operationNamed(operation), input, signal);
  }

  async list(signal: AbortSignal) {
    const agents = await this.#agentTools(signal);
    return [
      ...describedOwnTools(),
      ...this.#visible.map(describedTool),
      ...agents.map(([name, tool]) => ({
        name,
        description: shownText(tool.description || `Tool ${tool.qualifiedName} of an agent.`),
        inputSchema: inputSchemaOf(tool),
        annotations: { readOnlyHint: false, destructiveHint: true, openWorldHint: true },
      })),
    ];
  }

  async docs(topic: DocTopic, signal: AbortSignal): Promise<string> {
    return docText(topic, () => this.#ask("server.openapi", {}, undefined, signal));
  }

  async call(name: string, given: Arguments, signal: AbortSignal): Promise<Said> {
    const { env } = given;
    if (env !== undefined && typeof env !== "string") throw new ToolRefusal("env: must be a text");
    if (Object.hasOwn(ownTools, name)) {
      const { target } = this.#options;
      const ask: OwnAsker["ask"] = (operation, input = {}) => this.#ask(operation, input, env, signal);
      const answer = await ownTools[name]!.call(given, { url: target.url, ask, signal });
      return isPage(answer) ? { text: pageFrom(answer) } : this.#said(name, answer);
    }
    if (name.startsWith(agentPrefix)) return { text: await this.#callAgent(name, given, signal) };
    const tool = mcpTools.find((one) => one.name === name);
    if (!tool)
      throw new ToolRefusal(
        `unknown tool ${name}${suggestion(name, [
          ...Object.keys(ownTools),
          ...mcpTools.map((one) => one.name),
        ])}`,
      );
    if (tool.writes && !this.#options.allowsWrites)
      throw new ToolRefusal(`${name} changes things, ${onlyReads}`);
    if (tool.destroys && given.confirm !== true)
      throw new ToolRefusal(`${name} cannot be taken back: confirm must be true`);
    if (tool.needsEnvironment && !env)
      throw new ToolRefusal("env: is needed: the name or id of the environment");
    const input = inputFor(tool, given);
    const answer = await this.#ask(tool.operation, input, env, signal).catch((error) => {
      const isMissing = error instanceof SvcError && error.status === 404;
      if (!isMissing || tool.creates === undefined) throw error;
      return this.#ask(tool.creates, input, env, signal);
    });
    const said = this.#said(name, answer, tool.drops);
    if (tool.operation !== "events.emit") return said;
    const why = startedNothing(answer as EmittedShown, input.event, "svc_list_functions");
    return why === undefined ? said : { ...said, text: `${said.text}\n${why}` };
  }

  #said(name: string, answer: unknown, drops?: readonly string[]): Said {
    const { allowsWrites } = this.#options;
    return {
      text: boundedText(answer, drops),
      next: nextLine(name, answer, { allowsWrites, now: new Date() }),
    };
  }

  async #callAgent(name: string, given: Arguments, signal: AbortSignal): Promise<string> {
    if (!this.#options.allowsWrites) throw new ToolRefusal(`${name} may change things, ${onlyReads}`);
    const [, tool] = (await this.#agentTools(signal)).find(([one]) => one === name) ?? [];
    if (!tool) throw new ToolRefusal(`no agent has registered ${name}`);
    const input = { toolName: tool.qualifiedName, input: given };
    return boundedText(await this.#ask("agentTools.invoke", input, undefined, signal));
  }
}

/** Messages have another field for JSON that is no object. */
const twinFor = ({ operation }: McpTool, name: string, value: unknown): string | undefined => {
  if (typeof value === "object" && value !== null && !Array.isArray(value)) return undefined;
  return operationNamed(operation).fields.find((field) => field.name === `${name}Value`)?.name;
};

/** The input of the tool's operation; what the tool does not have is refused, a page is bounded. */
function inputFor(tool: McpTool, given: Arguments): Arguments {
  const fields = fieldsOf(tool);
  const input: Record<string, unknown> = {};
  const known = [...fields.map(({ name }) => name), "env", "confirm"];
  for (const [name, value] of Object.entries(given)) {
    const found = fields.find((one) => one.name === name);
    if (!found && !known.includes(name))
      throw new ToolRefusal(`${name}: unknown field${suggestion(name, known)}`);
    if (!found) continue;
    const { field } = found;
    const choices = field.choices ?? [];
    input[twinFor(tool, field.name, value) ?? field.name] =
      field.kind === "choice" && typeof value === "string" ? (choiceOf(choices, value) ?? value) : value;
  }
  const missing = (tool.needs ?? []).find((name) => given[name] === undefined);
  if (missing !== undefined) throw new ToolRefusal(`${missing}: is needed`);
  if (!tool.writes && fields.some(({ field }) => field.name === "limit"))
    input.limit = Math.min(Number(input.limit ?? mcpListDefault) || mcpListDefault, mcpListMax);
  const cut = fields.find(({ name }) => name === "max_value_bytes")?.field.name;
  if (!tool.writes && cut !== undefined)
    input[cut] ??= input.limit === undefined ? mcpValueBytes : mcpListedValueBytes;
  return input;
}

const uriOf = (topic: string): string => `svc://docs/${topic}`;

/** Clients show it on a terminal, too. */
const result = ({ text, next }: Said, isError = false): CallToolResult => ({
  content: [text, ...(next === undefined ? [] : [next])].map((one) => ({
    type: "text",
    text: shownText(one),
  })),
  ...(isError && { isError }),
});

const messageOf = (error: unknown): string => {
  if (error instanceof SvcError) return `${error.code}: ${error.message}`;
  return error instanceof Error ? error.message : String(error);
};

/** A client knows a sentence at first, such as `orders fail since noon`, and neither an id nor a tool. */
const instructions = `Reads and, where allowed, repairs an svc server: runs of functions, events, projections, streams, keys. A failed run keeps its finished steps and can go on. No id is needed to begin, and each answer says what to call next.
When something fails: svc_error_groups (which failures look alike, since when), svc_why with a run of a group, svc_preview_resume or svc_preview_repair (what a repair would do), then svc_resume_run, svc_patch_step or svc_start_repair, and svc_get_run or svc_get_repair to see that it is over.
One customer's order: svc_list_runs with attributes or search. Nothing failed, but nothing moves: svc_list_runs with statuses. Words and errors: svc_search_docs. Times are RFC 3339, in UTC.`;

/** A server for one MCP client; the caller connects it to a transport. */
export function mcpServer(options: McpOptions): Server {
  const server = new Server(
    { name: "svc", version },
    {
      capabilities: { tools: {}, resources: {}, prompts: {} },
      instructions,
    },
  );
  const tools = new McpTools(options);
  server.setRequestHandler(ListToolsRequestSchema, async (_request, { signal }) => ({
    tools: await tools.list(signal),
  }));
  server.setRequestHandler(CallToolRequestSchema, async ({ params }, { signal }) => {
    try {
      return result(await tools.call(params.name, params.arguments ?? {}, signal));
    } catch (error) {
      return result({ text: redactText(messageOf(error)) }, true);
    }
  });
  server.setRequestHandler(ListPromptsRequestSchema, () => ({ prompts: listedPrompts() }));
  server.setRequestHandler(GetPromptRequestSchema, ({ params: { name, arguments: given = {} } }) => {
    const prompt = promptOf(name, given);
    if (!prompt) throw new McpError(ErrorCode.InvalidParams, `there is no prompt ${name}`);
    return prompt;
  });
  server.setRequestHandler(ListResourcesRequestSchema, () => ({
    resources: Object.entries(docTopics).map(([topic, description]) => ({
      uri: uriOf(topic),
      name: topic,
      description,
      mimeType: topic === "openapi" ? "application/json" : "text/markdown",
    })),
  }));
  server.setRequestHandler(ReadResourceRequestSchema, async ({ params: { uri } }, { signal }) => {
    const topic = Object.keys(docTopics).find((one) => uriOf(one) === uri);
    if (!isDocTopic(topic)) throw new Error(`no resource ${uri}`);
    const mimeType = topic === "openapi" ? "application/json" : "text/markdown";
    return { contents: [{ uri, mimeType, text: await tools.docs(topic, signal) }] };
  });
  return server;
}
