import { afterAll, beforeAll, beforeEach, describe, expect, test } from "bun:test";
import { insertGeneration, newGeneration, serverHolder } from "../../src/domain/state/projections/rows.ts";
import { type DutyWrite, openSweep } from "../../src/domain/state/projections/sweep.ts";
import { systemClock } from "../../src/kit/clock.ts";
import { silentLog } from "../../src/kit/log.ts";
import { sql } from "../../src/kit/sql.ts";
import { openStore } from "../../src/store/open.ts";
import type { Store } from "../../src/store/store.ts";
import { engines, type Home, makeHome, patience } from "../support/server.ts";

const clock = systemClock();
/** More than the sweep reads at once. */
const manyFailing = 230;

// No server runs here: its own loop would delete what these tests put there.
describe.each(engines)("the sweep of dropped generations on %s", (engine) => {
  let home: Home;
  let store: Store;
  beforeAll(async () => {
    home = await makeHome(engine);
    const { db: file, databaseUrl } = home.place;
    store = await openStore({
      clock,
      log: silentLog,
      poolSize: 2,
      hotPoolSize: 1,
      file,
      databaseUrl,
      limits: patience,
    });
  }, 120_000);
  beforeEach(() => store.write((session) => session.run(sql`DELETE FROM projection_generations`)));
  afterAll(async () => {
    await store?.close();
    await home?.remove();
  });

  const drop = (environment: string, names: readonly string[], droppedAt: number) =>
    store.write(async (session) => {
      for (const name of names) {
        const key = { environment_id: environment, name, generation: 1 };
        const row = newGeneration(key, { after: 0, version: 1, isRecording: false, now: 1 });
        await insertGeneration(session, { ...row, holder: `${serverHolder}node` });
        await session.run(sql`UPDATE projection_generations SET dropped_at = ${sql.bigint(droppedAt)}
          WHERE environment_id = ${environment} AND name = ${name}`);
        await session.run(sql`INSERT INTO projection_states (environment_id, name, generation, partition_key,
          last_position, version, updated_at) VALUES (${environment}, ${name}, 1, 'p', 1, 1, 1)
          ON CONFLICT DO NOTHING`);
      }
    });
  const names = (count: number) => Array.from({ length: count }, (_, at) => `p${at}`);
  const left = async () =>
    (
      await store.all<{ environment_id: string }>(
        sql`SELECT environment_id FROM projection_generations ORDER BY environment_id`,
      )
    ).map((row) => row.environment_id);
  const failureOf = (swept: Promise<void>): Promise<unknown> =>
    swept.then(
      () => undefined,
      (error) => error,
    );
  const write: DutyWrite = (work) => store.write(work);

  test("generations that cannot be dropped keep no other from it, and the tick tells of each", async () => {
    await drop("stuck", names(manyFailing), 1_000);
    await drop("beside", ["a"], 1_000);
    await drop("behind", ["b"], 2_000);
    const tried: string[] = [];
    const sweep = openSweep({ store, clock }, async (key) => {
      tried.push(key.environment_id);
      if (key.environment_id === "stuck") throw new Error(`no seat for ${key.name}`);
    });
    const failure = await failureOf(sweep(write));
    expect(await left()).toEqual(Array(manyFailing).fill("stuck"));
    const states = await store.all(sql`SELECT 1 FROM projection_states`);
    expect(states).toEqual([]);
    expect(failure).toBeInstanceOf(AggregateError);
    const { errors } = failure as AggregateError;
    expect(new Set(errors.map(String)).size).toBe(manyFailing);
    // After its first failure an environment's turn is after all others.
    expect(tried.slice(0, 3).toSorted()).toEqual(["behind", "beside", "stuck"]);
    expect(tried).toHaveLength(manyFailing + 2);
  });

  test("what failed is dropped by a later tick", async () => {
    await drop("stuck", names(3), 1_000);
    let isStuck = true;
    const sweep = openSweep({ store, clock }, async () => {
      if (isStuck) throw new Error("no seat");
    });
    expect(await failureOf(sweep(write))).toBeInstanceOf(AggregateError);
    isStuck = false;
    await sweep(write);
    expect(await left()).toEqual([]);
  });

  test("a node that may not write any more ends its tick at once, with that error", async () => {
    await drop("any", names(3), 1_000);
    const deposed = new Error("leads no more");
    let isDeposed = false;
    const tried: string[] = [];
    const sweep = openSweep({ store, clock }, async (key) => {
      tried.push(key.name);
      isDeposed = true;
    });
    const failure = await failureOf(
      sweep(async (work) => {
        if (isDeposed) throw deposed;
        return store.write(work);
      }),
    );
    expect([failure, tried.length]).toEqual([deposed, 1]);
    expect(await left()).toHaveLength(3);
  });
});
