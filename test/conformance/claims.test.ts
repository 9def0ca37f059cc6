import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type EmittedRow, emitFlush } from "../../src/domain/engine/emit/flush.ts";
import type { NewEvent } from "../../src/domain/engine/emit/new-event.ts";
import { lanePrefix, sharedLane } from "../../src/domain/engine/functions/rules.ts";
import { type ClaimedRow, claimFlush } from "../../src/domain/engine/runs/execution/claim.ts";
import { claimLimitedFlush, type LaneFound } from "../../src/domain/engine/runs/execution/claim-limited.ts";
import { adoptRuns, forgetLanes, lookAtLanes } from "../../src/domain/engine/runs/execution/lane-rows.ts";
import type { NewRun } from "../../src/domain/engine/runs/run.ts";
import { wakeDue } from "../../src/domain/engine/runs/wakes/due.ts";
import { systemClock } from "../../src/kit/clock.ts";
import { silentLog } from "../../src/kit/log.ts";
import { column, sql } from "../../src/kit/sql.ts";
import { openLibsql } from "../../src/store/libsql.ts";
import { migrate } from "../../src/store/migrate.ts";
import { openPostgres } from "../../src/store/postgres.ts";
import { schema } from "../../src/store/schema.ts";
import type { Store } from "../../src/store/store.ts";
import { sharedPostgres } from "../support/postgres.ts";
import { patience } from "../support/server.ts";

const clock = systemClock();
const environmentId = "env_a";
const now = 1_000_000;

/** Claims must mean the same on both engines. */
describe.each(["libsql", "postgres"] as const)("claims on %s", (engine) => {
  const folder = mkdtempSync(join(tmpdir(), "svc-claims-"));
  let store: Store;
  let close: () => Promise<void>;

  beforeAll(async () => {
    if (engine === "libsql") {
      store = await openLibsql({ file: join(folder, "a.db"), clock, log: silentLog });
      close = () => store.close();
    } else {
      const server = await sharedPostgres();
      const url = await server.createDatabase();
      store = await openPostgres({ url, clock, log: silentLog, limits: patience });
      close = async () => {
        await store.close();
        await server.dropDatabase(url);
      };
    }
    await migrate(store, schema, { clock, log: silentLog });
  });
  afterAll(async () => {
    await close();
    rmSync(folder, { recursive: true });
  });

  const define = (id: string, limit: number | null, status = "active") =>
    store.write(async (session) => {
      await session.run(sql`DELETE FROM functions WHERE environment_id = ${environmentId} AND id = ${id}`);
      await session.run(sql`INSERT INTO functions
        (environment_id, id, slug, name, status, mode, version, definition, lane_limit, created_at, updated_at)
        VALUES (${environmentId}, ${id}, ${id}, ${id}, ${status}, 'pull', 1, '{}', ${limit}, 1, 1)`);
    });
  const laneOf = (functionId: string, key: string) =>
    `${lanePrefix(environmentId, functionId)}s${key.padStart(24, "0")}`;
  let position = 0;
  /** Runs in order of age: `["a", "b"]` are keys of lanes, null has none. */
  const queue = async (functionId: string, keys: readonly (string | null)[]): Promise<string[]> => {
    const ids = keys.map(() => `run_${String(++position).padStart(6, "0")}`);
    const source = store.seams.rowsFrom("v", {
      id: column.text(ids),
      lane_id: column.text(keys.map((key) => (key === null ? null : laneOf(functionId, key)))),
      position: column.bigint(ids.map((_, at) => position - ids.length + at + 1)),
    });
    await store.write(async (session) => {
      await session.run(sql`INSERT INTO events (environment_id, position, id, name, version, data, source, at)
        SELECT ${environmentId}, v.position, v.id, 'e', 1, '{}', 'api', 1 FROM ${source}`);
      await session.run(sql`INSERT INTO runs (id, environment_id, function_id, function_version, event_id, event_name, mode,
          status, attempt, max_attempts, created_at, updated_at, execution_seq)
        SELECT v.id, ${environmentId}, ${functionId}, 1, v.id, 'e', 'pull', 'active', 1, 1, 1, 1, 0 FROM ${source}`);
      await session.run(sql`INSERT INTO executions (run_id, environment_id, function_id, function_version, state, wake_at,
          execution_seq, attempt, max_attempts, step_count, history_count, lost_count, lane_id)
        SELECT v.id, ${environmentId}, ${functionId}, 1, 'queued', v.position, 0, 1, 1, 0, 1, 0, v.lane_id FROM ${source}`);
    });
    return ids;
  };
  const slots = (count: number) =>
    Array.from({ length: count }, (_, n) => ({ leaseHash: `hash_${n}`, workerId: "w", leaseUntil: now + 1 }));
  const claim = async (functionId: string, keys: readonly string[], count: number) => {
    const laneIds = keys.map((key) => laneOf(functionId, key));
    const demands = [{ environmentId, functionId, laneIds, slots: slots(count) }];
    const rows = await store.flush(claimLimitedFlush, { now, demands });
    const found = rows.filter((row): row is LaneFound & { rank: 0 } => row.rank === 0);
    return {
      runs: rows.filter((row): row is ClaimedRow => row.rank > 0).map((row) => row.run_id),
      lanes: found
        .sort((a, b) => (a.lane_id < b.lane_id ? -1 : 1))
        .map(({ free, taken, more }) => [free, taken, more]),
    };
  };
  const openClaim = (functionId: string, count: number) =>
    store.flush(claimFlush, {
      now,
      demands: [{ environmentId, functionId, since: 0, slots: slots(count) }],
    });

  test("take what the limit leaves, the oldest of each lane, and say what is left", async () => {
    await define("f", 2);
    const [a1, a2, a3, b1] = await queue("f", ["a", "a", "a", "b"]);
    expect(await claim("f", ["a", "b", "c"], 10)).toEqual({
      runs: [a1!, b1!, a2!],
      lanes: [
        [2, 2, 1],
        [2, 1, 0],
        [2, 0, 0],
      ],
    });
    expect(await claim("f", ["a"], 10)).toEqual({ runs: [], lanes: [[0, 0, 1]] });
    await store.write((session) => session.run(sql`DELETE FROM executions WHERE run_id = ${a1!}`));
    expect(await claim("f", ["a"], 10)).toEqual({ runs: [a3!], lanes: [[1, 1, 0]] });
    const row = await store.one<{ lease_hash: string; execution_seq: number; state: string }>(
      sql`SELECT lease_hash, execution_seq, state FROM executions WHERE run_id = ${a3!}`,
    );
    expect(row).toEqual({ lease_hash: "hash_0", execution_seq: 1, state: "leased" });
  });

  test("go round the lanes when slots are fewer than runs", async () => {
    await define("turns", 100);
    const [a1, a2, , b1, b2] = await queue("turns", ["a", "a", "a", "b", "b", "c"]);
    const { runs, lanes } = await claim("turns", ["a", "b"], 4);
    expect(runs).toEqual([a1!, b1!, a2!, b2!]);
    expect(lanes).toEqual([
      [100, 2, 1],
      [100, 2, 0],
    ]);
  });

  test("take nothing of a paused function, nor by lane of one without a limit", async () => {
    await define("halted", 1, "paused");
    await queue("halted", ["a"]);
    expect(await claim("halted", ["a"], 1)).toEqual({ runs: [], lanes: [] });
    expect(await openClaim("halted", 1)).toEqual([expect.objectContaining({ lane: 1, rank: 0 })]);
    await define("free", null);
    await queue("free", ["a", null]);
    expect(await claim("free", ["a"], 1)).toEqual({ runs: [], lanes: [] });
    expect(await openClaim("free", 5)).toHaveLength(2);
    await define("free", null, "paused");
    await queue("free", [null]);
    expect(await openClaim("free", 5)).toEqual([]);
  });

  test("leave functions with a limit to claims by lane, and say so", async () => {
    await define("bound", 1);
    await define("loose", null);
    await queue("bound", ["a"]);
    const [run] = await queue("loose", [null]);
    const lanes = ["bound", "loose"].map((functionId) => ({
      environmentId,
      functionId,
      since: 0,
      slots: slots(3),
    }));
    const rows = await store.flush(claimFlush, { now, demands: lanes });
    expect(rows.map(({ lane, rank }) => [lane, rank])).toEqual(
      expect.arrayContaining([
        [1, 0],
        [2, 1],
      ]),
    );
    expect(rows).toHaveLength(2);
    expect(rows.find((row) => row.rank === 1)).toMatchObject({ run_id: run! });
  });

  test("a wake passes by leases from before a pardon, and ends them without one", async () => {
    const [old, young] = await queue("pardoned", [null, null]);
    await openClaim("pardoned", 2);
    await store.write((session) =>
      session.run(sql`UPDATE executions SET claimed_at = ${now + 50} WHERE run_id = ${young!}`),
    );
    const wake = (pardon?: number) =>
      store.write((session) => wakeDue(session, now + 100, { oldest: 1_000 }, pardon));
    const stateOf = async (runId: string) =>
      (await store.one<{ state: string }>(sql`SELECT state FROM executions WHERE run_id = ${runId}`))!.state;
    await wake(now + 10);
    expect([await stateOf(old!), await stateOf(young!)]).toEqual(["leased", "queued"]);
    await wake();
    expect(await stateOf(old!)).toBe("queued");
  });

  test("two at once never take more than the limit", async () => {
    await define("rush", 3);
    await queue("rush", Array(40).fill("a"));
    let most = 0;
    for (let round = 0; round < 10; round++) {
      await Promise.all([1, 2, 3].map(() => claim("rush", ["a"], 5)));
      const row = await store.one<{ count: number }>(
        sql`SELECT count(*) AS count FROM executions WHERE function_id = 'rush' AND state = 'leased'`,
      );
      most = Math.max(most, row!.count);
      await store.write((session) =>
        session.run(sql`DELETE FROM executions WHERE function_id = 'rush' AND state = 'leased'`),
      );
    }
    expect(most).toBe(3);
  });

  test("runs are born claimed as far as there is room and nothing older, also beside claims", async () => {
    await define("born", 2);
    await store.write((session) =>
      session.run(sql`INSERT INTO heads
          (environment_id, position, last_at, definitions_version, retention_floor, epoch)
        VALUES ('env_b', 0, 0, 1, 0, 1) ON CONFLICT (environment_id) DO NOTHING`),
    );
    const laneId = laneOf("born", "a");
    const emit = (count: number) => {
      const events = Array.from({ length: count }, (): NewEvent => {
        const id = `b${++position}`;
        const lease = { hash: `hash_${id}`, workerId: "w", expiresAt: now + 1, laneLimit: 2 };
        const run: NewRun = {
          id: `run_${id}`,
          environmentId: "env_a",
          functionId: "born",
          functionVersion: 1,
          eventId: id,
          eventName: "e",
          mode: "pull",
          maxAttempts: 1,
          timeoutAt: null,
          actorId: null,
          laneId,
          lease,
        };
        return {
          id,
          environmentId: "env_b",
          name: "e",
          version: 1,
          data: "{}",
          metadata: null,
          source: "api",
          idempotencyKey: null,
          runId: null,
          invokes: null,
          entity: null,
          arms: [],
          schema: null,
          runs: [run],
        };
      });
      return store.flush(emitFlush, { now, events, definitions: new Map([["env_b", 1]]) });
    };
    // One run an event: `denied` is null, or the list of its one id.
    const deniedIn = async (answer: Promise<EmittedRow[]>) =>
      (await answer).map(({ denied }) => {
        if (denied == null) return false;
        expect(denied).toEqual([expect.stringMatching(/^run_\w+$/)]);
        return true;
      });
    const leased = async () =>
      (await store.one<{ count: number }>(
        sql`SELECT count(*) AS count FROM executions WHERE lane_id = ${laneId} AND state = 'leased'`,
      ))!.count;
    const clear = (state: string) =>
      store.write((session) =>
        session.run(sql`DELETE FROM executions WHERE lane_id = ${laneId} AND state = ${state}`),
      );
    expect(await deniedIn(emit(4))).toEqual([false, false, true, true]);
    expect(await leased()).toBe(2);
    await clear("leased");
    // Two are queued and older.
    expect(await deniedIn(emit(1))).toEqual([true]);
    await clear("queued");
    expect(await deniedIn(emit(1))).toEqual([false]);
    expect(await deniedIn(emit(2))).toEqual([false, true]);
    for (let round = 0; round < 15; round++) {
      await clear(round % 2 === 0 ? "queued" : "leased");
      await Promise.all([emit(1), claim("born", ["a"], 3), emit(2), claim("born", ["a"], 3), emit(1)]);
      expect(await leased()).toBeLessThanOrEqual(2);
      await clear("leased");
    }
  });

  test("a look finds every lane with queued runs, piece by piece, and none of another function", async () => {
    await define("many", 1);
    await define("many2", 1);
    await queue("many", ["c", "a", "b", "a"]);
    await queue("many2", ["d"]);
    await claim("many", ["a"], 1);
    const target = { environmentId, functionId: "many" };
    const first = await lookAtLanes(store, target, { after: "", most: 2 });
    expect(first).toEqual({
      limit: 1,
      lanes: [
        { id: laneOf("many", "a"), leased: 1 },
        { id: laneOf("many", "b"), leased: 0 },
      ],
    });
    const next = await lookAtLanes(store, target, { after: laneOf("many", "b"), most: 2 });
    expect(next.lanes.map((lane) => lane.id)).toEqual([laneOf("many", "c")]);
    expect(await lookAtLanes(store, { environmentId, functionId: "gone" }, { after: "", most: 2 })).toEqual({
      limit: undefined,
      lanes: [],
    });
  });

  test("runs from before a limit are adopted in slices; idle lanes are forgotten, used ones are not", async () => {
    await define("old", 1);
    await queue("old", [null, null, null, "a"]);
    const target = { environmentId, functionId: "old", laneId: sharedLane(environmentId, "old"), most: 2 };
    const adopt = () => store.write((session) => adoptRuns(session, target));
    expect([await adopt(), await adopt(), await adopt()]).toEqual([2, 1, 0]);
    await claim("old", ["a"], 1);
    await queue("old", ["b"]);
    await claim("old", ["b"], 1);
    await store.write((session) =>
      session.run(sql`DELETE FROM executions WHERE lane_id = ${laneOf("old", "b")}`),
    );
    const forget = (before: number) => store.write((session) => forgetLanes(session, before, 100));
    expect(await forget(now)).toBe(0);
    await forget(now + 1);
    const left = await store.all<{ id: string }>(sql`SELECT id FROM lanes WHERE function_id = 'old'`);
    expect(left.map((lane) => lane.id)).toEqual([laneOf("old", "a")]);
  });
});
