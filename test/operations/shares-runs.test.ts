import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { openBatchStarts } from "../../src/domain/engine/batches/service.ts";
import { openDebounce } from "../../src/domain/engine/debounce/service.ts";
import type { DefinitionsCache, FunctionDefinition } from "../../src/domain/engine/functions/definition.ts";
import { openStates } from "../../src/domain/engine/runs/awaited/states.ts";
import { openChildren } from "../../src/domain/engine/runs/children/children.ts";
import { openDeadlines } from "../../src/domain/engine/runs/deadlines.ts";
import { openLateStarts } from "../../src/domain/engine/runs/late-start.ts";
import { RunObservers } from "../../src/domain/engine/runs/observer.ts";
import { nextWakeAt } from "../../src/domain/engine/runs/rows.ts";
import { openMatcher } from "../../src/domain/engine/runs/waits/matcher.ts";
import { openWakes } from "../../src/domain/engine/runs/wakes/wake-work.ts";
import { openSchedules } from "../../src/domain/engine/schedules/service.ts";
import { silentLog } from "../../src/kit/log.ts";
import { sql } from "../../src/kit/sql.ts";
import type { Store } from "../../src/store/store.ts";
import { plant } from "../support/plant.ts";
import { engines } from "../support/server.ts";
import {
  both,
  clock,
  greedy,
  ids,
  modest,
  nothing,
  type SharedStore,
  sharedStore,
} from "../support/shares.ts";
import { until } from "../support/until.ts";

describe.each(engines)("what runs wait for is shared by environment on %s", (engine) => {
  let shared: SharedStore;
  beforeAll(async () => {
    shared = await sharedStore(engine);
  });
  afterAll(() => shared.close());

  const comparedNow = {
    catchUp: async (environments: Iterable<string>) =>
      new Map(Array.from(environments, (id) => [id, clock.now()] as const)),
  };
  /** Of a node that has been there for an hour: one that has just begun pardons older leases. */
  const wakes = () => {
    let startedAt: number | undefined = clock.now() - 3_600_000;
    const now = () => {
      const at = startedAt ?? clock.now();
      startedAt = undefined;
      return at;
    };
    return openWakes({
      store: shared.spied,
      clock: { ...clock, now },
      log: silentLog,
      ...{ matcher: comparedNow, states: comparedNow },
      ...{ observers: new RunObservers(), onFailed: nothing },
    });
  };
  const starts = openLateStarts({
    ...{ store: {} as Store, clock, ids, log: silentLog },
    definitionOf: async () => ({}) as FunctionDefinition,
    newRun: () => {
      throw new Error("no function is there");
    },
  });

  test.each(["sleeping", "retrying", "leased", "waiting", "invoking"])("runs.wake: %s", async (state) => {
    const run = `'${state}_${greedy}_' || n`;
    const functions = "'f' || (n % 7)";
    for (const [env, many] of both(3_000)) {
      const id = run.replace(greedy, env);
      await plant(shared.bare, "runs", many, { id, environment_id: `'${env}'`, status: "'active'" });
      const step = { run_id: id, environment_id: `'${env}'`, step_id: "'s'", status: "'waiting'" };
      await plant(shared.bare, "steps", many, step);
    }
    await shared.pile("executions", 3_000, "wake_at", {
      run_id: run,
      function_id: functions,
      state: `'${state}'`,
      waiting_step_id: "'s'",
    });
    shared.watch(shared.gone(`executions WHERE environment_id = '${modest}' AND state = '${state}'`));
    await wakes().moveDue(undefined);
    await shared.expectShared();
    expect(await shared.count(`executions WHERE state = '${state}'`)).toBe(0);
    await shared.bare.write((session) => session.run(sql`DELETE FROM executions`));
  });

  test("runs.wake: runs whose time is over", async () => {
    await shared.pile("executions", 3_000, "timeout_at", {
      run_id: `'late_${greedy}_' || n`,
      state: "'queued'",
      wake_at: "0",
    });
    shared.watch(shared.gone(`executions WHERE environment_id = '${modest}'`));
    await wakes().moveDue(undefined);
    await shared.expectShared();
    expect(await shared.count("executions")).toBe(0);
  });

  test("runs.wake: from a place on, what lies before stays", async () => {
    const early = clock.now() - 20_000;
    for (const [id, dueAt] of Object.entries({ run_before: early - 1, run_at: early }))
      await plant(shared.bare, "executions", 1, {
        run_id: `'${id}'`,
        environment_id: `'${modest}'`,
        state: "'leased'",
        wake_at: `${dueAt}`,
        timeout_at: `${dueAt}`,
      });
    const left = () => shared.count("executions WHERE state = 'leased'");
    expect(await nextWakeAt(shared.bare, early)).toBe(early);
    expect(await nextWakeAt(shared.bare)).toBe(early - 1);
    await wakes().moveDue(early);
    expect(await left()).toBe(1);
    await wakes().moveDue(undefined);
    expect(await left()).toBe(0);
    await shared.bare.write((session) => session.run(sql`DELETE FROM executions`));
  });

  test("runs.deadlines", async () => {
    await shared.pile("run_deadlines", 3_000, "due_at", {
      run_id: `'dl_${greedy}_' || n`,
      cause: "'singleton'",
    });
    shared.watch(shared.gone(`run_deadlines WHERE environment_id = '${modest}'`));
    await openDeadlines({ store: shared.spied, clock, onCancelled: nothing, onQueued: nothing })();
    await shared.expectShared();
    expect(await shared.count("run_deadlines")).toBe(0);
  });

  test("debounce.fire", async () => {
    await shared.pile("debounces", 3_000, "fires_at", { id: `'deb_${greedy}_' || n`, event_id: "'e'" });
    shared.watch(shared.gone(`debounces WHERE environment_id = '${modest}'`));
    const debounce = openDebounce({
      store: shared.spied,
      clock,
      log: silentLog,
      starts,
      quotas: { take: async () => ({ share: (_id, runs) => runs, againAt: () => 0 }) },
      onQueued: nothing,
      fireIn: nothing,
      knowsTime: () => true,
    });
    await debounce.fireOnce();
    await shared.expectShared();
    expect(await shared.count("debounces")).toBe(0);
  });

  test("batches.close", async () => {
    await shared.pile("batches", 3_000, "closes_at", { id: `'batch_${greedy}_' || n`, first_position: "n" });
    shared.watch(shared.gone(`batches WHERE environment_id = '${modest}'`));
    const batches = openBatchStarts({
      store: shared.spied,
      clock,
      log: silentLog,
      starts,
      quotas: { take: async () => ({ share: (_id, runs) => runs, againAt: () => 0 }) },
      onQueued: nothing,
      onCreated: nothing,
      wake: nothing,
      knowsTime: () => true,
    });
    await batches.closeOnce();
    await shared.expectShared();
    expect(await shared.count("batches")).toBe(0);
  });

  test("runs.children: starts and ends, neither behind the other", async () => {
    const parent = `'parent_${greedy}_' || n`;
    const many = 1_500;
    for (const [env, times] of both(many)) {
      const id = parent.replace(greedy, env);
      await plant(shared.bare, "runs", times, { id, environment_id: `'${env}'`, status: "'active'" });
      await plant(shared.bare, "steps", times, { run_id: id, environment_id: `'${env}'`, step_id: "'s'" });
    }
    await shared.pile("invocations", many, "due_at", {
      parent_run_id: parent,
      step_id: "'s'",
      kind: "'invoke'",
    });
    await shared.pile("child_ends", many, "ended_at", { child_run_id: `'child_${greedy}_' || n` });
    const started: string[] = [];
    shared.watch(
      async () =>
        (await shared.count(`invocations WHERE environment_id = '${modest}'`)) === 0 &&
        (await shared.count(`child_ends WHERE environment_id = '${modest}'`)) === 0,
    );
    const children = openChildren({
      store: shared.spied,
      clock,
      log: silentLog,
      async invoke(_, { environmentId }) {
        started.push(environmentId);
        return { runIds: ["run"] };
      },
      onQueued: nothing,
      onFailed: nothing,
      onEnded: nothing,
    });
    await children.moveOnce();
    await shared.expectShared();
    expect(await shared.count("invocations")).toBe(0);
    expect(await shared.count("child_ends")).toBe(0);
  });

  const schedules = (fire: (environmentId: string) => Promise<void>) =>
    openSchedules({
      store: shared.spied,
      clock,
      log: silentLog,
      definitions: { current: async () => undefined } as unknown as Pick<DefinitionsCache, "current">,
      events: {
        async invoke(_: unknown, { environmentId }: { environmentId: string }) {
          await fire(environmentId);
          return { eventId: "", runIds: [] };
        },
      } as never,
      self: "me",
      onFrame: nothing,
    });

  test("schedules.tick: 5,000 triggers of every second and one of another tenant", async () => {
    await shared.bare.write((session) =>
      session.run(sql`UPDATE heads SET schedules_version = definitions_version`),
    );
    const values = { function_id: "'f' || (n / 50)", place: "n", expression: "'* * * * * *'" };
    await shared.pile("schedules", 5_000, "next_at", values);
    await shared.bare.write((session) =>
      session.run(sql`UPDATE schedules SET next_at = ${clock.now() - 500}
      WHERE environment_id = ${greedy}`),
    );
    const fired: string[] = [];
    const { tickOnce } = schedules(async (environmentId) => void fired.push(environmentId));
    // A tick ends after half a second; a busy machine may fire fewer in it.
    while (!fired.includes(modest) && fired.length < 5_000) {
      const answer = await tickOnce(shared.spied.write);
      expect(answer.againInMs ?? 1_000).toBeLessThanOrEqual(1_000);
    }
    expect(fired.indexOf(modest)).toBeWithin(0, 201);
    await shared.bare.write((session) => session.run(sql`DELETE FROM schedules`));
  });

  test("runs.states", async () => {
    await shared.pile("waits", 3_000, "due_at", {
      run_id: `'state_${greedy}_' || n`,
      kind: "'wait'",
      step_id: "'s#0'",
      of_step: "'s'",
      condition: "'c'",
      mode: "'any'",
      place: "'stream'",
      subject: "'entity' || n",
      test: "'reaches'",
      bound: "1",
    });
    shared.watch(shared.gone(`waits WHERE environment_id = '${modest}' AND due_at IS NOT NULL`));
    const states = openStates({ store: shared.spied, clock, onQueued: nothing, wakeLoop: nothing });
    await states.lookOnce();
    await shared.expectShared();
    expect(await shared.count("waits WHERE due_at IS NOT NULL")).toBe(0);
    await shared.bare.write((session) => session.run(sql`DELETE FROM waits`));
  });

  test("runs.matcher: who is heard of while another's long log is read does not wait for its end", async () => {
    await shared.bare.write((session) => session.run(sql`DELETE FROM events`));
    for (const [env, many] of both(20_000)) {
      const environment_id = `'${env}'`;
      await plant(shared.bare, "events", many, {
        environment_id,
        position: "n",
        id: `'log_${env}_' || n`,
        name: "'e'",
        data: "'{}'",
      });
      await shared.bare.write((session) =>
        session.run(sql`UPDATE heads SET position = ${many} WHERE environment_id = ${env}`),
      );
      await plant(shared.bare, "matchers", 1, { environment_id });
      await plant(shared.bare, "executions", 1, { run_id: `'w_${env}'`, environment_id, state: "'waiting'" });
      // Of a value that no event has; nobody is told of anything but of how far the log was read.
      await plant(shared.bare, "waits", 1, {
        run_id: `'w_${env}'`,
        kind: "'wait'",
        step_id: "'s'",
        environment_id,
        event_name: "'e'",
        match_path: "'a'",
        value_hash: "'x'",
      });
    }
    const reads: string[] = [];
    const store: Store = {
      ...shared.bare,
      all: async (query) => {
        const rows = await shared.bare.all(query);
        const first = rows[0] as { id?: unknown } | undefined;
        if (typeof first?.id === "string" && first.id.startsWith("log_")) {
          reads.push(first.id.includes(modest) ? modest : greedy);
          if (reads.length === 3) matcher.wake(modest);
        }
        return rows as never;
      },
    };
    const matcher = openMatcher({
      store,
      clock,
      onQueued: nothing,
      onCancelled: nothing,
      wakeLoop: nothing,
    });
    matcher.wake(greedy);
    // The first round only knows of the greedy one.
    await shared.bare.write((session) =>
      session.run(sql`UPDATE waits SET fresh_at = NULL WHERE environment_id = ${greedy}`),
    );
    await matcher.matchOnce();
    // A read that takes long goes on after the round.
    const ofGreedy = () => reads.filter((id) => id === greedy).length;
    await until(() => reads.includes(modest) && ofGreedy() > 20, { about: "both logs to be read" });
    expect(reads.indexOf(modest)).toBeWithin(0, 8);
  });
});
