import { describe, expect, test } from "bun:test";
import { noteSteps, publishingSteps } from "../../src/domain/engine/runs/step-moves.ts";
import { openWorkerFrames, type WorkerFrame } from "../../src/domain/engine/workers/registry.ts";
import type { Frame } from "../../src/domain/realtime/pubsub/frames.ts";
import { openStepFrames, verbsOf } from "../../src/domain/realtime/pubsub/step-frames.ts";
import { testClock } from "../../src/kit/clock.ts";
import { sql } from "../../src/kit/sql.ts";
import type { Session, Store } from "../../src/store/store.ts";
import { until } from "../support/until.ts";

const move = { environmentId: "env_1", runId: "run_1", stepId: "run_1:a:0", at: 5 };
const row = { run_id: "run_1", environment_id: "env_1", step_id: "run_1:a:0" };

describe("what is told of a step", () => {
  test.each([
    ["came to be, waiting", { status: "waiting", created_at: 5, updated_at: 5 }, ["created"]],
    [
      "came to be at its end",
      { status: "completed", created_at: 5, updated_at: 5 },
      ["created", "completed"],
    ],
    ["ended", { status: "completed", created_at: 1, updated_at: 5 }, ["completed"]],
    ["failed", { status: "failed", created_at: 1, updated_at: 5 }, ["failed"]],
    ["ran out of time", { status: "timed_out", created_at: 1, updated_at: 5 }, ["failed"]],
    ["is asked for again", { status: "waiting", created_at: 1, updated_at: 5 }, ["updated"]],
    ["was reported again, completed", { status: "completed", created_at: 1, updated_at: 4 }, []],
  ])("that %s", (_, step, verbs) => {
    expect(verbsOf({ isPatch: false, at: 5 }, step)).toEqual(verbs);
  });

  test("that a person patched", () => {
    const step = { status: "completed", created_at: 1, updated_at: 5 };
    expect(verbsOf({ isPatch: true, at: 6 }, step)).toEqual(["patched"]);
  });
});

test("while nobody reads step frames the store is not asked; then once for all that gathered", async () => {
  let wanted = false;
  let asked = 0;
  const sent: Frame[] = [];
  const step = { name: "a", type: "invoke", status: "completed", output: "1", error: null };
  const times = { started_at: 4, ended_at: 5, created_at: 5, updated_at: 5 };
  const frames = openStepFrames({
    store: {
      seams: { rowsFrom: () => sql.empty, byKey: () => sql.empty } as unknown as Store["seams"],
      all: (async () => {
        asked++;
        return [1, 2].map((ord) => ({ ord, ...step, ...times }));
      }) as unknown as Store["all"],
    },
    clock: testClock(),
    log: { debug: (_: string, { error }: { error: unknown }) => expect(error).toBeUndefined() } as never,
    frames: { wants: () => wanted, send: (_, frame) => void sent.push(frame) },
  });
  const moves = [move, { ...move, stepId: "run_1:b:0" }];
  frames.publish(moves);
  frames.patched(move);
  expect([asked, sent.length]).toEqual([0, 0]);
  wanted = true;
  frames.publish(moves);
  await until(() => sent.length === 4, { about: "the frames" });
  expect(asked).toBe(1);
  expect(sent.map(({ topic }) => topic)).toEqual([
    "system.run.run_1.step.run_1:a:0.created",
    "system.run.run_1.step.run_1:a:0.completed",
    "system.run.run_1.step.run_1:b:0.created",
    "system.run.run_1.step.run_1:b:0.completed",
  ]);
  expect(JSON.parse(sent[1]!.data)).toMatchObject({ stepId: "run_1:a:0", runId: "run_1", output: 1 });
});

describe("a store that tells of steps", () => {
  const open = (wanted: boolean) => {
    const told: unknown[] = [];
    const sessions = [{}, {}] as Session[];
    const write = async <T>(work: (session: Session) => Promise<T>): Promise<T> => {
      await work(sessions[0]!).catch(() => {});
      return work(sessions[1]!);
    };
    const steps = { wanted: () => wanted, publish: (moves: readonly unknown[]) => void told.push(...moves) };
    return { told, store: publishingSteps({ write } as Store, steps) };
  };

  test("tells what the try did that was committed, after it", async () => {
    const { told, store } = open(true);
    await store.write(async (session) => {
      noteSteps(session, [row, { ...row, step_id: null }], 5);
      expect(told).toEqual([]);
    });
    expect(told).toEqual([move]);
  });

  test("tells nothing of a transaction that fails, and nothing while nobody asks", async () => {
    for (const wanted of [true, false]) {
      const { told, store } = open(wanted);
      const failed = store.write(async (session) => {
        noteSteps(session, [row], 5);
        if (wanted) throw new Error("rolled back");
      });
      if (wanted) await expect(failed).rejects.toThrow("rolled back");
      else await failed;
      expect(told).toEqual([]);
    }
  });
});

test("a worker that drains says so until it registers anew", () => {
  const told: WorkerFrame[] = [];
  const signs = openWorkerFrames((frame) => void told.push(frame));
  const worker = { environmentId: "env_1", workerId: "w" };
  signs.connected(worker);
  signs.draining(worker);
  signs.heartbeat(worker);
  signs.disconnected(worker);
  signs.connected(worker);
  expect(told.map(({ change, healthy, draining }) => [change, healthy, draining])).toEqual([
    ["connected", true, false],
    ["health", true, true],
    ["health", true, true],
    ["disconnected", false, true],
    ["connected", true, false],
  ]);
});
