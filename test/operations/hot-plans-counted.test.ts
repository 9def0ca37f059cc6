import { afterAll, beforeAll, expect, test } from "bun:test";
import { sql } from "../../src/kit/sql.ts";
import { type Bounds, type HotWork, plantedTables, startHotWork } from "../support/hot-work.ts";

/**
 * Statistics that ANALYZE really took, and that describe another table than the one that is there: distinct values, most common
 * ones and histograms as well as sizes.
 */
const hugeRows = 50_000;
const grownRows = 12_000;
const smallRows = 4_000;
const dozen = 12;

/** Less than `smallRows`, so that a walk over any table shows. */
const bounds: Bounds = { rows: 2_500, flushPages: 5_000, flushScanned: 1_000, scanned: 1_000 };

/**
 * Where a table is believed to have no row, a claim and a report with attributes look for their runs and events in an index that has
 * the id last, each once through it: two tables, 32 of a flush, at most 250 pages. How many depends on how the machine runs.
 */
const unknown: Bounds["wide"] = [
  { text: /^WITH (lane|demand|report) AS MATERIALIZED/, scanned: 2 * 32 * 250 },
];

/**
 * Where no execution was leased when they were counted, PostgreSQL counts the leases of a lane by `executions_by_wake`: all that are
 * not queued, a quarter of them leased and a quarter asleep here, three times a claim of a function with a limit.
 */
const wide: Bounds["wide"] = [
  { text: /FROM executions x WHERE x\.lane_id/, rows: 2 * grownRows, scanned: 2 * grownRows },
];

let hot: HotWork;
beforeAll(async () => {
  hot = await startHotWork();
}, 120_000);
afterAll(() => hot?.stop());

const counted = sql.raw(plantedTables.join(", "));
const analyze = () => hot.store.write((session) => session.run(sql`ANALYZE ${counted}`));
async function clear(): Promise<void> {
  for (const table of plantedTables)
    await hot.store.write((session) => session.run(sql`DELETE FROM ${sql.raw(table)}`));
}

/** How often each environment is believed to stand in a table, in thousandths; one that is not named is believed absent. */
const believedOf = async (table: string) => {
  const [row] = await hot.store.all<{ names: string | null; shares: string | null; tuples: number }>(sql`
    SELECT CAST(s.most_common_vals AS text) AS names, CAST(s.most_common_freqs AS text) AS shares, c.reltuples AS tuples
    FROM pg_class c LEFT JOIN pg_stats s ON s.tablename = c.relname AND s.attname = 'environment_id'
    WHERE c.oid = CAST(${table} AS regclass)`);
  return row!;
};

test("counted when huge, then emptied and vacuumed: no hot statement walks a small table", async () => {
  await hot.plantOthers(hugeRows / 2, 1_000_000);
  await hot.plantOwn(hugeRows / 2, 1_000_000);
  await analyze();
  expect((await believedOf("executions")).tuples).toBe(hugeRows);
  await clear();
  await hot.plans.clean();
  await hot.plantOthers(smallRows);
  await hot.plantOwn(smallRows);
  const { names, tuples } = await believedOf("executions");
  expect([names, tuples]).toEqual([
    expect.stringMatching(/env_default.*env_other|env_other.*env_default/),
    0,
  ]);
  expect(await hot.excess({ ...bounds, wide: unknown })).toEqual([]);
}, 120_000);

test("nor where no vacuum came since, so that it is believed to be as large as ever", async () => {
  await hot.store.write((session) =>
    session.all(sql`UPDATE pg_class c SET reltuples = ${hugeRows}, relpages = 5000
      WHERE c.oid IN (${sql.raw(plantedTables.map((table) => `'${table}'::regclass`).join(", "))})`),
  );
  expect(await hot.excess(bounds)).toEqual([]);
}, 120_000);

test.each([
  ["a neighbour's, who alone is known", "others"],
  ["its own, who alone is known", "own"],
])(
  "counted when a table had a dozen rows, then grown: %s",
  async (_, whose) => {
    await clear();
    await hot.plans.clean();
    if (whose === "others") await hot.plantOthers(dozen, 2_000_000);
    else await hot.plantOwn(dozen, 2_000_000);
    await analyze();
    const { names, tuples } = await believedOf("executions");
    expect([names, tuples]).toEqual([whose === "others" ? "{env_other}" : "{env_default}", dozen]);
    await hot.plantOthers(grownRows);
    await hot.plantOwn(smallRows);
    expect(await hot.excess({ ...bounds, wide })).toEqual([]);
  },
  120_000,
);
