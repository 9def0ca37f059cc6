import { afterAll, beforeAll, expect, test } from "bun:test";
import fc from "fast-check";
import type { FunctionDefinition } from "../../src/domain/engine/functions/definition.ts";
import { neverWakesAt } from "../../src/domain/engine/runs/execution/commit-reports.ts";
import type { Runs } from "../../src/domain/engine/runs/service.ts";
import { finishResumes } from "../../src/domain/engine/runs/wakes/finish-resumes.ts";
import { openControls } from "../../src/domain/engine/steering/controls.ts";
import { cutReason, readJsonText } from "../../src/domain/engine/steering/rules.ts";
import { openSteering } from "../../src/domain/engine/steering/service.ts";
import { systemClock, testClock } from "../../src/kit/clock.ts";
import { silentLog } from "../../src/kit/log.ts";
import { sql } from "../../src/kit/sql.ts";
import { runOfStep, stepRowId } from "../../src/kit/step-id.ts";
import { openStore } from "../../src/store/open.ts";
import type { Session, Store } from "../../src/store/store.ts";
import { type Home, makeHome } from "../support/server.ts";

let home: Home;
let store: Store;
const clock = systemClock();
beforeAll(async () => {
  home = await makeHome("libsql");
  store = await openStore({ file: home.place.db, clock, log: silentLog });
});
afterAll(async () => {
  await store.close();
  await home.remove();
});

const write = (query: ReturnType<typeof sql>) => store.write((session) => session.run(query));
const row = (query: ReturnType<typeof sql>) => store.one<Record<string, unknown>>(query);

test("a resume that cannot be told leaves the run as it was", async () => {
  const controls = {
    publish: () => Promise.reject(new Error("nobody hears")),
    notifyHere: () => {},
    onControl: () => {},
  };
  const promise = async () => () => {};
  const runs = {
    neverWakesAt,
    finishResumes: (session: Session, ids: readonly string[]) => finishResumes(session, ids, clock.now()),
  } as unknown as Runs;
  const definitionOf = async () => ({ id: "fn" }) as unknown as FunctionDefinition;
  const deps = { store, clock, log: silentLog, controls, enqueue: promise, runs, definitionOf };
  const steering = openSteering({ ...deps, onQueued: () => {}, noteRevived: async () => {} });
  for (const [id, status] of [
    ["run_failed", "failed"],
    ["run_asleep", "active"],
  ] as const)
    await write(sql`INSERT INTO runs (id, environment_id, function_id, function_version, event_id, event_name, mode,
        status, trouble, attempt, max_attempts, error, created_at, ended_at, updated_at, execution_seq)
      VALUES (${id}, 'env_1', 'fn', 1, 'evt_1', 'e', 'pull', ${status}, ${status === "failed" ? status : null}, 3, 3,
        ${'{"message":"x","retryable":true}'}, 1, 2, 2, 7)`);
  await write(sql`INSERT INTO executions (run_id, environment_id, function_id, function_version, state, wake_at,
      execution_seq, attempt, max_attempts, step_count, history_count, lost_count, waiting_step_id)
    VALUES ('run_asleep', 'env_1', 'fn', 1, 'sleeping', 12345, 2, 1, 3, 1, 0, 0, 'nap')`);
  const before = {
    failed: await row(sql`SELECT * FROM runs WHERE id = 'run_failed'`),
    asleep: await row(sql`SELECT state, wake_at, waiting_step_id FROM executions`),
  };
  for (const id of ["run_failed", "run_asleep"]) {
    const resumed = steering.resume(
      "env_1",
      { runId: id, fromStep: undefined, skipSleep: undefined },
      "ak_1",
    );
    await expect(resumed).rejects.toMatchObject({ kind: "internal" });
  }
  const { updated_at: _, ...failed } = (await row(sql`SELECT * FROM runs WHERE id = 'run_failed'`))!;
  expect(before.failed).toMatchObject(failed);
  expect(await store.all(sql`SELECT state, wake_at, waiting_step_id FROM executions`)).toEqual([
    before.asleep!,
  ]);
  // The window is closed again, too: the next attempt is not refused for the one that failed.
  expect(await store.all(sql`SELECT * FROM resumes`)).toEqual([]);
});

test("telling takes two seconds at most", async () => {
  const time = testClock();
  const controls = openControls({ clock: time, send: () => new Promise(() => {}) });
  const message = {
    messageId: "cancel-run_1",
    kind: "cancel",
    environmentId: "env_1",
    runId: "run_1",
    workerId: null,
    executionSeq: 1,
    reason: "",
  } as const;
  const told = controls.publish(message).catch((error: Error) => error.message);
  await time.advance(2_000);
  expect(await told).toMatch(/^publishing a control message took longer than \d+ ms$/);
});

test("a step's ids name its run", () => {
  fc.assert(
    fc.property(fc.stringMatching(/^[a-z0-9]{26}$/), fc.string({ minLength: 1 }), (id, name) => {
      const runId = `run_${id}`;
      expect(runOfStep(stepRowId(runId, name))).toBe(runId);
      expect(runOfStep(`${runId}:${name}:0`)).toBe(runId);
    }),
  );
  for (const other of ["", "step_", "run_x", "evt_1:a:0"]) expect(runOfStep(other)).toBeUndefined();
});

test("outputs come as JSON text or as base64 of it", () => {
  expect(readJsonText("f", '{"a": 1}')).toBe('{"a":1}');
  expect(readJsonText("f", Buffer.from("[1]").toString("base64"))).toBe("[1]");
  for (const bad of ["", "{", "nothing"])
    expect(() => readJsonText("f", bad)).toThrow("f: must be JSON text");
});

test("a reason is cut to 1024 runes", () => {
  expect([...cutReason("🙂".repeat(2_000))].length).toBe(1_024);
});
