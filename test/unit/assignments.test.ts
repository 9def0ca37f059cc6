import { describe, expect, test } from "bun:test";
import { openAssignments } from "../../src/domain/engine/dispatch/assignments.ts";
import { readCompletedSteps } from "../../src/domain/engine/dispatch/claims.ts";
import type { PollRequest } from "../../src/domain/engine/dispatch/queues.ts";
import { jobCharsMax, type UnsentJob } from "../../src/domain/engine/dispatch/unsent.ts";
import type { Job } from "../../src/domain/engine/jobs/rules.ts";
import type { WorkerRecord } from "../../src/domain/engine/workers/rows.ts";
import { openStreamPoller } from "../../src/domain/engine/workers/stream/poller.ts";
import { testClock } from "../../src/kit/clock.ts";
import { silentLog } from "../../src/kit/log.ts";
import { keptLog } from "../support/who.ts";

const jobOf = (functionId: string, data = "{}"): Job =>
  ({
    runId: `run_${functionId}`,
    functionId,
    environmentId: "env_a",
    functionVersion: 1,
    event: { data, metadata: null, position: 7 },
    completedSteps: [],
  }) as unknown as Job;

test("each job that cannot be handed out is kept back alone, with its reason", async () => {
  const unsent: string[] = [];
  const handing = openAssignments({
    dispatcher: {
      poll: async () => [
        jobOf("fine"),
        jobOf("secretive"),
        jobOf("large", "x".repeat(jobCharsMax + 1)),
        jobOf("undefined"),
        jobOf("spoilt"),
      ],
    },
    definitions: { known: () => undefined } as never,
    eventsOfRun: async () => [],
    async definitionAt(_environment, functionId) {
      if (functionId === "undefined") throw new Error("not there");
      return { secrets: functionId === "secretive" ? ["A"] : functionId === "spoilt" ? ["B"] : [] } as never;
    },
    secrets: {
      async valuesOf(_environment, names) {
        if (names.includes("B")) throw new Error("spoilt");
        return { A: "a" };
      },
    },
    sequences: { sequenceAt: (_environment, position) => `3.${position}` },
    onUnsent: (job, error) => unsent.push(`${job.functionId} ${(error as UnsentJob).code}`),
    log: silentLog,
  });
  const handed = await handing.toPush({} as PollRequest);
  expect(handed.map(({ functionId, secrets, sequence }) => [functionId, secrets, sequence])).toEqual([
    ["fine", undefined, "3.7"],
    ["secretive", { A: "a" }, "3.7"],
  ]);
  expect(unsent.sort()).toEqual([
    "large JOB_TOO_LARGE",
    "spoilt SECRET_UNREADABLE",
    "undefined DEFINITION_UNREADABLE",
  ]);
});

test("completed steps that are never sent are not read", async () => {
  const asked: (readonly string[])[] = [];
  const runs = {
    async completedSteps(runIds: readonly string[]) {
      asked.push(runIds);
      return new Map(runIds.map((id) => [id, []]));
    },
    completedBytes: async (runIds: readonly string[]) =>
      runIds.map((run_id) => ({ run_id, bytes: run_id === "run_large" ? 3 * jobCharsMax + 1 : 1 })),
  };
  const claimed = [
    { run_id: "run_few", step_count: 2 },
    { run_id: "run_large", step_count: 100 },
    { run_id: "run_many", step_count: 100 },
  ];
  const steps = await readCompletedSteps(claimed, { runs, log: silentLog });
  expect(asked).toEqual([["run_few", "run_many"]]);
  expect([steps.get("run_many"), (steps.get("run_large") as UnsentJob).code]).toEqual([[], "JOB_TOO_LARGE"]);
});

describe("a stream's question for jobs that fails", () => {
  const settle = async () => {
    for (let turn = 0; turn < 20; turn++) await Promise.resolve();
  };

  test("gives its slots back, pauses, and is asked again", async () => {
    const clock = testClock();
    const { log, lines } = keptLog();
    const askings: PollRequest[] = [];
    let away = true;
    const got: Job[] = [];
    let free = 3;
    const asks = openStreamPoller({
      clock,
      log,
      rights: undefined,
      terms: { leaseMs: 90_000, holder: undefined, patienceMs: undefined },
      dispatcher: {
        async poll(asking) {
          askings.push(asking);
          if (away) throw new Error("the store is away");
          if (askings.length === 2) return [jobOf("late")];
          return new Promise<Job[]>(() => {});
        },
      },
      worker: { environmentId: "env_a", id: "w", functionIds: ["late"] } as unknown as WorkerRecord,
      signal: new AbortController().signal,
      free: () => free,
      onJobs(jobs) {
        free -= jobs.length;
        got.push(...jobs);
      },
    });
    asks.poll();
    await settle();
    expect(lines.map(({ event }) => event)).toEqual(["worker.ask_failed"]);
    // It does not spin.
    asks.poll();
    await settle();
    expect(askings).toHaveLength(1);
    away = false;
    await clock.advance(1_000);
    asks.poll();
    await settle();
    expect(got.map((job) => job.functionId)).toEqual(["late"]);
    expect(askings.map(({ available }) => available)).toEqual([3, 3, 2]);
  });
});
