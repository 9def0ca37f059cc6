import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { firstSince, lastUntil } from "../../src/domain/engine/repairs/replays/rows.ts";
import { openLook } from "../../src/domain/log/core/look.ts";
import { namesScanCap } from "../../src/domain/log/core/rows.ts";
import { positionBefore } from "../../src/domain/record/export/rows.ts";
import { positionAt } from "../../src/domain/record/retention/rows.ts";
import { render, type Sql, sql } from "../../src/kit/sql.ts";
import type { Store } from "../../src/store/store.ts";
import { storeOf } from "../cluster/load.ts";
import { lookingAt, rowsReadFor } from "../support/plan-rows.ts";
import { plant } from "../support/plant.ts";
import { engines, type Home, makeHome } from "../support/server.ts";

const stored = namesScanCap + 2_000;
const rare = 3;
const environmentId = "env_1";

describe.each(engines)("lookups of events on %s", (engine) => {
  let home: Home;
  let store: Store;
  let reader: Store;
  /** Of each question: the rows that it reads on PostgreSQL, and how it finds events on libSQL. */
  let looks: { text: string; rows: number; searches: string[] }[] = [];

  async function look(query: Sql): Promise<void> {
    const { text } = render(query, () => "?", "shown");
    if (engine === "postgres") {
      looks.push({ text, rows: await rowsReadFor(store, query), searches: [] });
      return;
    }
    const steps = await store.all<{ detail: string }>(sql`EXPLAIN QUERY PLAN ${query}`);
    const searches = steps
      .map(({ detail }) => detail)
      .filter((detail) => /^(SEARCH|SCAN) (events|v)\b/.test(detail));
    looks.push({ text, rows: 0, searches });
  }

  beforeAll(async () => {
    home = await makeHome(engine);
    store = await storeOf(home);
    const plantEvents = (name: string, count: number, first: number) =>
      plant(
        store,
        "events",
        count,
        {
          ...{ environment_id: `'${environmentId}'`, position: "n", at: "n", name: `'${name}'` },
          ...{
            id: "'evt_0' || substr(CAST(100000000 + n AS TEXT), 2)",
            version: "1",
            data: "'{}'",
            source: "'api'",
          },
        },
        first,
      );
    await plantEvents("shop.rare", rare, 1);
    await plantEvents("shop.busy", stored, rare + 1);
    reader = lookingAt(store, look);
  }, 120_000);
  afterAll(async () => {
    await store?.close();
    await home?.remove();
  });

  /** The looks at whole environments: by none of name, time and position. */
  const wide = () =>
    looks.flatMap(({ text, rows, searches }) =>
      rows > 4 * rare || searches.some((search) => !/environment_id=\? AND (name|at|position)\b/.test(search))
        ? `${rows} rows, ${searches}: ${text}`
        : [],
    );

  test("few events of a name behind many others are read by their name", async () => {
    looks = [];
    const found = openLook(reader, { environmentId, name: "RARE" });
    const { keys } = await found.keys(undefined, 20);
    expect(keys.map(({ position }) => Number(position))).toEqual([3, 2, 1]);
    expect(keys[0]!.id).toBe("evt_000000003");
    expect(await found.count()).toEqual({ count: rare, isCut: false });
    looks = looks.filter(({ text }) => text.includes("name = "));
    expect(looks.length).toBe(3);
    expect(wide()).toEqual([]);
  });

  test("positions of a time are read by the time", async () => {
    looks = [];
    const middle = stored / 2;
    expect(await positionAt(reader, environmentId, middle)).toBe(middle);
    expect(await positionBefore(reader, environmentId, middle)).toBe(middle - 1);
    expect(await firstSince(reader, environmentId, middle)).toBe(middle);
    expect(await lastUntil(reader, environmentId, middle)).toBe(middle);
    expect(looks.length).toBe(5);
    expect(wide()).toEqual([]);
  });
});
