import type { MessageInitShape } from "@bufbuild/protobuf";
import type {
  InvokeToolRequest,
  InvokeToolResponseSchema,
  ListToolsResponseSchema,
  RegisterToolResponseSchema,
} from "../../../gen/svc/v1/agent_tools_pb.ts";
import { jsonOf, payload, timestampOf } from "../../../kit/wkt.ts";
import { scopesOf } from "./rules.ts";
import type { RegisteredAgent, ToolOutcome, ToolRow } from "./service.ts";

export const toRegistered = ({
  secret,
  names,
  registeredAt,
}: RegisteredAgent): MessageInitShape<typeof RegisterToolResponseSchema> => ({
  hmacSecret: secret,
  registeredToolNames: names,
  registeredAt: timestampOf(registeredAt),
});

export const inputOf = ({ input = {}, inputValue }: InvokeToolRequest): unknown =>
  inputValue === undefined ? input : jsonOf(inputValue);

export const toOutcome = (outcome: ToolOutcome): MessageInitShape<typeof InvokeToolResponseSchema> =>
  "error" in outcome
    ? { error: outcome.error }
    : payload("output", "outputValue", JSON.stringify(outcome.output));

export interface ToolPage {
  tools: ToolRow[];
  nextCursor: string | undefined;
}

export const toTools = ({
  tools,
  nextCursor,
}: ToolPage): MessageInitShape<typeof ListToolsResponseSchema> => ({
  tools: tools.map((row) => ({
    qualifiedName: row.qualified_name,
    description: row.description,
    inputSchemaJson: row.input_schema,
    requiredScopes: scopesOf(row.required_scopes),
  })),
  nextCursor: nextCursor ?? "",
});
