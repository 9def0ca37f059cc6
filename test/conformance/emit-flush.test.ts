import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { emitFlush, staleDefinitions } from "../../src/domain/engine/emit/flush.ts";
import type { NewEvent } from "../../src/domain/engine/emit/new-event.ts";
import { systemClock } from "../../src/kit/clock.ts";
import { lostKeys } from "../../src/kit/key-claims.ts";
import { silentLog } from "../../src/kit/log.ts";
import { sql } from "../../src/kit/sql.ts";
import { openStore } from "../../src/store/open.ts";
import { isMarked, type Store } from "../../src/store/store.ts";
import { plant } from "../support/plant.ts";
import { engines, type Home, makeHome } from "../support/server.ts";

const definitions = new Map([
  ["env_a", 1],
  ["env_b", 1],
]);
let made = 0;

const eventOf = (environmentId: string, idempotencyKey: string | null = null): NewEvent => ({
  ...{ id: `evt_${String(++made).padStart(6, "0")}`, environmentId, name: "e", version: 1, data: "{}" },
  ...{
    metadata: null,
    source: "api",
    idempotencyKey,
    invokes: null,
    runId: null,
    entity: null,
    schema: null,
  },
  ...{ runs: [], arms: [] },
});

/** A flush of one environment is another text than one of several: both must mean the same. */
describe.each(engines)("events of one environment and of several on %s", (engine) => {
  let home: Home;
  let store: Store;
  beforeAll(async () => {
    home = await makeHome(engine);
    const { db, databaseUrl } = home.place;
    store = await openStore({ clock: systemClock(), log: silentLog, databaseUrl, file: db, poolSize: 4 });
    for (const id of definitions.keys())
      await plant(store, "heads", 1, {
        ...{ environment_id: `'${id}'`, definitions_version: "1" },
        ...{ position: "0", last_at: "0", retention_floor: "0", epoch: "1" },
      });
  }, 120_000);
  afterAll(async () => {
    await store.close();
    await home.remove();
  });

  const flush = (events: readonly NewEvent[], more: object = {}) =>
    store.flush(emitFlush, { now: 1_000, events, definitions, ...more });
  const positions = async (events: readonly NewEvent[], more: object = {}) =>
    (await flush(events, more)).sort((a, b) => a.ord - b.ord).map(({ ord, position }) => [ord, position]);
  const heads = async () =>
    Object.fromEntries(
      (
        await store.all<{ id: string; position: number }>(
          sql`SELECT environment_id AS id, position FROM heads WHERE environment_id LIKE 'env\\__' ESCAPE '\\'`,
        )
      ).map(({ id, position }) => [id, position]),
    );
  const refusal = async (asked: Promise<unknown>) =>
    asked.then(
      () => "none",
      (error) =>
        [staleDefinitions, lostKeys].find((mark) => isMarked(error, mark)) ?? (error as Error).message,
    );

  test("positions follow the head in the order of arrival", async () => {
    expect(await positions([eventOf("env_a"), eventOf("env_a")])).toEqual([
      [1, 1],
      [2, 2],
    ]);
    expect(await positions([eventOf("env_b"), eventOf("env_a"), eventOf("env_b")])).toEqual([
      [1, 1],
      [2, 3],
      [3, 2],
    ]);
    expect(await positions([eventOf("env_a")])).toEqual([[1, 4]]);
    expect(await heads()).toEqual({ env_a: 4, env_b: 2 });
  });

  test.each([
    ["alone", 0],
    ["beside another environment", 1],
  ])("what repeats a key is not written, and takes no position: %s", async (_, others) => {
    const { env_a: from, env_b: other } = (await heads()) as { env_a: number; env_b: number };
    const key = `k-${made}`;
    let beside = other;
    /** Events of `env_a`, and behind them another's where there are several. */
    const asked = (...keys: (string | null)[]) => [
      ...keys.map((one) => eventOf("env_a", one)),
      ...Array.from({ length: others }, () => eventOf("env_b", `other-${made}`)),
    ];
    const otherAt = (ord: number) => Array.from({ length: others }, () => [ord, ++beside]);
    expect(await positions(asked(key, null))).toEqual([[1, from + 1], [2, from + 2], ...otherAt(3)]);
    expect(await positions(asked(key, null))).toEqual([[2, from + 3], ...otherAt(3)]);
    expect(await positions(asked(key))).toEqual(otherAt(2));
    const refused = asked(key, null);
    expect(await refusal(flush(refused, { bound: new Set(refused.slice(0, 1)) }))).toBe(lostKeys);
    expect(await heads()).toEqual({ env_a: from + 3, env_b: beside });
  });

  test("a function that changed meanwhile refuses all of it", async () => {
    const before = await heads();
    const stale = {
      definitions: new Map([
        ["env_a", 0],
        ["env_b", 1],
      ]),
    };
    expect(await refusal(flush([eventOf("env_a")], stale))).toBe(staleDefinitions);
    expect(await refusal(flush([eventOf("env_a"), eventOf("env_b")], stale))).toBe(staleDefinitions);
    expect(await refusal(flush([eventOf("env_a", "never")], stale))).toBe(staleDefinitions);
    expect(await positions([eventOf("env_b")], stale)).toEqual([[1, before.env_b! + 1]]);
    expect(await positions([eventOf("env_a", "never")])).toEqual([[1, before.env_a! + 1]]);
  });

  test("an environment that is gone takes nothing", async () => {
    const gone = { definitions: new Map([...definitions, ["env_gone", 1]]) };
    expect(await positions([eventOf("env_gone")], gone)).toEqual([]);
    expect(await positions([eventOf("env_gone", "k")], gone)).toEqual([]);
    const { env_a: from } = (await heads()) as { env_a: number };
    expect(await positions([eventOf("env_gone"), eventOf("env_a")], gone)).toEqual([[2, from + 1]]);
  });

  test("flushes of both kinds at once leave no gap", async () => {
    const kinds = [["env_a"], ["env_b"], ["env_a", "env_b"], ["env_b", "env_a"]];
    await Promise.all(
      Array.from({ length: 80 }, (_, n) =>
        flush(kinds[n % 4]!.map((id) => eventOf(id, n % 3 === 0 ? `race-${n % 6}-${id}` : null))),
      ),
    );
    const rows = await store.all<{ id: string; last: number; count: number; written: number }>(
      sql`SELECT e.environment_id AS id, max(e.position) AS last, count(*) AS count, max(h.position) AS written
        FROM events e JOIN heads h ON h.environment_id = e.environment_id GROUP BY e.environment_id`,
    );
    expect(rows).toHaveLength(2);
    for (const { last, count, written } of rows) expect([count, written]).toEqual([last, last]);
  });
});
