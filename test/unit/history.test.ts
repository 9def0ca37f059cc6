import { describe, expect, test } from "bun:test";
import {
  eventsOf,
  formerSteps,
  type HistoryRow,
  isShown,
  statusAt,
  stepAt,
} from "../../src/domain/record/history/rules.ts";

const row = (sequence: number, type: string, at: number, detail: object = {}): HistoryRow => ({
  run_id: "run_1",
  sequence,
  type,
  at,
  detail: JSON.stringify(detail),
});

const history = [
  row(1, "run.created", 10),
  row(2, "run.started", 20),
  row(3, "run.progress", 30, { steps: [{ step_id: "a", status: "completed" }] }),
  row(4, "run.slept", 40, { step_id: "nap", until: 60 }),
  row(5, "run.woken", 60, { step_id: "nap" }),
  row(6, "step.patched", 70, { step_id: "a", previous_output: 1, output: 2, injected: false }),
  row(7, "run.completed", 80, { steps: [{ step_id: "b", status: "completed" }] }),
];
const step = (stepId: string, output: string, originalOutput: string | null = null) => ({
  stepId,
  status: "completed",
  output,
  error: null,
  originalOutput,
});

describe("the past of a run", () => {
  test("its status at every instant", () => {
    const at = [9, 10, 20, 35, 40, 59, 60, 79, 80].map((instant) => statusAt(history, instant));
    expect(at).toEqual([
      undefined,
      "waiting_for_capacity",
      "running",
      "running",
      "paused",
      "paused",
      "waiting_for_capacity",
      "waiting_for_capacity",
      "completed",
    ]);
  });

  test("a step before it was, as it was first, and as it was patched", () => {
    const a = step("a", "2", "1");
    expect(stepAt(history, a, 29)).toBeUndefined();
    expect(stepAt(history, a, 30)).toMatchObject({ status: "completed", output: "1", patched: false });
    expect(stepAt(history, a, 70)).toMatchObject({ output: "2", originalOutput: "1", patched: true });
    expect(stepAt(history, step("nap", "null"), 50)).toMatchObject({ status: "sleeping", output: null });
    expect(stepAt(history, step("nap", "null"), 60)).toMatchObject({ status: "completed", output: "null" });
  });

  test("of two later patches the first says what stood before, also when that was nothing", () => {
    const rows = [
      row(1, "run.created", 1),
      row(2, "run.progress", 2, { steps: [{ step_id: "a", status: "completed" }] }),
      row(3, "step.patched", 3, { step_id: "a", previous_output: null, output: 1 }),
      row(4, "step.patched", 4, { step_id: "a", previous_output: 1, output: 2 }),
    ];
    expect(stepAt(rows, step("a", "2"), 2)).toMatchObject({ output: null });
    expect(stepAt(rows, step("a", "2"), 3)).toMatchObject({ output: "1" });
  });

  test("null that stood before a patch is told from nothing", () => {
    const rows = (had: boolean | undefined) => [
      row(1, "run.progress", 2, { steps: [{ step_id: "a", status: "completed" }] }),
      row(2, "step.patched", 3, {
        step_id: "a",
        previous_output: null,
        ...(had !== undefined && { had_output: had }),
        output: 1,
      }),
    ];
    const before = (had: boolean | undefined) => stepAt(rows(had), step("a", "1"), 2)?.output;
    expect([before(true), before(false), before(undefined)]).toEqual(["null", null, null]);
  });

  const discarded = (stepId: string, output: string) => ({
    step_id: stepId,
    name: stepId,
    type: "run",
    sequence: 1,
    status: "completed",
    output,
    started_at: 1,
    ended_at: 2,
    duration_ms: 1,
  });
  const done = (sequence: number, at: number, ...ids: string[]) =>
    row(sequence, "run.progress", at, { steps: ids.map((id) => ({ step_id: id, status: "completed" })) });

  test("steps that a resume discarded stand until then, and as they were", () => {
    const rows = [
      row(1, "run.created", 1),
      done(2, 2, "a", "b", "c"),
      row(3, "run.resumed", 5, { discarded: [discarded("b", "2"), discarded("c", "3")] }),
      done(4, 8, "b"),
    ];
    const at = (instant: number, stepId: string, output: string) =>
      stepAt(rows, formerSteps(rows, instant).get(stepId) ?? step(stepId, output), instant)?.output;
    expect([at(2, "b", "20"), at(5, "b", "20"), at(8, "b", "20")]).toEqual(["2", undefined, "20"]);
    expect([at(4, "c", ""), at(5, "c", "")]).toEqual(["3", undefined]);
    expect([at(2, "a", "1"), at(9, "a", "1")]).toEqual(["1", "1"]);
    expect(rows.flatMap(eventsOf).find(({ type }) => type === "run.resumed")?.payload).toEqual({
      discarded: ["b", "c"],
    });
    // A resume that was undone left the steps where they were.
    const undone = [...rows.slice(0, 3), row(4, "run.resume_undone", 6)];
    expect(formerSteps(undone, 2).size).toBe(0);
    expect(stepAt(undone, step("b", "2"), 7)).toMatchObject({ status: "completed", output: "2" });
  });

  test("a step that failed first keeps no error of another attempt", () => {
    const rows = [
      row(1, "run.created", 1),
      row(2, "run.retrying", 2, { steps: [{ step_id: "a", status: "failed" }] }),
      row(3, "run.completed", 3, { steps: [{ step_id: "a", status: "completed" }] }),
    ];
    expect(stepAt(rows, step("a", "1"), 2)).toMatchObject({ status: "failed", output: null, error: null });
    expect(stepAt(rows, step("a", "1"), 3)).toMatchObject({ status: "completed", output: "1" });
  });

  test("a report becomes its steps and what became of the run", () => {
    expect(history.flatMap(eventsOf).map((event) => event.type)).toEqual([
      "run.created",
      "run.started",
      "step.completed",
      "step.sleeping",
      "run.slept",
      "step.completed",
      "run.woken",
      "step.patched",
      "step.completed",
      "run.completed",
    ]);
    expect(new Set(history.flatMap(eventsOf).map((event) => event.id)).size).toBe(10);
  });

  test("a profile shows its part", () => {
    const shown = (profile?: string) =>
      ["run.started", "step.completed"].filter((type) => isShown(profile, type));
    expect(shown("run_lifecycle")).toEqual(["run.started"]);
    expect(shown("steps")).toEqual(["step.completed"]);
    expect(shown()).toHaveLength(2);
  });
});
