import { describe, expect, test } from "bun:test";
import { readerOf, requireRow } from "../../src/app/import-readers.ts";
import { definitionOf } from "../../src/domain/engine/functions/rules.ts";
import { exportedTables } from "../../src/store/exported-tables.ts";

const tableNamed = (name: string) => exportedTables.find(({ table }) => table === name)!;

test("no exported column lacks a reader", () => {
  const unread = exportedTables.flatMap((table) =>
    Object.keys(table.columns)
      .filter((column) => readerOf(table, column) === undefined)
      .map((column) => `${table.table}.${column}`),
  );
  expect(unread).toEqual([]);
});

const deep = (levels: number): unknown => (levels === 0 ? 1 : [deep(levels - 1)]);

describe("a row is read by the rules of its operation", () => {
  const function_ = definitionOf({ id: "f", triggers: [{ event: "a" }] });
  const policy = { actions: "*", resources: "*", condition: "" };
  const refused: [table: string, row: object, rule: RegExp][] = [
    ["environments", { name: "prod\u001b]0;PWNED\u0007" }, /^name: at most 63 characters of a-z/],
    ["environments", { color: "\u001b[31m" }, /^color: /],
    ["projects", { name: "a\u009b2J" }, /control/],
    ["events", { name: "a b" }, /^name: /],
    ["events", { data: deep(33) }, /nested deeper/],
    ["events", { metadata: { a: Number.POSITIVE_INFINITY } }, /out of range/],
    ["runs", { status: "bogus" }, /^status: must be one of/],
    ["runs", { output: deep(40) }, /nested deeper/],
    ["runs", { created_at: 9e15 }, /^created_at: /],
    ["runs", { created_at: -1 }, /^created_at: /],
    ["steps", { status: "done" }, /^status: /],
    ["steps", { wait_event_name: "a\u001b" }, /one line of text/],
    ["functions", { id: "f", definition: { ...function_, triggers: [{ cron: 5 }] } }, /^definition: is not/],
    ["functions", { id: "f", definition: { ...function_, triggers: [null] } }, /^definition: is not/],
    ["functions", { id: "f", definition: { ...function_, triggers: [{ event: 5 }] } }, /^definition: is not/],
    ["functions", { id: "f", definition: { ...function_, triggers: [{}] } }, /triggers\[0\]: must have/],
    ["functions", { id: "f", definition: { ...function_, timeoutMs: "1" } }, /^timeoutMs/],
    ["functions", { id: "f", definition: { ...function_, own: 1 } }, /definition\.own: is not/],
    ["functions", { id: "g", definition: function_ }, /must be that of the function/],
    ["functions", { status: "bogus" }, /^status: /],
    ["policies", { ...policy, condition: "1 +" }, /^condition: /],
    ["policies", { ...policy, resources: "x" }, /^resources: /],
    ["policies", { name: "a\u001b" }, /control/],
    ["roles", { id: "role_admin" }, /built-in/],
    ["roles", { id: "prole_platform_admin" }, /built-in/],
    ["roles", { name: "admin" }, /exists/],
    ["roles", { base: "platform_admin" }, /^base: must be one of/],
    ["users", { email: "nobody" }, /email address/],
    ["users", { role_ids: [1] }, /list of texts/],
    ["streams", { entity_id: "a\u0000" }, /entityId/],
    ["kv_buckets", { name: "SYS_x" }, /must not begin/],
    ["kv_keys", { key: "a/../b" }, /dots|\.\./],
    ["kv_keys", { operation: "drop" }, /^operation: /],
    ["event_schemas", { schema_json: "{" }, /./],
    ["projections", { mode: "own" }, /^mode: /],
  ];
  test.each(refused)("%s %j", (table, row, rule) => {
    expect(() => requireRow(tableNamed(table), { ...row })).toThrow(rule);
  });

  test("a step may have waited for several things, of any kind", () => {
    const row = { wait_event_name: "order.paid, stream o-1, carts/user 1" };
    expect(() => requireRow(tableNamed("steps"), row)).not.toThrow();
  });

  test("a step that began by another clock took no time", () => {
    const row = { duration_ms: -1 };
    requireRow(tableNamed("steps"), row);
    expect(row.duration_ms).toBe(0);
  });

  test("an address is stored as users are found by it", () => {
    const row = { email: "Victim@Other.Example", name: null };
    requireRow(tableNamed("users"), row);
    expect(row).toEqual({ email: "victim@other.example", name: null });
  });

  test("what is registered is taken as it is stored, with every option", () => {
    const definition = definitionOf({
      ...{ id: "f", name: "F", description: "d", triggers: [{ event: "a.*", expression: "data.n > 1" }] },
      ...{
        retry: { maxAttempts: 5, backoffFactor: 3, maxDelayMs: 9_000 },
        retryDelayMs: 0,
        timeoutMs: 60_000,
      },
      ...{ concurrency: { limit: 3, key: "data.k" }, debounce: { periodMs: 2_000, maxWaitMs: 4_000 } },
      ...{ endpointUrl: "https://example.test/f", actorKey: "data.actor", recording: true },
      ...{ recordingProfile: "all", recordingRetention: "7d", secrets: ["s"], metadata: { a: [1] } },
      ...{ cancelOn: [{ event: "b", match: "data.id" }], compensateOn: ["failure"], onFailure: true },
      ...{ nondeterminism: "fail", attributes: [{ name: "who", path: "data.who", type: "text" }] },
    });
    const stored = JSON.parse(JSON.stringify(definition));
    expect(() => requireRow(tableNamed("functions"), { id: "f", definition: stored })).not.toThrow();
    const { recording: _none, ...older } = stored;
    expect(() => requireRow(tableNamed("functions"), { id: "f", definition: older })).not.toThrow();
  });
});
