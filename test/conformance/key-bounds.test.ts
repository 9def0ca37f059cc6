import { afterAll, beforeAll, expect, test } from "bun:test";
import { policyNameCharsMax } from "../../src/domain/access/policies/limits.ts";
import { roleNameCharsMax } from "../../src/domain/access/roles/rules.ts";
import { environmentNameBytesMax } from "../../src/domain/access/tenancy/limits.ts";
import { emailCharsMax } from "../../src/domain/access/users/rules.ts";
import { endpointKeyBytesMax } from "../../src/domain/engine/breakers/rows.ts";
import { secretNameCharsMax } from "../../src/domain/engine/secrets/service.ts";
import { matchPathBytesMax } from "../../src/domain/engine/waits/rules.ts";
import { entityIdBytesMax, entityTypeBytesMax } from "../../src/domain/log/streams/rules.ts";
import { groupNameBytesMax } from "../../src/domain/realtime/groups/limits.ts";
import { eventNameBytesMax, functionIdBytesMax, idempotencyKeyBytesMax } from "../../src/kit/limits.ts";
import { sql } from "../../src/kit/sql.ts";
import { stepIdBytesMax } from "../../src/kit/step-id.ts";
import { startTestServer, type TestServer } from "../support/server.ts";

/** An index row of Postgres takes 2,704 bytes; its head and the alignment of its columns take some of them. */
const indexRowBytesMax = 2_704;
const headBytes = 16;
const columnBytes = 8;

/** Ids that we make, hashes, and words of closed lists: nobody outside can make them longer. */
const ours = 80;
/** An id that callers name, but that is only stored where a row of ours has it. */
const environmentId = 80;
/** Of a text whose bound is in letters. */
const utf8 = (chars: number) => 4 * chars;
/** An invoke logs an event named by its function. */
const eventName = Math.max(eventNameBytesMax, functionIdBytesMax);
/** Of a worker, and of a function whose name makes it; a slug is an id with other letters. */
const token = functionIdBytesMax;
/** Settings of operators: names of nodes. */
const nodeId = 255;
/** Callers as the audit names them: keys, users, or `dev`. */
const callerId = 255;

/** The most bytes that each column of an index may have, by the check at its door. A column that is not here fails the test. */
const bounds: Record<string, number> = {
  "*.environment_id": environmentId,
  "*.org_id": ours,
  "*.project_id": ours,
  "*.run_id": ours,
  "*.event_id": ours,
  "*.function_id": functionIdBytesMax,
  "*.group_id": ours,
  "*.step_id": stepIdBytesMax,
  "*.event_name": eventName,
  "*.lane_id": ours + 2 * ours,
  "*.role_id": ours,
  "*.policy_id": ours,
  // Of rows that callers do not name.
  ...Object.fromEntries(
    [
      "api_keys",
      "auth_audit",
      "consumer_groups",
      "debounces",
      "deleted_environments",
      "environments",
      "events",
      "group_members",
    ]
      .concat([
        "lanes",
        "nodes",
        "orgs",
        "outbox",
        "platform_audit",
        "platform_users",
        "policies",
        "projects",
        "roles",
      ])
      .concat(["rotations", "runs", "users"])
      .map((table) => [`${table}.id`, table === "nodes" ? nodeId : table === "lanes" ? 3 * ours : ours]),
  ),
  "api_keys.key_hash": ours,
  "breakers.endpoint_url": endpointKeyBytesMax,
  "auth_audit.caller_id": callerId,
  "child_ends.child_run_id": ours,
  "consumer_groups.namespace": groupNameBytesMax,
  "consumer_groups.name": groupNameBytesMax,
  "environments.name": environmentNameBytesMax,
  "*.entity_id": entityIdBytesMax,
  "streams.entity_type": entityTypeBytesMax,
  "events.name": eventName,
  "executions.state": ours,
  "functions.id": functionIdBytesMax,
  "functions.slug": token,
  "healings.name": ours,
  // Our own begin with a character that callers cannot send.
  "idempotency_keys.key": 1 + idempotencyKeyBytesMax,
  "invocations.parent_run_id": ours,
  "keyring.kind": ours,
  "leaders.duty": ours,
  "login_attempts.key": ours,
  "outbox.kind": ours,
  "platform_audit.event_type": ours,
  "platform_audit.impersonated_org_id": ours,
  "platform_audit.platform_key_id": callerId,
  "platform_users.email": utf8(emailCharsMax),
  "policies.name": utf8(policyNameCharsMax),
  "roles.name": utf8(roleNameCharsMax),
  "rotations.idempotency_key": idempotencyKeyBytesMax,
  "runs.trouble": ours,
  "sessions.id": ours,
  "sessions.kind": ours,
  "sessions.subject_id": callerId,
  "secrets.name": utf8(secretNameCharsMax),
  "topic_messages.idempotency_key": idempotencyKeyBytesMax,
  "topic_messages.topic": eventNameBytesMax,
  "topics.name": eventNameBytesMax,
  "users.email": utf8(emailCharsMax),
  "waits.kind": ours,
  "waits.match_path": matchPathBytesMax,
  "waits.value_hash": ours,
  "workers.id": token,
};

let server: TestServer;
beforeAll(async () => {
  server = await startTestServer({ engine: "postgres" });
}, 60_000);
afterAll(() => server.stop());

interface Column {
  table_name: string;
  index_name: string;
  column_name: string;
  type: string;
}

/** Every column of every index of the migrated database, keys included. */
const columnsOf = () =>
  server.running.domain.store.all<Column>(sql`SELECT t.relname AS table_name, i.relname AS index_name,
      a.attname AS column_name, y.typname AS type
    FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid JOIN pg_class t ON t.oid = x.indrelid
      JOIN pg_namespace n ON n.oid = t.relnamespace
      JOIN pg_attribute a ON a.attrelid = i.oid JOIN pg_type y ON y.oid = a.atttypid
    WHERE n.nspname = current_schema() AND t.relname <> 'migrations'
    ORDER BY 1, 2, a.attnum`);

const boundOf = ({ table_name: table, column_name: column, type }: Column): number | undefined =>
  type === "text" ? (bounds[`${table}.${column}`] ?? bounds[`*.${column}`]) : columnBytes;

test("every text in a key is bounded, so that no index row is too long for Postgres", async () => {
  const columns = await columnsOf();
  expect(columns.length).toBeGreaterThan(100);
  const unbounded = columns.filter((column) => boundOf(column) === undefined);
  expect(unbounded.map(({ table_name, column_name }) => `${table_name}.${column_name}`)).toEqual([]);
  const rows = Map.groupBy(columns, (column) => column.index_name);
  const sizes = [...rows].map(([name, own]) => ({
    name,
    bytes: own.reduce((sum, column) => sum + columnBytes + boundOf(column)!, headBytes),
  }));
  expect(sizes.filter(({ bytes }) => bytes > indexRowBytesMax)).toEqual([]);
});

/** Letters of which no compressor makes less, three bytes each. */
function noise(count: number): string {
  let state = 12;
  const next = () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return String.fromCharCode(0x4e00 + ((state >>> 8) % 20_000));
  };
  return Array.from({ length: count }, next).join("");
}

const long = noise(1_200);
const rpc =
  (method: string, body: object, service = "SvcService") =>
  () =>
    server.rpc(service, method, body);
const put =
  (path: string, body: object, method = "POST") =>
  () =>
    server.api(path, { method, body });

/** What callers may put in a key, by the door that must refuse it when it is too long, naming the field. */
const doors: Record<string, () => Promise<{ status: number; body: { message?: string; error?: string } }>> = {
  "event name": rpc("Emit", { event: long }),
  "idempotency key of an emit": rpc("Emit", { event: "a.b", idempotencyKey: long }),
  "idempotency key of a publish": rpc("Publish", { topic: "a.b", idempotencyKey: long }, "PubSubService"),
  topic: rpc("Publish", { topic: long }, "PubSubService"),
  "function id": rpc("RegisterFunction", { id: long }),
  "function to invoke": rpc("InvokeFunction", { functionId: long }),
  "event of a trigger": rpc("RegisterFunction", { id: "f", triggers: [{ event: long }] }),
  "event of cancelOn": rpc("RegisterFunction", { id: "f", cancelOn: [{ event: long }] }),
  "path of cancelOn": rpc("RegisterFunction", {
    id: "f",
    cancelOn: [{ event: "a.b", match: `data.${long}` }],
  }),
  "group name": rpc("CreateConsumerGroup", { name: long, pattern: "topic:a" }, "PubSubService"),
  "group namespace": rpc(
    "CreateConsumerGroup",
    { name: "g", namespace: long, pattern: "topic:a" },
    "PubSubService",
  ),
  "secret name": put("/api/v1/secrets", { name: long, value: "x" }),
  "worker id": put("/api/v1/workers/w/register", { workerId: long, function_ids: [long] }),
  "role name": put("/api/v1/roles", { name: long }),
  "policy name": put("/api/v1/policies", {
    name: long,
    actions: ["events:emit"],
    resources: ["irn:svc:*:*:event:*:a"],
  }),
  "environment name": put("/api/v1/environments", { name: long }),
  email: put("/api/v1/users", { email: `${long}@example.com`, name: "n", password: "long enough" }),
};

test.each(Object.keys(doors))("a %s too long for its key is refused at the door", async (name) => {
  const { status, body } = await doors[name]!();
  expect([name, status === 404 ? 400 : status]).toEqual([name, 400]);
  expect(body.message ?? body.error).not.toContain("database");
});
