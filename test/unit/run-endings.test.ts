import { expect, test } from "bun:test";
import { compensatingJob } from "../../src/domain/engine/runs/rules.ts";
import { decideEnd, type EndingRow, type RunEnd } from "../../src/domain/engine/runs/undo/end-runs.ts";
import { restoredStateOf } from "../../src/domain/engine/runs/wakes/sweep.ts";

const error = { message: "late", code: "RUN_TIMEOUT", retryable: false };
const failed: RunEnd = { runId: "run_1", status: "failed", error, cause: null };
const cancelled: RunEnd = { runId: "run_1", status: "cancelled", error: null, cause: "user" };
const both = 1 | 2;
const row = (changes: Partial<EndingRow>): EndingRow => ({
  ...{ state: "sleeping", ending: null, undo_count: 1, lost_count: 0, undo_on: both },
  ...{ undone_count: 0, not_undone_count: 0 },
  ...changes,
});
const ending = { status: "failed" as const, error, cause: null, interrupted: false, tries: 0 };

test("a run is undone first when its function asks for it and there may be something to undo", () => {
  expect(decideEnd(failed, undefined)).toEqual({ kind: "end", end: failed, undoFailed: null });
  expect(decideEnd(failed, row({}))).toEqual({ kind: "undo", ending });
  expect(decideEnd(failed, row({ undo_count: 0 })).kind).toBe("end");
  // A worker that was lost may have done what it never told, and what it did last is not known.
  for (const [lost, more] of [
    [{ undo_count: 0, lost_count: 1 }, { lostBefore: true }],
    [{ state: "leased" }, {}],
  ] as const)
    expect(decideEnd(failed, row(lost))).toEqual({
      kind: "undo",
      ending: { ...ending, interrupted: true, ...more },
    });
  expect(decideEnd(cancelled, row({})).kind).toBe("undo");
  expect(decideEnd(cancelled, row({ undo_on: 1 }))).toEqual({
    kind: "end",
    end: cancelled,
    undoFailed: null,
  });
  expect(decideEnd(failed, row({ undo_on: 4, undo_count: 0 })).kind).toBe("undo");
  // Its function is gone: what it did stays, and is counted.
  expect(decideEnd(failed, row({ undo_on: null, undo_count: 2 }))).toMatchObject({ undoFailed: 2 });
});

test("a run whose time to be undone is over ends as it was to end, with what is not undone", () => {
  const text = JSON.stringify({ ...ending, status: "cancelled", error: null, cause: "user" });
  expect(decideEnd(failed, row({ ending: text, undo_count: 3, undone_count: 1 }))).toEqual({
    kind: "end",
    end: cancelled,
    undoFailed: 2,
  });
  expect(decideEnd(failed, row({ ending: text, undone_count: 1 }))).toMatchObject({ undoFailed: 1 });
});

test("a worker is told what the run ends with, and how often it may ask again", () => {
  expect(compensatingJob(null)).toBeNull();
  expect(compensatingJob(JSON.stringify({ ...ending, tries: 1 }))).toEqual({
    ...{ status: "failed", error, interrupted: false, tries_left: 3 },
  });
});

test("a run that lost its execution is undone again, unless it was resumed since", () => {
  const at = (type: string, detail: object) => ({ sequence: 1, type, at: 1, detail: JSON.stringify(detail) });
  const history = [at("run.created", {}), at("run.compensating", { ending }), at("run.started", {})];
  expect(restoredStateOf(history)).toMatchObject({ state: "queued", ending });
  const resumed = [...history, at("run.failed", {}), at("run.resumed", { from: "failed" })];
  expect(restoredStateOf(resumed).ending).toBeUndefined();
});
