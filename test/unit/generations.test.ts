import { expect, test } from "bun:test";
import { type AssignedJob, assignmentJson } from "../../src/domain/engine/jobs/rules.ts";
import { knowsFailedSteps, stepsFor } from "../../src/domain/engine/workers/rules.ts";
import { toEngineMessage, toJobMessage } from "../../src/domain/engine/workers/wire.ts";

test.each([
  ["", false],
  ["0.29.4", false],
  ["0.39", false],
  ["0.40", true],
  ["v0.41.0-beta", true],
  ["1.0.0", true],
  ["latest", false],
])("an SDK of version %p reads failed steps: %p", (sdk, knows) => {
  expect(knowsFailedSteps(sdk)).toBe(knows);
});

const steps = [
  {
    run_id: "run_1",
    step_id: "s:a:0",
    name: "a",
    type: "invoke" as const,
    output: "1",
    status: "completed" as const,
    error: null,
    on_timeout: null,
    is_kept: null,
    sequence: 0,
  },
  {
    run_id: "run_1",
    step_id: "s:b:0",
    name: "b",
    type: "invoke_function" as const,
    output: null,
    status: "failed" as const,
    error: '{"message":"no"}',
    on_timeout: null,
    is_kept: null,
    sequence: 0,
  },
];

test("older workers get completed steps alone, newer ones see what failed and why, on both surfaces", () => {
  expect(stepsFor("0.36.0", steps).map((step) => step.step_id)).toEqual(["s:a:0"]);
  // What asked for a wait's end in place of a failed run gets it, whatever else it reads.
  const over = { ...steps[1]!, status: "timed_out" as const, on_timeout: "null" as const };
  expect(stepsFor("", [over])).toEqual([{ ...over, status: "completed", output: null, error: null }]);
  expect(stepsFor("0.40.0", [over])).toEqual([over]);
  const job = {
    completedSteps: stepsFor("0.40.0", steps),
    event: { data: "{}", at: 0 },
    leaseExpiresAt: 0,
    executionSeq: 1,
  };
  const rest = JSON.parse(assignmentJson(job as unknown as AssignedJob)).completed_steps;
  expect(rest).toEqual([
    { step_id: "s:a:0", name: "a", output: 1, status: "completed" },
    { step_id: "s:b:0", name: "b", output: null, status: "failed", error: { message: "no" } },
  ]);
  const { payload } = toEngineMessage({
    kind: "job",
    job: job as unknown as AssignedJob,
    message: toJobMessage(job as unknown as AssignedJob),
  });
  if (payload?.case !== "job") throw new Error("no job");
  expect(
    payload.value.completedSteps?.map(({ status, errorJson }) => [
      status,
      errorJson && new TextDecoder().decode(errorJson),
    ]),
  ).toEqual([
    ["completed", undefined],
    ["failed", '{"message":"no"}'],
  ]);
});
