import { readName as readPolicyName, requirePolicy } from "../domain/access/policies/rules.ts";
import {
  readBase,
  readName as readRoleName,
  requireFree as requireFreeRoleName,
} from "../domain/access/roles/rules.ts";
import {
  isEnvironmentName,
  readLabel,
  requireColor,
  requireEnvironmentName,
} from "../domain/access/tenancy/rules.ts";
import { readEmail, readUserName } from "../domain/access/users/rules.ts";
import { requireAttributeName } from "../domain/engine/attributes/rules.ts";
import type { FunctionStatus } from "../domain/engine/functions/definition.ts";
import { canonical, definitionOf, type RegisterInput } from "../domain/engine/functions/rules.ts";
import { isListOfLines } from "../domain/engine/logs/rules.ts";
import { runStatuses, storedStatuses } from "../domain/engine/runs/rules.ts";
import type { StepStatus, StepType } from "../domain/engine/runs/run.ts";
import { schemaModes } from "../domain/log/schemas/rules.ts";
import { entityOf } from "../domain/log/streams/rules.ts";
import { configBucket } from "../domain/record/export/pages.ts";
import { requireBucketName, requireKey } from "../domain/state/kv/rules.ts";
import {
  projectionModes,
  projectionStatuses,
  requireProjectionName,
} from "../domain/state/projections/rules.ts";
import { requireEventName, requireStorable } from "../kit/event-names.ts";
import { Fault, invalid } from "../kit/fault.ts";
import { readDocument } from "../kit/json-schema/document.ts";
import { requirePayload } from "../kit/payload-json.ts";
import { requireStepId } from "../kit/step-id.ts";
import type { ExportedTable } from "../store/exported-tables.ts";

/** Throws for what no operation would have taken; what it answers is stored in the value's place. */
type ColumnReader = (value: never, field: string, row: Readonly<Record<string, unknown>>) => unknown;

const text = (value: string, field: string) => requireStorable(field, value);

const idCharsMax = 200;
/** A text that people read in a list, or that names something: one line. */
const line = (value: string, field: string) => {
  if (/\p{Cc}/u.test(value) || !value.isWellFormed()) throw invalid(field, "must be one line of text");
};
const id = (value: string, field: string) => {
  line(value, field);
  if (value.length > idCharsMax) throw invalid(field, `at most ${idCharsMax} characters`);
};
const word = (value: string, field: string) => {
  if (!/^[A-Za-z][A-Za-z0-9_.-]{0,99}$/.test(value)) throw invalid(field, "must be a word");
};
const oneOf =
  (...known: readonly string[]) =>
  (value: string, field: string) => {
    if (!known.includes(value)) throw invalid(field, `must be one of ${known.join(", ")}`);
  };
const payload = (value: unknown, field: string) => requirePayload(field, value);
const name =
  (read: (value: string) => unknown): ColumnReader =>
  (value: string) =>
    void read(value);
/** An invoke logs an event named by its function, in whose id dots may follow each other. */
const eventName: ColumnReader = (value: string, field) =>
  requireEventName(field, value.replaceAll(/(?!^$)(?<=^|\.)(?=\.|$)/g, "x"));
const names = (value: unknown, field: string) => {
  if (!Array.isArray(value) || !value.every((one) => typeof one === "string"))
    throw invalid(field, "must be a list of texts");
  for (const one of value) line(one, field);
};

/** Registered as it stands, it would be stored as it stands. */
const definition: ColumnReader = (value: RegisterInput & { mode?: string }, field, row) => {
  const { retry, mode } = value;
  const read = definitionOf({
    ...value,
    ...(mode !== undefined && { preferredMode: mode as "pull" | "push" }),
    retry: { maxDelayMs: retry?.maxDelayMs ?? 0 },
    ...(retry?.maxAttempts !== undefined && { retryAttempts: retry.maxAttempts }),
    ...(retry?.initialDelayMs !== undefined && { retryDelayMs: retry.initialDelayMs }),
    ...(retry?.backoffFactor !== undefined && { retryBackoff: retry.backoffFactor }),
  }) as unknown as Record<string, unknown>;
  if (read.id !== (row.id ?? row.function_id)) throw invalid(field, "must be that of the function");
  const odd = Object.keys(value).find(
    (key) => canonical(read[key]) !== canonical((value as unknown as Record<string, unknown>)[key]),
  );
  if (odd !== undefined) throw invalid(`${field}.${odd}`, "is not as functions are registered");
};

const byColumn: Readonly<Record<string, ColumnReader>> = {
  ...{ id, project_id: id, function_id: id, actor_id: id, event_id: id, run_id: id, worker_id: id },
  ...{ error_group: id, parent_run_id: id, sample_run_id: id, child_run_id: id, error_event_id: id },
  ...{
    last_event_id: id,
    bucket_id: id,
    template_id: id,
    template_version: line,
    policy_id: id,
    author_id: id,
    role_id: id,
  },
  ...{ hash: id, schema_hash: id, patched_by: line, redacted_by: line, table_name: line },
  ...{ change_type: word, source: word, on_timeout: word, type: word, cancellation_cause: word },
  ...{ description: text, change_reason: text, idempotency_key: text, schema_breach: text },
  ...{ value: text, code: text, message: text, frame: text, error_message: text, table_sql: text },
  ...{ partition_key: text, error_partition: text, partition_path: line },
  ...{ data: payload, metadata: payload, state: payload, output: payload, error: payload, input: payload },
  ...{ original_output: payload, nondeterminism: payload, detail: payload, admitted: payload },
  ...{ snapshot: payload, events: names, definition },
  name: line,
  entity_id: (value: string) => void entityOf({ entityId: value, entityType: "x" }),
  entity_type: (value: string) => void entityOf({ entityId: "x", entityType: value }),
  event_name: eventName,
  // The names of all things that a step waits for, of which an event is one.
  wait_event_name: line,
  step_id: (value: string, field) => void requireStepId(field, value),
  ...{ sent_by: line, taken_by: (value: string, field: string) => void requireStepId(field, value) },
  parent_step_id: (value: string, field) => void requireStepId(field, value),
  compensation_for: (value: string, field) => void requireStepId(field, value),
  color: requireColor as ColumnReader,
  schema_mode: oneOf(...schemaModes),
  trouble: oneOf("failed", "cancelled"),
  operation: oneOf("put", "delete"),
  key: name(requireKey),
  ...{ actions: line, resources: line, condition: text, slug: line },
  email: (value: string) => readEmail(value),
  roles: names,
  role_ids: names,
  schema_json: (value: string) => void readDocument(value),
  event_handlers: payload,
};

const functionStatuses = ["active", "paused", "archived"] satisfies FunctionStatus[];
const stepStatuses = ["completed", "failed", "sleeping", "waiting", "timed_out"] satisfies StepStatus[];
const stepTypes = ["invoke", "compensate", "sleep", "wait_for_event", "invoke_function"] satisfies StepType[];

/** Where a name means something else in one table. */
const byTable: Readonly<Record<string, ColumnReader>> = {
  "projects.name": (value: string, field) => void readLabel(field, value, idCharsMax),
  // Versions before 0.41 let one be named `current`.
  "environments.name": (value: string, field) =>
    isEnvironmentName(value) ? undefined : requireEnvironmentName(value, field),
  "functions.status": oneOf(...functionStatuses),
  "functions.mode": oneOf("pull", "push"),
  "events.name": eventName,
  "runs.status": oneOf("active", ...storedStatuses(runStatuses).ended),
  "runs.mode": oneOf("pull", "push"),
  // Below 0 where it began by another clock, as versions before 0.41 stored it.
  "steps.duration_ms": (value: number, field) => {
    const took = Math.max(0, value);
    number(took as never, field, {});
    return took;
  },
  "steps.status": oneOf(...stepStatuses),
  "steps.type": oneOf(...stepTypes),
  "run_outputs.source": line,
  "run_outputs.chunks": (value: unknown, field) => {
    if (!Array.isArray(value)) throw invalid(field, "must be a list");
    payload(value, field);
  },
  // -1 of a row without lines.
  "run_logs.place": (value: number, field) => number(Math.max(0, value) as never, field, {}),
  "run_logs.lines": (value: unknown, field) => {
    if (!isListOfLines(value)) throw invalid(field, "must be a list of lines");
    payload(value, field);
  },
  "run_attribute_names.name": (value: string, field) => void requireAttributeName(field, value),
  "run_attributes.name": (value: string, field) => void requireAttributeName(field, value),
  "projections.name": (value: string, field) => void requireProjectionName(field, value),
  "projections.status": oneOf(...projectionStatuses),
  "projections.mode": oneOf(...projectionModes),
  "policies.name": name(readPolicyName),
  "policies.condition": (condition: string, _field, { actions, resources }) =>
    requirePolicy({ actions: String(actions), resources: String(resources), condition }),
  "roles.id": (value: string, field) => {
    id(value, field);
    if (/^p?role_(?:admin|developer|viewer|platform_\w+)$/.test(value))
      throw invalid(field, "is that of a built-in role");
  },
  "roles.name": (value: string) => requireFreeRoleName(readRoleName(value)),
  "roles.base": (value: string) => void readBase({ orgId: "", kind: "tenant" }, value),
  "users.name": name(readUserName),
  "kv_buckets.name": name(requireBucketName),
  "config.kv_buckets.name": oneOf(configBucket),
};

/** What only stays in the file: see `ImportWriter`. */
const unread = new Set(["audit", "webhooks"]);

const number: ColumnReader = (value: number, field) => {
  // As far as time goes.
  if (!Number.isSafeInteger(value) || value < 0 || value > 8.64e15)
    throw invalid(field, "must be an integer, not below 0");
};

export const readerOf = (
  { section, table, columns }: ExportedTable,
  column: string,
): ColumnReader | undefined =>
  unread.has(section)
    ? () => {}
    : (byTable[`${section}.${table}.${column}`] ??
      byTable[`${table}.${column}`] ??
      (columns[column] === "number" ? number : byColumn[column]));

/** Reads a row of an export by the rules of the operations that make such rows, and adds what they store. */
export function requireRow(table: ExportedTable, row: Record<string, unknown>): void {
  for (const [column, value] of Object.entries(row)) {
    if (value === null) continue;
    try {
      const read = readerOf(table, column)!(value as never, column, row);
      if (read !== undefined) row[column] = read;
    } catch (error) {
      // Where a shape is wrong, no rule came so far as to say so.
      throw error instanceof Fault ? error : invalid(column, "is not what an export has");
    }
  }
}
