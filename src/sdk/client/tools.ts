import { durationMs } from "../wire/duration.ts";
import { SvcError } from "../wire/errors.ts";
import { toldJsonSchema } from "../wire/json-schema.ts";
import { payloadField } from "../wire/payload.ts";
import { type Message, payload } from "../wire/read.ts";
import { checkedBy } from "../wire/standard-schema.ts";
import type { AgentTools, Tool, ToolDefinition, ToolRule } from "./tool-types.ts";

type OutputOf<Rule> = Rule extends { run: (...given: never) => infer Output } ? Awaited<Output> : unknown;

function definitionOf(name: string, rule: ToolRule): ToolDefinition {
  const { description, input, requiredScopes, timeout } = rule;
  const inputSchema = rule.jsonSchema ?? (input && toldJsonSchema(input, "input"));
  return {
    name,
    ...(description !== undefined && { description }),
    ...(inputSchema !== undefined && { inputSchema }),
    ...(requiredScopes && { requiredScopes }),
    ...(timeout !== undefined && { timeoutMs: durationMs(timeout, `tool ${name}: timeout`) }),
  };
}

const toolOf = (agent: string, name: string, rule: ToolRule): Tool => ({
  qualifiedName: `${agent}.${name}`,
  definition: definitionOf(name, rule),
  check: async (input) => (rule.input ? checkedBy(rule.input, input) : { value: input }),
  run: (input, context) => rule.run(input, context),
});

/**
 * The tools of an agent. Register them by `client.tools.register`, answer calls by `serveTools`, call them by
 * `client.tools.invoke` or `step.tool`:
 * `defineTools("support", { refund: { input: jsonSchema(…), run: async ({ orderId }) => … } })`
 */
export function defineTools<Inputs extends Record<string, unknown>, Rules>(
  agent: string,
  rules: { [Name in keyof Inputs]: ToolRule<Inputs[Name]> } & Rules,
): AgentTools<{
  readonly [Name in keyof Inputs]: Tool<
    Inputs[Name],
    Name extends keyof Rules ? OutputOf<Rules[Name]> : unknown
  >;
}> {
  if (!agent) throw new TypeError("tools need the name of their agent");
  const tools = Object.entries(rules as Record<string, ToolRule>).map(
    ([name, rule]) => [name, toolOf(agent, name, rule)] as const,
  );
  return { agent, tools: Object.fromEntries(tools) as never };
}

export const toolName = (tool: Tool | string): string =>
  typeof tool === "string" ? tool : tool.qualifiedName;

/** The server ends every call: it allows a tool five minutes at most. */
export const toolCallMs = 310_000;

/** The message that calls a tool. */
export const toolMessage = (tool: Tool | string, input: unknown = {}): Message => ({
  toolName: toolName(tool),
  ...payloadField("input", input),
});

/** The output; throws SvcError for an error of the tool, or of the way to it. */
export function readToolAnswer(answer: Message): unknown {
  const { error } = answer as { error?: { code?: string; message?: string } };
  if (error) throw new SvcError(error.code ?? "HANDLER_ERROR", error.message ?? "", { status: 200 });
  return payload(answer, "output");
}
