import { afterAll, beforeAll, expect, test } from "bun:test";
import { endpointKeyBytesMax } from "../../src/domain/engine/breakers/rows.ts";
import { sql } from "../../src/kit/sql.ts";
import { tables } from "../../src/store/tables/index.ts";
import { sharedTexts } from "../../src/store/tables/table.ts";
import { made } from "../support/made.ts";
import { startTestServer, type TestServer } from "../support/server.ts";

/** An index row of Postgres takes 2,704 bytes; its head and the alignment of its columns take some of them. */
const indexRowBytesMax = 2_704;
const headBytes = 16;
const columnBytes = 8;

let server: TestServer;
beforeAll(async () => {
  server = await startTestServer({ engine: "postgres" });
}, 120_000);
afterAll(() => server?.stop());

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

const textBound = (table: string, column: string): number | undefined =>
  tables[table]?.texts?.[column] ?? sharedTexts[column];
const boundOf = ({ table_name: table, column_name: column, type }: Column): number | undefined =>
  type === "text" ? textBound(table, column) : columnBytes;

test("every text in a key is bounded, so that no index row is too long for Postgres", async () => {
  const columns = await columnsOf();
  expect(columns.length).toBeGreaterThan(100);
  const unbounded = columns.filter((column) => boundOf(column) === undefined);
  expect(
    unbounded.map(({ table_name, column_name }) => `${table_name}.${column_name}`),
    "indexed texts without a bound in `texts` of store/tables/",
  ).toEqual([]);
  const indexed = new Set(columns.map(({ table_name, column_name }) => `${table_name}.${column_name}`));
  const bounded = Object.entries(tables).flatMap(([table, { texts = {} }]) =>
    Object.keys(texts).map((column) => `${table}.${column}`),
  );
  expect(
    bounded.filter((name) => !indexed.has(name)),
    "`texts` that stand in no index",
  ).toEqual([]);
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

/** Longer than a bound in bytes: by one, of one byte each and of three, and by far. */
const tooLong = (bound: number) => ["x".repeat(bound + 1), noise(Math.ceil((bound + 1) / 3)), noise(1_200)];

type Answered = Promise<{ status: number; body: { message?: string; error?: string } }>;
const rpc = (method: string, body: object, service = "SvcService"): Answered =>
  server.rpc(service, method, body);
const post = (path: string, body: object): Answered => server.api(path, { method: "POST", body });

/** What callers may put in a key, by the door that must refuse it when it is too long, naming the field; rows of `made` besides. */
const doors: Record<string, [column: string, ask: (long: string) => Answered]> = {
  "event name": ["events.name", (event) => rpc("Emit", { event })],
  "idempotency key of an emit": [
    "idempotency_keys.key",
    (idempotencyKey) => rpc("Emit", { event: "a.b", idempotencyKey }),
  ],
  "idempotency key of a publish": [
    "topic_messages.idempotency_key",
    (idempotencyKey) => rpc("Publish", { topic: "a.b", idempotencyKey }, "PubSubService"),
  ],
  topic: ["topics.name", (topic) => rpc("Publish", { topic }, "PubSubService")],
  "function to invoke": ["functions.id", (functionId) => rpc("InvokeFunction", { functionId })],
  "event of a trigger": [
    "waits.event_name",
    (event) => rpc("RegisterFunction", { id: "f", triggers: [{ event }] }),
  ],
  "event of cancelOn": [
    "waits.event_name",
    (event) => rpc("RegisterFunction", { id: "f", cancelOn: [{ event }] }),
  ],
  "path of cancelOn": [
    "waits.match_path",
    (long) => rpc("RegisterFunction", { id: "f", cancelOn: [{ event: "a.b", match: `data.${long}` }] }),
  ],
  "group namespace": [
    "consumer_groups.namespace",
    (namespace) => rpc("CreateConsumerGroup", { name: "g", namespace, pattern: "topic:a" }, "PubSubService"),
  ],
  "partition of a projection": [
    "projection_states.partition_key",
    (partitionKey) =>
      rpc(
        "SaveProjectionState",
        { name: "p", partitionKey, state: {}, lastEventSeq: "1" },
        "ProjectionService",
      ),
  ],
  "role name": ["roles.name", (name) => post("/api/v1/roles", { name })],
  "policy name": [
    "policies.name",
    (name) =>
      post("/api/v1/policies", {
        name,
        actions: ["events:emit"],
        resources: ["irn:svc:*:*:event:*:a"],
      }),
  ],
  "environment name": ["environments.name", (name) => post("/api/v1/environments", { name })],
  email: [
    "users.email",
    (long) => post("/api/v1/users", { email: `${long}@example.com`, name: "n", password: "long enough" }),
  ],
  ...Object.fromEntries(
    Object.entries(made).flatMap(([table, { named, ask }]) => {
      const tried = (name: string) => {
        const { path, ...options } = ask({ name, marker: "m" });
        return server.api(path, options);
      };
      return named === undefined ? [] : [[`${named} of ${table}`, [`${table}.${named}`, tried]]];
    }),
  ),
};

test.each(Object.keys(doors))("a %s too long for its key is refused at the door", async (name) => {
  const [column, ask] = doors[name]!;
  const [table, own] = column.split(".") as [string, string];
  for (const long of tooLong(textBound(table, own)!)) {
    const { status, body } = await ask(long);
    expect([name, long.length, status === 404 ? 400 : status]).toEqual([name, long.length, 400]);
    expect(body.message ?? body.error).not.toContain("database");
  }
});

test("a bound without a door is its rule's", () => {
  expect(textBound("breakers", "endpoint_url")).toBe(endpointKeyBytesMax);
  expect(textBound("platform_users", "email")).toBe(textBound("users", "email")!);
});
