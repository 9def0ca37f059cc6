import { snakeCase } from "../../kit/cases.ts";
import { pauseWords } from "../../sdk/wire/pause-words.ts";
import { type CataloguedOperation, type OperationField, operationNamed, shortWords } from "../operations.ts";

/** A tool that is one call of the server. */
export interface McpTool {
  name: string;
  operation: string;
  /** In place of the words of the operation, which know no other tool. */
  about?: string;
  /** Names of the tool's fields, by the operation's; the others are spelt in snake_case. */
  names?: Readonly<Record<string, string>>;
  /** Words that a field takes beside the constants of its enum, by the tool's names. */
  takes?: Readonly<Record<string, readonly string[]>>;
  /** Words for a field that is a message of its own. */
  says?: Readonly<Record<string, string>>;
  /** Fields that messages of RPC do not mark as needed, by the tool's names. */
  needs?: readonly string[];
  /** The operation that takes the same input where the thing is not there yet. */
  creates?: string;
  writes?: boolean;
  /** Cannot be taken back: `confirm: true` is needed. */
  destroys?: boolean;
  /** Fields of the answer, at any depth, that a client has no use for. */
  drops?: readonly string[];
  /** The caller must say which environment it means. */
  needsEnvironment?: boolean;
}

const says = {
  filter:
    'At least one of `functionId`, `statuses` (such as ["failed"]), `since` and `until` (RFC 3339), `errorGroup` (its id), `errorText`, `eventName`, `eventId`, `search`.',
};

const reading: readonly McpTool[] = [
  { name: "server_info", operation: "server.capabilities" },
  {
    name: "overview",
    operation: "overview.get",
    about: "What is under way, what failed of late, and how the server is: a first look without an id.",
    drops: ["loops"],
  },
  {
    name: "list_runs",
    operation: "runs.list",
    about:
      "Runs, newest first: by status, time, function, error text, event, or an attribute such as the id of an order.",
    takes: { statuses: Object.values(pauseWords) },
    says: {
      attributes: 'All of these, such as [{"name":"orderId","text":"L22"}].',
      statuses: `Only runs of one of these; ${Object.values(pauseWords).join(", ")} are each a reason of paused.`,
    },
  },
  { name: "get_run", operation: "runs.get", names: { id: "run_id" }, needs: ["run_id"] },
  { name: "get_run_steps", operation: "runs.steps", needs: ["run_id"] },
  { name: "run_logs", operation: "runs.logs", needs: ["run_id"] },
  { name: "run_signals", operation: "runs.signals", needs: ["run_id"] },
  { name: "preview_resume", operation: "runs.previewResume", needs: ["run_id"] },
  {
    name: "error_groups",
    operation: "errors.list",
    about:
      "Begin here when something fails. Failures that look alike, seen last first: function, message, number, first and last time, and the newest run that failed so.",
  },
  { name: "preview_repair", operation: "repairs.preview", says, needs: ["action", "filter"] },
  { name: "list_repairs", operation: "repairs.list" },
  { name: "get_repair", operation: "repairs.get", names: { id: "repair_id" }, needs: ["repair_id"] },
  { name: "integrity", operation: "integrity.report" },
  { name: "list_functions", operation: "functions.list" },
  { name: "get_function", operation: "functions.get", names: { id: "function_id" }, needs: ["function_id"] },
  { name: "list_projections", operation: "projections.list" },
  { name: "projection_status", operation: "projections.status", needs: ["name"] },
  { name: "list_entity_streams", operation: "streams.list" },
  { name: "read_entity_stream", operation: "streams.read", needs: ["entity_id"] },
  { name: "list_events", operation: "events.list" },
  { name: "sql_query", operation: "query.execute", needs: ["query"] },
  { name: "list_projects", operation: "projects.list" },
  { name: "list_environments", operation: "environments.list" },
  { name: "list_workers", operation: "workers.list" },
  { name: "list_deployments", operation: "deployments.list" },
  { name: "list_secrets", operation: "secrets.list" },
  { name: "kv_list_buckets", operation: "kv.buckets.list" },
  { name: "kv_list_keys", operation: "kv.keys.list" },
  { name: "kv_get", operation: "kv.get" },
  { name: "rebuild_projection_status", operation: "projections.rebuildJob", needs: ["name"] },
  { name: "outbox_dlq_list", operation: "outbox.deadLetters", needsEnvironment: true },
  { name: "circuit_breaker_list", operation: "breakers.list" },
];

const changing: readonly McpTool[] = [
  { name: "emit_event", operation: "events.emit", needs: ["event"] },
  { name: "invoke_function", operation: "functions.invokeSync", needs: ["function_id"] },
  { name: "append_entity_event", operation: "streams.append", needs: ["entity_id", "event_name", "data"] },
  { name: "delete_stream", operation: "streams.delete", destroys: true, needs: ["entity_id"] },
  {
    name: "redact_event",
    operation: "streams.redactEvent",
    destroys: true,
    needs: ["entity_id", "event_id"],
  },
  { name: "secret_set", operation: "secrets.put", creates: "secrets.create" },
  { name: "kv_put", operation: "kv.put", names: { body: "value" } },
  {
    name: "cancel_run",
    operation: "runs.cancel",
    names: { id: "run_id" },
    destroys: true,
    needs: ["run_id"],
  },
  { name: "resume_run", operation: "runs.resume", needs: ["run_id"] },
  { name: "pause_run", operation: "runs.pause", needs: ["run_id"] },
  { name: "signal_run", operation: "runs.signal", needs: ["run_id", "name"] },
  { name: "patch_step", operation: "steps.patch", needs: ["step_id", "output", "reason"] },
  { name: "inject_step", operation: "runs.inject", needs: ["run_id", "step_id", "new_output", "reason"] },
  {
    name: "start_repair",
    operation: "repairs.start",
    ...{ says, destroys: true },
    needs: ["action", "filter", "reason"],
  },
  { name: "stop_repair", operation: "repairs.stop", names: { id: "repair_id" }, needs: ["repair_id"] },
  { name: "rebuild_projection", operation: "projections.rebuild", destroys: true, needs: ["name"] },
  {
    name: "outbox_dlq_requeue",
    operation: "outbox.requeue",
    names: { eventID: "event_id" },
    needsEnvironment: true,
  },
  {
    name: "outbox_dlq_discard",
    operation: "outbox.discard",
    names: { eventID: "event_id" },
    destroys: true,
    needsEnvironment: true,
  },
  { name: "circuit_breaker_reset", operation: "breakers.reset" },
];

const prefix = "svc_";

export const mcpTools: readonly McpTool[] = [
  ...reading,
  ...changing.map((tool): McpTool => ({ ...tool, writes: true })),
].map((tool) => ({ ...tool, name: prefix + tool.name }));

interface ToolField {
  name: string;
  field: OperationField;
}

/** The fields of a tool, without the twins that other spellings need. */
export function fieldsOf({ operation, names = {} }: McpTool): ToolField[] {
  const { fields } = operationNamed(operation);
  return fields
    .filter((field) => field.place !== "header" && !/Value$/.test(field.name))
    .map((field) => ({ name: names[field.name] ?? snakeCase(field.name), field }));
}

/** Any JSON is told by no `type`. */
function schemaOf(
  { kind, about, choices = [] }: OperationField,
  more: readonly string[] = [],
): Record<string, unknown> {
  const words = [...shortWords(choices), ...more];
  const type: Record<OperationField["kind"], Record<string, unknown>> = {
    bytes: { type: "string" },
    text: { type: "string" },
    integer: { type: "integer" },
    number: { type: "number" },
    switch: { type: "boolean" },
    choice: { type: "string", enum: words },
    texts: { type: "array", items: { type: "string" } },
    words: { type: "array", items: { type: "string", enum: words } },
    json: {},
  };
  return { ...type[kind], ...(about && { description: about }) };
}

const environmentField = {
  type: "string",
  description: "Name or id of the environment; the key's own when left out.",
};
const confirmField = { type: "boolean", description: "Must be true: what this does cannot be taken back." };

/** A tool as MCP lists it. */
export function describedTool(tool: McpTool) {
  const { says: words = {} } = tool;
  const operation: CataloguedOperation = operationNamed(tool.operation);
  const fields = fieldsOf(tool);
  const required = [
    ...fields.filter(({ field }) => field.required || field.place === "path").map(({ name }) => name),
    ...(tool.needs ?? []),
    ...(tool.needsEnvironment ? ["env"] : []),
    ...(tool.destroys ? ["confirm"] : []),
  ];
  return {
    name: tool.name,
    description: tool.about ?? operation.about,
    inputSchema: {
      type: "object" as const,
      properties: {
        ...Object.fromEntries(
          fields.map(({ name, field }) => [
            name,
            { ...schemaOf(field, tool.takes?.[name]), ...(words[name] && { description: words[name] }) },
          ]),
        ),
        env: environmentField,
        ...(tool.destroys && { confirm: confirmField }),
      },
      ...(required.length > 0 && { required }),
      additionalProperties: false,
    },
    annotations: {
      readOnlyHint: tool.writes !== true,
      destructiveHint: tool.destroys === true,
      openWorldHint: false,
    },
  };
}
