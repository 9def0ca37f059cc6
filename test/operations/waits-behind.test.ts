import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import { openStates } from "../../src/domain/engine/runs/awaited/states.ts";
import { RunObservers } from "../../src/domain/engine/runs/observer.ts";
import { compareAgain } from "../../src/domain/engine/runs/waits/drop-waits.ts";
import { openMatcher } from "../../src/domain/engine/runs/waits/matcher.ts";
import { openWakes, type Wakes } from "../../src/domain/engine/runs/wakes/wake-work.ts";
import { type ExecutionRow, undoResume } from "../../src/domain/engine/steering/rows.ts";
import { silentLog } from "../../src/kit/log.ts";
import { sql } from "../../src/kit/sql.ts";
import type { Store } from "../../src/store/store.ts";
import { plant } from "../support/plant.ts";
import { engines } from "../support/server.ts";
import { clock, greedy, modest, nothing, type SharedStore, sharedStore } from "../support/shares.ts";
import { until } from "../support/until.ts";

/** What is logged before the deadline of a wait ends it, however far behind the log is read, and by whom. What never comes ends it, too. */
describe.each(engines)("a wait, and what is not compared with it yet, on %s", (engine) => {
  let shared: SharedStore;
  beforeAll(async () => {
    shared = await sharedStore(engine);
  });
  afterEach(() =>
    shared.bare.write(async (session) => {
      for (const table of [
        "waits",
        "executions",
        "runs",
        "run_history",
        "steps",
        "events",
        "streams",
        "matchers",
      ])
        await session.run(sql`DELETE FROM ${sql.raw(table)}`);
    }),
  );
  afterAll(() => shared.close());

  const plantWait = async (environment: string, dueAt: number, run = "w", fresh_at = "NULL") => {
    const environment_id = `'${environment}'`;
    const run_id = `'${run}_${environment}'`;
    const due = { state: "'waiting'", waiting_step_id: "'s'", wake_at: `${dueAt}` };
    const step = { step_id: "'s'", status: "'waiting'", wait_timeout_at: `${dueAt}` };
    await plant(shared.bare, "runs", 1, { id: run_id, environment_id, status: "'active'" });
    await plant(shared.bare, "steps", 1, { run_id, environment_id, ...step });
    await plant(shared.bare, "executions", 1, { run_id, environment_id, ...due });
    const awaited = { kind: "'wait'", step_id: "'s'", event_name: "'paid'", fresh_at };
    await plant(shared.bare, "waits", 1, { run_id, environment_id, ...awaited });
    await shared.bare.write((session) =>
      session.run(sql`INSERT INTO matchers (environment_id, position) VALUES (${environment}, 0)
        ON CONFLICT (environment_id) DO NOTHING`),
    );
  };
  /** So many events, of which the last one is waited for. */
  const plantLog = async (environment: string, many: number) => {
    const name = `CASE WHEN n = ${many} THEN 'paid' ELSE 'other' END`;
    const id = `'evt_${environment}_' || n`;
    const environment_id = `'${environment}'`;
    await plant(shared.bare, "events", many, { environment_id, position: "n", id, name, data: "'{}'" });
    await shared.bare.write((session) =>
      session.run(sql`UPDATE heads SET position = ${many} WHERE environment_id = ${environment}`),
    );
  };
  /** A busy machine must not make a short look a slow one. */
  const patient = { ...clock, after: (ms: number, callback: () => void) => clock.after(100 * ms, callback) };
  const nodeOn = (store: Store, { waits = patient, afterLook = async () => {} } = {}) => {
    const queued = { onQueued: nothing, onCancelled: nothing, wakeLoop: nothing };
    const matcher = openMatcher({ store, clock: waits, ...queued });
    const asked = new Set<string>();
    const wakes = openWakes({
      ...{ store, clock, log: silentLog, observers: new RunObservers(), onFailed: nothing },
      states: openStates({ store, clock, ...queued }),
      matcher: {
        async catchUp(environments) {
          const ids = [...environments];
          for (const id of ids) asked.add(id);
          const compared = await matcher.catchUp(ids);
          await afterLook();
          return compared;
        },
      },
    });
    return { matcher, wakes, asked };
  };
  const stateOf = async (environment: string, run = "w") =>
    (
      await shared.bare.one<{ state: string }>(
        sql`SELECT state FROM executions WHERE run_id = ${`${run}_${environment}`}`,
      )
    )?.state;

  /** Each try finds it due at once, however far the last one put it off. */
  const timedOut = (wakes: Pick<Wakes, "moveDue">, run = "w") =>
    until(
      async () => {
        await shared.bare.write((session) => session.run(sql`UPDATE executions SET wake_at = 1`));
        await wakes.moveDue(undefined);
        return (await stateOf(modest, run)) === undefined;
      },
      { about: "the wait is over" },
    );

  test("its event is thousands behind the cursor", async () => {
    await plantWait(modest, 1);
    await plantLog(modest, 40_000);
    const { matcher, wakes } = nodeOn(shared.bare);
    await wakes.moveDue(undefined);
    expect(await stateOf(modest)).toBe("waiting");
    matcher.wake(modest);
    await matcher.matchOnce();
    expect(await stateOf(modest)).toBe("queued");
  });

  test("its log cannot be read", async () => {
    await plantWait(modest, 1);
    await plantLog(modest, 3);
    let isBroken = true;
    const store: Store = {
      ...shared.bare,
      async one(query) {
        if (isBroken) throw new Error("the store is away");
        return shared.bare.one(query);
      },
      async all(query) {
        if (isBroken && JSON.stringify(query).includes("waits")) throw new Error("the store is away");
        return shared.bare.all(query);
      },
    };
    const { matcher, wakes } = nodeOn(store);
    expect(await matcher.catchUp([modest])).toEqual(new Map());
    await wakes.moveDue(undefined);
    expect(await stateOf(modest)).toBe("waiting");
    isBroken = false;
    expect([...(await matcher.catchUp([modest])).keys()]).toEqual([modest]);
    expect(await stateOf(modest)).toBe("queued");
  });

  test("it is due behind as many leases as a look takes", async () => {
    await plant(shared.bare, "executions", 199, {
      ...{ run_id: "'l_' || n", environment_id: `'${greedy}'`, state: "'leased'", wake_at: "1" },
      claimed_at: `${clock.now() + 60_000}`,
    });
    await plantWait(greedy, 2);
    await plantWait(modest, 3);
    await plantLog(modest, 3);
    const { wakes, asked } = nodeOn(shared.bare);
    await wakes.moveDue(undefined);
    // Nothing that it waits for was logged in the other one.
    expect(await stateOf(greedy)).toBeUndefined();
    expect(await stateOf(modest)).toBe("queued");
    expect([...asked].sort()).toEqual([greedy, modest]);
  });

  test.if(engine === "postgres")("another node is about to move the cursor", async () => {
    await plantWait(modest, 1);
    await plantLog(modest, 3);
    const held = Promise.withResolvers<void>();
    const over = Promise.withResolvers<void>();
    const other = shared.bare.write(async (session) => {
      await session.run(sql`UPDATE matchers SET generation = generation WHERE environment_id = ${modest}`);
      held.resolve();
      await over.promise;
    });
    await held.promise;
    const { matcher, wakes } = nodeOn(shared.bare);
    await wakes.moveDue(undefined);
    expect(await stateOf(modest)).toBe("waiting");
    over.resolve();
    await other;
    matcher.wake(modest);
    await matcher.matchOnce();
    expect(await stateOf(modest)).toBe("queued");
  });

  test("it is stored between the look and the time-out, and so is its event", async () => {
    await plantWait(modest, 1);
    let looks = 0;
    const { matcher, wakes } = nodeOn(shared.bare, {
      async afterLook() {
        if (looks++ > 0) return;
        await plantWait(modest, 1, "late", "1");
        await plantLog(modest, 3);
      },
    });
    await wakes.moveDue(undefined);
    expect(await stateOf(modest)).toBeUndefined();
    expect(await stateOf(modest, "late")).toBe("waiting");
    await matcher.catchUp([modest]);
    expect(await stateOf(modest, "late")).toBe("queued");
  });

  test("nothing came, and each look at its log takes longer than it is waited for: it times out", async () => {
    await plantWait(modest, 1);
    const hasty = { ...clock, after: (_: number, callback: () => void) => clock.after(0, callback) };
    const slow: Store = {
      ...shared.bare,
      async one(query) {
        await clock.sleep(20);
        return shared.bare.one(query);
      },
    };
    const { wakes } = nodeOn(slow, { waits: hasty });
    await wakes.moveDue(undefined);
    expect(await stateOf(modest)).toBe("waiting");
    await timedOut(wakes);
  });

  test("more held runs than a pass moves wait for the same event, and others for a later one", async () => {
    const [environment_id, run_id] = [`'${modest}'`, "'h_' || n"];
    const many = 700;
    await plant(shared.bare, "runs", many, { id: run_id, environment_id, status: "'active'" });
    const held = { state: "'held'", waiting_step_id: "'s'", held_from: "'waiting'" };
    await plant(shared.bare, "executions", many, { run_id, environment_id, ...held });
    const awaited = { kind: "'wait'", step_id: "'s'", event_name: "'other'" };
    await plant(shared.bare, "waits", many, { run_id, environment_id, ...awaited });
    await plantWait(modest, 1);
    await plantLog(modest, 3);
    const { matcher } = nodeOn(shared.bare);
    await matcher.catchUp([modest]);
    expect(await stateOf(modest)).toBe("queued");
    const kept = sql`SELECT count(*) AS n FROM waits WHERE event_name = 'other'`;
    expect(await shared.bare.one<{ n: number }>(kept)).toEqual({ n: many });
  });

  test("600 runs wait for a stream that grows during every look: who waits for it times out", async () => {
    const [environment_id, place] = [`'${modest}'`, "'stream'"];
    await plantLog(modest, 1);
    const condition = { kind: "'wait'", step_id: "'s#0'", of_step: "'s'", condition: "'c'", mode: "'any'" };
    const awaited = { ...condition, place, subject: "'hot'", test: "'reaches'", bound: "1000000" };
    await plant(shared.bare, "waits", 600, { run_id: "'h_' || n", environment_id, ...awaited });
    await plantWait(modest, 1);
    await shared.bare.write((session) => session.run(sql`DELETE FROM waits WHERE run_id = ${`w_${modest}`}`));
    await plant(shared.bare, "waits", 1, { run_id: `'w_${modest}'`, environment_id, ...awaited });
    const growing: Store = {
      ...shared.bare,
      async all(query) {
        if (JSON.stringify(query).includes("found(environment_id, place)"))
          await shared.bare.write(async (session) => {
            await session.run(sql`UPDATE heads SET position = position + 1 WHERE environment_id = ${modest}`);
            await session.run(sql`UPDATE events SET position = position + 1, entity_id = 'hot'
              WHERE environment_id = ${modest}`);
          });
        return shared.bare.all(query);
      },
    };
    const { wakes } = nodeOn(growing);
    await timedOut(wakes);
  });

  test("a resume that could not be published is undone while a run waits for streams alone: met waits end, others time out", async () => {
    await plantLog(modest, 1);
    const stream = { environment_id: `'${modest}'`, entity_id: "'there'", version: "3" };
    await plant(shared.bare, "streams", 1, stream);
    const environment_id = `'${modest}'`;
    for (const subject of ["there", "nowhere"]) {
      const run_id = `'${subject}_${modest}'`;
      const due = { state: "'resuming'", waiting_step_id: "'s'", wake_at: "1" };
      const step = { step_id: "'s'", status: "'waiting'", wait_timeout_at: "1" };
      await plant(shared.bare, "runs", 1, { id: run_id, environment_id, status: "'active'" });
      await plant(shared.bare, "steps", 1, { run_id, environment_id, ...step });
      await plant(shared.bare, "executions", 1, { run_id, environment_id, ...due });
      const condition = { kind: "'wait'", step_id: "'s#0'", of_step: "'s'", condition: "'c'", mode: "'any'" };
      const awaited = {
        ...condition,
        place: "'stream'",
        subject: `'${subject}'`,
        test: "'reaches'",
        bound: "1",
      };
      await plant(shared.bare, "waits", 1, { run_id, environment_id, ...awaited });
      await shared.bare.write(async (session) => {
        const row = { run_id: `${subject}_${modest}`, state: "waiting", wake_at: 1 } as ExecutionRow;
        await undoResume(session, row);
        await compareAgain(session, row.run_id, { at: clock.now() });
      });
    }
    const { wakes } = nodeOn(shared.bare);
    await timedOut(wakes, "nowhere");
    expect(await stateOf(modest, "there")).toBe("queued");
  });

  test("ten runs wait for an event of 3 MiB: no transaction carries all its copies", async () => {
    const runs = Array.from({ length: 10 }, (_, at) => `r${at}`);
    for (const run of runs) await plantWait(modest, clock.now() + 60_000, run);
    await plantLog(modest, 1);
    const data = JSON.stringify({ note: "x".repeat(3 * 1024 * 1024) });
    await shared.bare.write((session) => session.run(sql`UPDATE events SET data = ${data}`));
    let writes = 0;
    const counted: Store = {
      ...shared.bare,
      write(work) {
        writes++;
        return shared.bare.write(work);
      },
    };
    const { matcher } = nodeOn(counted);
    await matcher.catchUp([modest]);
    for (const run of runs) expect(await stateOf(modest, run)).toBe("queued");
    expect(writes).toBe(2);
  });
});
