import { timeoutNames, withUnits } from "../wire/duration-options.ts";
import { all, count, type Message, parsed, text } from "../wire/read.ts";
import { once, safe } from "../wire/retry.ts";
import type { JsonSchemaText } from "../wire/standard-schema.ts";
import type { RpcOptions, Transport } from "../wire/transport.ts";
import type { AgentTools, ToolCalls, ToolDefinition, VisibleTool } from "./tool-types.ts";
import { readToolAnswer, toolCallMs, toolMessage } from "./tools.ts";

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
