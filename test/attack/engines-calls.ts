import type { Chance } from "../support/chance.ts";

/** One call of a script; `{n}` in a text stands for the nth id that earlier answers brought. */
export interface ScriptedCall {
  about: string;
  method: string;
  path: string;
  body?: unknown;
  headers?: Record<string, string>;
}

/** Texts that engines, drivers or we ourselves might take for something else. */
export const texts: readonly string[] = [
  "plain",
  "Plain",
  "Ärger.neu",
  "ärger.NEU",
  "ÄRGER.neu",
  "straße",
  "STRASSE",
  "İstanbul",
  "ıstanbul",
  "ΟΔΟΣ",
  "οδος",
  "K\u212alvin.Kelvin",
  "e\u0301",
  "\u00e9",
  "100%",
  "a_b",
  "a%b_c\\d",
  "\\",
  "'; DROP TABLE events; --",
  '"quoted"',
  "a\u0000b",
  "a\ud800b",
  "a\udc00b",
  "a\u001bb",
  "line\r\nbreak",
  "\u202eevil\u2066",
  "\u200b\ufeff",
  "\u{1f680}\u{1f680}",
  "\uffff",
  "x".repeat(5_000),
  "字".repeat(1_700),
  " ",
  "",
  "a..b",
  "*",
  ">",
  "null",
  "1e30000",
  "__proto__",
];

const numbers: readonly unknown[] = [
  0,
  -1,
  1.5,
  2_147_483_647,
  2_147_483_648,
  9_007_199_254_740_991,
  9_007_199_254_740_992,
  "9223372036854775807",
  "9223372036854775808",
  "-9223372036854775809",
  1e308,
  "1e3",
  "0x10",
  " 7",
  "",
  null,
  true,
];

const instants: readonly string[] = [
  "2026-01-01T00:00:00Z",
  "2026-01-01T00:00:00.123456789Z",
  "2026-01-01T00:00:00+14:00",
  "2026-01-01T00:00:00+24:00",
  "2026-02-30T00:00:00Z",
  "2026-01-01T24:00:00Z",
  "2026-01-01T23:59:60Z",
  "0000-01-01T00:00:00Z",
  "0001-01-01T00:00:00Z",
  "9999-12-31T23:59:59.999Z",
  "+275760-09-13T00:00:00.000Z",
  "1969-12-31T23:59:59.999Z",
  "2026-01-01",
  "1767225600000",
  "infinity",
  "now",
];

const cursors: readonly string[] = [
  "x",
  "AAAA",
  btoa("0"),
  btoa("[1,2]"),
  btoa('{"at":1e99,"id":"x"}'),
  btoa('[9007199254740993,"evt_x"]'),
  "%00",
  "a".repeat(5_000),
];

const query = (fields: Record<string, unknown>): string =>
  new URLSearchParams(
    Object.entries(fields).map(([name, value]) => [name, String(value).toWellFormed()]),
  ).toString();

type Kind = "text" | "number" | "instant" | "cursor";
const valuesOf: Record<Kind, readonly unknown[]> = {
  text: texts,
  number: numbers,
  instant: instants,
  cursor: cursors,
};

interface Field {
  name: string;
  kind: Kind;
}
const fields = (kind: Kind, ...names: string[]): Field[] => names.map((name) => ({ name, kind }));

interface Door {
  method: string;
  path: string;
  /** What is right, so that the field under test is reached; a new one each time. */
  base: (count: number) => Record<string, unknown>;
  fields: readonly Field[];
}

const rpc = (
  method: string,
  base: (count: number) => Record<string, unknown>,
  ...own: readonly Field[][]
): Door => ({ method: "POST", path: `/svc.v1.${method}`, base, fields: own.flat() });
const rest = (
  route: string,
  base: (count: number) => Record<string, unknown>,
  ...own: readonly Field[][]
): Door => {
  const [method = "", path = ""] = route.split(" ");
  return { method, path: `/api/v1${path}`, base, fields: own.flat() };
};
const nothing = () => ({});

/** What compares, sorts, bounds or keeps a value in the store, by writing and by reading. */
export const doors: readonly Door[] = [
  rpc(
    "SvcService/Emit",
    () => ({ event: "script.emit" }),
    fields("text", "event", "idempotencyKey", "data.text", "metadata.text"),
    fields("number", "version", "data.number"),
  ),
  rpc(
    "SvcService/TriggerBatch",
    () => ({ events: [{ event: "script.one" }, { event: "script.two" }] }),
    fields("text", "events.0.event", "events.1.idempotencyKey"),
  ),
  rpc(
    "SvcService/InvokeFunction",
    () => ({ functionId: "script" }),
    fields("text", "functionId", "data.text"),
  ),
  rpc("PubSubService/Publish", () => ({ topic: "script.topic", data: 1 }), fields("text", "topic", "data")),
  rpc("PubSubService/ListTopics", nothing, fields("text", "pattern"), fields("number", "limit")),
  rpc("PubSubService/GetTopicStats", nothing, fields("text", "topic")),
  rpc(
    "PubSubService/CreateConsumerGroup",
    (count) => ({ groupName: `group-${count}`, pattern: "events:a.b" }),
    fields("text", "groupName", "namespace", "pattern", "filter"),
    fields("number", "maxInflight", "maxRedeliveries"),
  ),
  rpc("PubSubService/GetConsumerGroup", nothing, fields("text", "groupName", "namespace")),
  rpc("PubSubService/ListConsumerGroups", nothing, fields("text", "namespace"), fields("number", "limit")),
  rpc(
    "SvcService/RegisterFunction",
    (count) => ({ id: `fn-${count}`, triggers: [{ event: "script.fn" }] }),
    fields("text", "id", "name", "changeReason", "triggers.0.event", "triggers.0.filter"),
    fields("number", "retryAttempts", "retryDelayMs", "retryBackoff", "timeoutMs"),
  ),
  rpc(
    "SvcService/ListFunctions",
    nothing,
    fields("text", "name", "status", "mode"),
    fields("number", "limit", "offset"),
  ),
  rpc("SvcService/GetFunction", nothing, fields("text", "id")),
  rpc(
    "SvcService/ListFunctionHistory",
    () => ({ functionId: "script" }),
    fields("text", "functionId"),
    fields("number", "limit", "fromVersion"),
  ),
  rpc(
    "SvcService/GetFunctionAtVersion",
    () => ({ functionId: "script" }),
    fields("text", "functionId"),
    fields("number", "version"),
  ),
  rpc(
    "SvcService/ListRuns",
    nothing,
    fields("text", "functionId", "eventId", "search", "statuses.0"),
    fields("instant", "since", "until"),
    fields("number", "limit", "offset"),
    fields("cursor", "cursor"),
  ),
  rpc("SvcService/GetRun", nothing, fields("text", "id")),
  rpc("SvcService/CancelRun", () => ({ id: "run_none" }), fields("text", "id", "reason")),
  rpc("SvcService/ResumeRun", () => ({ runId: "run_none" }), fields("text", "runId", "fromStep")),
  rpc("SvcService/PatchStep", () => ({ stepId: "step_none", output: 1 }), fields("text", "stepId", "reason")),
  rpc(
    "AuditService/GetAuditTrail",
    nothing,
    fields("text", "runId", "eventType"),
    fields("instant", "fromTimestamp", "toTimestamp"),
    fields("number", "limit"),
    fields("cursor", "cursor"),
  ),
  rpc(
    "TimeTravelService/GetRunStateAt",
    () => ({ runId: "run_none" }),
    fields("text", "runId"),
    fields("instant", "timestamp"),
  ),
  rest(
    "GET /events",
    nothing,
    fields("text", "name", "names", "source"),
    fields("instant", "since", "until"),
    fields("number", "limit"),
    fields("cursor", "cursor", "before"),
  ),
  rest("GET /events/names", nothing, fields("text", "source"), fields("instant", "since", "until")),
  rest(
    "GET /audit",
    nothing,
    fields("text", "run_id", "function_id", "event_type"),
    fields("instant", "from", "to"),
    fields("number", "limit"),
    fields("cursor", "cursor"),
  ),
  rest("GET /outbox/dead-letter", () => ({ env: "env_default" }), fields("number", "limit", "offset")),
  rest("GET /platform/audit", nothing, fields("instant", "from", "to"), fields("text", "event_type")),
  rest("POST /roles", (count) => ({ name: `role-${count}`, base: "viewer" }), fields("text", "name", "base")),
  rest(
    "POST /users",
    (count) => ({
      email: `u${count}@example.test`,
      password: "correct horse battery",
      name: "U",
      roles: ["viewer"],
    }),
    fields("text", "email", "name", "roles.0"),
  ),
  rest(
    "POST /policies",
    (count) => ({ name: `policy-${count}`, effect: "deny", actions: "runs:cancel", resources: "*" }),
    fields("text", "name", "effect", "actions", "resources", "condition"),
  ),
  rest(
    "POST /secrets",
    (count) => ({ name: `SECRET_${count}`, value: "v" }),
    fields("text", "name", "value", "description"),
  ),
  rest(
    "POST /apikeys",
    (count) => ({ name: `key-${count}` }),
    fields("text", "name", "expires_in", "env_id"),
  ),
  rest("POST /environments", (count) => ({ name: `env-${count}` }), fields("text", "name", "project_id")),
  rest("POST /projects", (count) => ({ name: `project-${count}` }), fields("text", "name")),
  rest("PUT /retention", () => ({ events_days: 3 }), fields("number", "events_days", "runs_days")),
  rest(
    "POST /workers/script-worker/register",
    () => ({ function_ids: ["script"] }),
    fields("text", "function_ids.0", "hostname"),
  ),
  rest(
    "PUT /workers/script-worker/jobs/job_none",
    () => ({ status: "completed", execution_seq: 1, lease_token: "none" }),
    fields("text", "status", "lease_token", "output"),
    fields("number", "execution_seq", "step_offset"),
  ),
];

function put(into: Record<string, unknown>, path: string, value: unknown): void {
  const [first = "", ...rest] = path.split(".");
  if (rest.length === 0) {
    into[first] = value;
    return;
  }
  into[first] ??= /^\d+$/.test(rest[0]!) ? [] : {};
  put(into[first] as Record<string, unknown>, rest.join("."), value);
}

/** Every value in every field, in an order that the chance decides. */
export function* script(chance: Chance): Generator<ScriptedCall> {
  const all = doors.flatMap((door) =>
    door.fields.flatMap((field) => valuesOf[field.kind].map((value) => ({ door, field, value }))),
  );
  for (let place = all.length - 1; place > 0; place--) {
    const other = chance.between(0, place);
    [all[place], all[other]] = [all[other]!, all[place]!];
  }
  for (const [count, { door, field, value }] of all.entries()) {
    const input = door.base(count);
    put(input, field.name, value);
    const shown = JSON.stringify(value).slice(0, 60);
    const about = `${door.method} ${door.path} ${field.name}=${shown}`;
    if (door.method === "GET") yield { about, method: "GET", path: `${door.path}?${query(input)}` };
    else yield { about, method: door.method, path: door.path, body: input };
  }
}
