import { durationMs, timeoutNames, withUnits } from "../wire/duration.ts";
import { SvcError } from "../wire/errors.ts";
import { checkedBy, type JsonSchemaText, toldJsonSchema } from "../wire/json-schema.ts";
import { payloadField } from "../wire/payload.ts";
import { all, count, type Message, parsed, payload, text } from "../wire/read.ts";
import { once, safe } from "../wire/retry.ts";
import type { RpcOptions, Transport } from "../wire/transport.ts";
import type { AgentTools, Tool, ToolCalls, ToolDefinition, ToolRule, VisibleTool } from "./tool-types.ts";

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

function toDefinition(tool: ToolDefinition): Message {
  const given = withUnits(`tool ${tool.name}`, tool, timeoutNames);
  const { name, description, inputSchema, requiredScopes, timeoutMs } = given;
  return { name, description, inputSchemaJson: JSON.stringify(inputSchema), requiredScopes, timeoutMs };
}

const readTool = (message: Message): VisibleTool => ({
  qualifiedName: text(message.qualifiedName),
  description: text(message.description),
  ...(text(message.inputSchemaJson) !== "" && {
    inputSchema: parsed(message.inputSchemaJson) as JsonSchemaText,
  }),
  requiredScopes: (message.requiredScopes ?? []) as string[],
});

const definitionsOf = ({ tools }: AgentTools | { tools: readonly ToolDefinition[] }) =>
  Array.isArray(tools)
    ? (tools as readonly ToolDefinition[])
    : Object.values(tools as AgentTools["tools"]).map(({ definition }) => definition);

export function toolCalls(transport: Transport): ToolCalls {
  const ask = (method: string, message: object, options: RpcOptions = safe) =>
    transport.rpc<Message>(`AgentToolsService/${method}`, message, options);
  return {
    async register(given, { callbackUrl }) {
      const tools = definitionsOf(given).map(toDefinition);
      // Done twice, the answer of the second is the one that counts.
      const answer = await ask("RegisterTool", { agentName: given.agent, callbackUrl, tools });
      return {
        secret: text(answer.hmacSecret),
        names: (answer.registeredToolNames ?? []) as string[],
        registeredAt: text(answer.registeredAt),
      };
    },
    async list() {
      const tools: VisibleTool[] = [];
      let cursor = "";
      do {
        const page = await ask("ListTools", { cursor });
        tools.push(...all(page.tools, readTool));
        cursor = text(page.nextCursor);
      } while (cursor !== "");
      return tools;
    },
    invoke: async (
      tool: Parameters<typeof toolMessage>[0],
      input: unknown,
      { signal } = {} as { signal?: AbortSignal },
    ) =>
      readToolAnswer(
        await ask("InvokeTool", toolMessage(tool, input), {
          ...once,
          timeoutMs: toolCallMs,
          ...(signal && { signal }),
        }),
      ) as never,
    async unregister(agent) {
      const agentName = typeof agent === "string" ? agent : agent.agent;
      return count((await ask("UnregisterTool", { agentName })).removedCount);
    },
  };
}
