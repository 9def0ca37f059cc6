import { afterAll, beforeAll, expect, test } from "bun:test";
import { type Sql, sql } from "../../src/kit/sql.ts";
import {
  type Bounds,
  type HotWork,
  ofTables,
  plantedTables,
  startHotWork,
  transientTables,
} from "../support/hot-work.ts";
import { isNight } from "../support/night.ts";
import { plant } from "../support/plant.ts";

const othersRows = 20_000;
const queued = 8_000;

/** A batch of this test has 40 runs, and what is tried and taken back leaves its versions behind. */
const bounds: Bounds = { rows: 2_500, flushPages: 5_000, flushScanned: 1_000, scanned: 5_000 };
/**
 * Where `runs` is believed to have not one row, each run of a flush is found by a walk over `runs_by_function`: a page is counted
 * as often as it is read. Seen: 8,725.
 */
const unbelievedScannedMax = 10_000;

const all = ofTables(plantedTables);
const pages = sql.raw("(pg_relation_size(c.oid) / 8192)");
const empty = (tables: Sql) => sql`UPDATE pg_class c SET reltuples = 0, relpages = ${pages} WHERE ${tables}`;

/** What the planner may believe of the sizes of tables, written where it looks. */
const beliefs: Record<string, { belief: Sql; flushScanned?: number }> = {
  "what was counted": { belief: sql`SELECT 1` },
  "nothing in what is empty between bursts": { belief: empty(ofTables(transientTables)) },
  "nothing at all": { belief: empty(all), flushScanned: unbelievedScannedMax },
  "never counted": { belief: sql`UPDATE pg_class c SET reltuples = -1, relpages = 0 WHERE ${all}` },
  "a billion rows": { belief: sql`UPDATE pg_class c SET reltuples = 1e9, relpages = ${pages} WHERE ${all}` },
};

/** By day the two that have least in common. */
const asked = Object.entries(beliefs).filter(
  ([name]) => isNight || ["what was counted", "nothing at all"].includes(name),
);

let hot: HotWork;
beforeAll(async () => {
  hot = await startHotWork();
  await hot.plantOthers(othersRows);
  await hot.plantOwn(queued);
}, 120_000);
afterAll(() => hot?.stop());

test.each(asked)(
  "no hot statement reads what is not its own, whatever the planner believes: %s",
  async (_, { belief, ...more }) => {
    await hot.plans.vacuum();
    await hot.store.write((session) => session.all(belief));
    expect(await hot.excess({ ...bounds, ...more })).toEqual([]);
  },
  120_000,
);

test("runs that begin together and end together stay on their pages, where no index is told of them", async () => {
  const numbered = (kind: string) => `'${kind}_paged_' || lpad(CAST(n AS text), 21, '0')`;
  await plant(hot.store, "runs", 60, {
    ...{
      id: numbered("run"),
      environment_id: "'env_default'",
      function_id: "'three-steps'",
      status: "'active'",
    },
    ...{ event_id: numbered("evt"), event_name: "'order.paid'", mode: "'pull'" },
  });
  const places = () =>
    hot.store.all<{
      id: string;
      page: string;
    }>(sql`SELECT id, split_part(CAST(ctid AS text), ',', 1) AS page FROM runs
      WHERE id > 'run_paged' AND id < 'run_pagee' ORDER BY id`);
  const before = await places();
  await hot.store.write((session) =>
    session.run(sql`UPDATE runs SET status = 'completed', worker_id = 'worker-mwsioo6y-zdl9s1', output = '{"result":3}',
      lease_hash = ${"9".repeat(32)}, started_at = 1, ended_at = 2 WHERE id > 'run_paged' AND id < 'run_pagee'`),
  );
  const moved = (await places()).filter(({ page }, place) => page !== before[place]!.page);
  expect(before).toHaveLength(60);
  // With half of each page free it was a quarter.
  expect(moved.length).toBeLessThanOrEqual(6);
});
