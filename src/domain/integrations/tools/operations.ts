import type { MessageInitShape } from "@bufbuild/protobuf";
import { type Static, Type } from "@sinclair/typebox";
import type { Action } from "../../../gate/actions.ts";
import { typeOfAction } from "../../../gate/resource.ts";
import {
  AgentToolsService,
  type InvokeToolRequest,
  type InvokeToolResponseSchema,
  type ListToolsResponseSchema,
  type RegisterToolResponseSchema,
} from "../../../gen/svc/v1/agent_tools_pb.ts";
import { type Call, listed, type Operation, rpc, type Thing, unary } from "../../../kit/operation.ts";
import { requestOf } from "../../../kit/request.ts";
import { jsonOf, payload, timestampOf } from "../../../kit/wkt.ts";
import { qualifiedNameBytesMax } from "./limits.ts";
import { scopesOf } from "./rules.ts";
import type { CallableRow, RegisteredAgent, ToolOutcome, ToolRow, ToolsOfAgents } from "./service.ts";

const toRegistered = ({
  secret,
  names,
  registeredAt,
}: RegisteredAgent): MessageInitShape<typeof RegisterToolResponseSchema> => ({
  hmacSecret: secret,
  registeredToolNames: names,
  registeredAt: timestampOf(registeredAt),
});

const inputOf = ({ input = {}, inputValue }: InvokeToolRequest): unknown =>
  inputValue === undefined ? input : jsonOf(inputValue);

const toOutcome = (outcome: ToolOutcome): MessageInitShape<typeof InvokeToolResponseSchema> =>
  "error" in outcome
    ? { error: outcome.error }
    : payload("output", "outputValue", JSON.stringify(outcome.output));

interface ToolPage {
  tools: ToolRow[];
  nextCursor: string | undefined;
}

const toTools = ({ tools, nextCursor }: ToolPage): MessageInitShape<typeof ListToolsResponseSchema> => ({
  tools: tools.map((row) => ({
    qualifiedName: row.qualified_name,
    description: row.description,
    inputSchemaJson: row.input_schema,
    requiredScopes: scopesOf(row.required_scopes),
  })),
  nextCursor: nextCursor ?? "",
});

const text = Type.String();

const Register = Type.Object({
  agentName: text,
  callbackUrl: text,
  tools: Type.Array(
    Type.Object({
      name: text,
      description: text,
      inputSchemaJson: text,
      requiredScopes: Type.Array(text),
      timeoutMs: Type.Integer({ minimum: 0 }),
    }),
  ),
});

const ToolName = Type.String({ minLength: 1, maxLength: qualifiedNameBytesMax });
const Invoke = Type.Object({ toolName: ToolName, input: Type.Unknown() });

const type = "agent-tool";

/** A change of an agent is one of all its tools: a policy that may deny one of them refuses it. */
const aboutAgent = ({ agentName }: { agentName: string }): (string | Thing)[] => [
  agentName || "*",
  { type, id: `${agentName}.*`, isPattern: true },
];

/** The names by which a deny policy may mean a tool: its own, and its agent's. */
const namesOf = ({ qualified_name, agent_name }: ToolRow) => [qualified_name, agent_name];

/**
 * For each required scope the thing of its type that the tool is named after: a function that is denied to a
 * caller is denied to it through a tool of its name, too.
 */
const namedAfter = ({
  qualified_name,
  agent_name,
  required_scopes,
}: ToolRow): (Thing & { action: Action })[] =>
  scopesOf(required_scopes).map((action) => ({
    type: typeOfAction(action),
    action,
    id: qualified_name.slice(agent_name.length + 1),
  }));

type InvokedTool = Static<typeof Invoke> | { leadsTo: CallableRow };

/** Whether the caller's roles grant an action, and no policy denies it for the thing. */
export type MayUse = (call: Call, action: Action, thing: { type: string; id: string }) => Promise<boolean>;

async function isVisible(tool: ToolRow, call: Call, may: MayUse): Promise<boolean> {
  for (const { action, ...thing } of namedAfter(tool)) {
    if (!(await may(call, action, thing))) return false;
    for (const id of namesOf(tool)) if (!(await may(call, action, { type, id }))) return false;
  }
  return true;
}

const { method } = AgentToolsService;

export const agentToolsOperations = (agentTools: ToolsOfAgents, may: MayUse): Operation[] => [
  unary({
    name: "agentTools.register",
    action: "agent:tools:register",
    summary: "Replaces an agent's tools and its secret, which the answer alone holds.",
    input: Register,
    about: aboutAgent,
    rpc: rpc(
      method.registerTool,
      ({ agentName, callbackUrl, tools }) => ({
        ...{ agentName, callbackUrl },
        tools: tools.map(({ name, description, inputSchemaJson, requiredScopes, timeoutMs }) => ({
          ...{ name, description, inputSchemaJson, requiredScopes, timeoutMs },
        })),
      }),
      toRegistered,
    ),
    handle: (input, call) => agentTools.register(call.environmentId, input),
  }),
  unary({
    name: "agentTools.invoke",
    action: "agent:tools:invoke",
    held: true,
    summary: "Calls a tool at its agent. What the tool or the way to it answers wrong is `error`.",
    input: Invoke,
    about: (input: InvokedTool): (string | Thing)[] =>
      "leadsTo" in input ? [...namesOf(input.leadsTo), ...namedAfter(input.leadsTo)] : [input.toolName],
    costs: (input: InvokedTool) => ("leadsTo" in input ? scopesOf(input.leadsTo.required_scopes) : []),
    rpc: rpc(
      method.invokeTool,
      (message) => ({ toolName: message.toolName, input: inputOf(message) }),
      toOutcome,
    ),
    async handle({ toolName, input }, call, permit) {
      const tool = await agentTools.find(call.environmentId, toolName);
      await permit({ leadsTo: tool });
      return agentTools.invoke(tool, call, input);
    },
  }),
  unary({
    name: "agentTools.unregister",
    action: "agent:tools:unregister",
    summary: "Deletes an agent with its tools; of one that is not there none is removed.",
    ...requestOf(method.unregisterTool, (removedCount: number) => ({ removedCount })),
    about: aboutAgent,
    handle: ({ agentName }, call) => agentTools.unregister(call.environmentId, agentName),
  }),
  unary({
    name: "agentTools.list",
    action: "agent:tools:read",
    reads: true,
    summary: "Tools whose required scopes the caller has, by name.",
    ...requestOf(method.listTools, toTools),
    lists: listed(namesOf, { under: "tools" }),
    async handle({ cursor }, call): Promise<ToolPage> {
      const { items, nextCursor } = await agentTools.list(call.environmentId, cursor);
      const tools: ToolRow[] = [];
      for (const tool of items) if (await isVisible(tool, call, may)) tools.push(tool);
      return { tools, nextCursor };
    },
  }),
];
