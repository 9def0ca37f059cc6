import { describe, expect, test } from "bun:test";
import type { FunctionRecord } from "../../src/domain/engine/functions/definition.ts";
import { openDefinitions } from "../../src/domain/engine/functions/definitions.ts";
import { definitionOf, type RegisterInput } from "../../src/domain/engine/functions/rules.ts";
import type { SeenEvent } from "../../src/kit/stored-event.ts";
import type { Row, Store } from "../../src/store/store.ts";

const record = (
  id: string,
  changes: Partial<RegisterInput> = {},
  status: FunctionRecord["status"] = "active",
) => ({
  environmentId: "env_1",
  definition: definitionOf({ id, ...changes }),
  status,
  version: 1,
  createdAt: 1_000,
  updatedAt: 2_000,
});

describe("the cache that emits are matched with", () => {
  /** A store that answers the rows of these functions and counts how often it is asked. */
  function storeOf(answer: () => { version: number; records: FunctionRecord[] } | undefined) {
    let reads = 0;
    const all = async (): Promise<Row[]> => {
      reads++;
      const found = answer();
      if (!found) return [];
      const head = { definitions_version: found.version };
      if (found.records.length === 0) return [{ ...head, id: null }];
      return found.records.map(({ environmentId, definition, status, version, createdAt, updatedAt }) => ({
        ...head,
        id: definition.id,
        environment_id: environmentId,
        status,
        version,
        definition: JSON.stringify(definition),
        created_at: createdAt,
        updated_at: updatedAt,
      }));
    };
    return { store: { all } as unknown as Store, reads: () => reads };
  }
  const event = (data: unknown): SeenEvent => ({
    id: "evt_1",
    name: "order.placed",
    data,
    metadata: { source: "shop" },
    version: 1,
    source: "api",
    timestamp: 86_400_000,
  });

  test("triggers of active functions, by the event's name", async () => {
    const { store } = storeOf(() => ({
      version: 7,
      records: [
        record("always", { triggers: [{ event: "order.placed" }, { event: "order.changed" }] }),
        record("large", { triggers: [{ event: "order.placed", expression: "data.total > 5" }] }),
        record("both", { triggers: [{ event: "order.placed", cron: "* * * * *" }] }),
        record("timed", { triggers: [{ cron: "* * * * *" }] }),
        record("paused", { triggers: [{ event: "order.placed" }] }, "paused"),
        record("archived", { triggers: [{ event: "order.placed" }] }, "archived"),
      ],
    }));
    const definitions = await openDefinitions(store).of("env_1");
    const started = (data: unknown) =>
      definitions
        .triggersOf("order.placed")
        .filter((trigger) => trigger.matches(event(data)))
        .map((trigger) => trigger.record.definition.id);
    expect(definitions.version).toBe(7);
    expect(started({ total: 6 })).toEqual(["always", "large", "both"]);
    expect(started({ total: 5 })).toEqual(["always", "both"]);
    expect(definitions.triggersOf("order.changed")).toHaveLength(1);
    for (const name of ["order", "order.placed.", "constructor", ""])
      expect(definitions.triggersOf(name)).toEqual([]);
  });

  test("a pattern's triggers come behind those of the name, in the order of the functions", async () => {
    const records = [
      record("all", { triggers: [{ event: ">" }] }),
      record("orders", { triggers: [{ event: "order.*" }] }),
      record("deep", { triggers: [{ event: "order.>" }, { event: "*.placed" }] }),
      record("one", { triggers: [{ event: "order.placed" }] }),
      record("asleep", { triggers: [{ event: "order.*" }] }, "paused"),
    ];
    const definitions = await openDefinitions(storeOf(() => ({ version: 1, records })).store).of("env_1");
    const ids = (name: string) =>
      definitions.triggersOf(name).map(({ record: { definition } }) => definition.id);
    expect(ids("order.placed")).toEqual(["one", "all", "orders", "deep", "deep"]);
    expect(ids("order.placed.twice")).toEqual(["all", "deep"]);
    expect(ids("order")).toEqual(["all"]);
    expect(ids("cart.placed")).toEqual(["all", "deep"]);
  });

  test("an expression sees the event, and one that fails does not match", async () => {
    const expressions = [
      "event.name == 'order.placed' && event.id == 'evt_1' && event.version == 1 && event.source == 'api'",
      "event.metadata.source == 'shop' && event.data.total == data.total",
      "event.timestamp == timestamp('1970-01-02T00:00:00Z')",
      "data.missing == 1",
      "data.total",
      "data.total.deeper == 1",
    ];
    const records = expressions.map((expression, at) =>
      record(`f${at}`, { triggers: [{ event: "order.placed", expression }] }),
    );
    const definitions = await openDefinitions(storeOf(() => ({ version: 1, records })).store).of("env_1");
    const matched = (data: unknown) =>
      definitions.triggersOf("order.placed").map((trigger) => trigger.matches(event(data)));
    expect(matched({ total: 1 })).toEqual([true, true, true, false, false, false]);
    expect(matched("a text")).toEqual([true, false, true, false, false, false]);
    expect(matched(null)).toEqual([true, false, true, false, false, false]);
  });

  test("askers at once share one read, and what is known costs none", async () => {
    const { store, reads } = storeOf(() => ({ version: 1, records: [] }));
    const cache = openDefinitions(store);
    expect(cache.known("env_1")).toBeUndefined();
    const [one, other] = await Promise.all([cache.of("env_1"), cache.reload("env_1")]);
    expect(one).toBe(other);
    expect(await cache.of("env_1")).toBe(one);
    expect(cache.known("env_1")).toBe(one);
    expect(reads()).toBe(1);
    await cache.reload("env_1");
    expect(reads()).toBe(2);
  });

  test("what is current is of no read that began before the change", async () => {
    let version = 1;
    const { store } = storeOf(() => ({ version, records: [] }));
    const gate = Promise.withResolvers<void>();
    const held = {
      // Its snapshot is of now, its answer comes late.
      all: async (query: never) => {
        const rows = await store.all(query);
        if (version === 1) await gate.promise;
        return rows;
      },
      one: async () => ({ definitions_version: version }),
    } as unknown as Store;
    const cache = openDefinitions(held);
    const before = cache.of("env_1");
    await Promise.resolve();
    version = 2;
    const current = cache.current("env_1");
    gate.resolve();
    expect((await current).version).toBe(2);
    expect((await before).version).toBe(1);
  });

  test("an environment that is gone is missing and forgotten; a failed read is not kept", async () => {
    let answer: () => { version: number; records: FunctionRecord[] } | undefined = () => ({
      version: 1,
      records: [],
    });
    const cache = openDefinitions(storeOf(() => answer()).store);
    await cache.of("env_1");
    answer = () => {
      throw new Error("the disk is gone");
    };
    await expect(cache.reload("env_1")).rejects.toThrow("the disk is gone");
    answer = () => undefined;
    await expect(cache.reload("env_1")).rejects.toMatchObject({ kind: "not_found" });
    answer = () => ({ version: 2, records: [] });
    expect((await cache.reload("env_1")).version).toBe(2);
  });
});
