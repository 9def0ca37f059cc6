import { describe, expect, test } from "bun:test";
import type { FunctionRecord, FunctionStatus } from "../../src/domain/engine/functions/definition.ts";
import { definitionOf, type RegisterInput } from "../../src/domain/engine/functions/rules.ts";
import type { Schedule } from "../../src/domain/engine/schedules/rows.ts";
import { dueSlots, planOf, scheduleChanges, withoutFired } from "../../src/domain/engine/schedules/rules.ts";

const at = (text: string) => Date.parse(`2026-01-01T${text}Z`);
const now = at("12:00:00");

const record = (triggers: RegisterInput["triggers"], status: FunctionStatus = "active"): FunctionRecord => ({
  environmentId: "env_a",
  definition: definitionOf({ id: "report", ...(triggers && { triggers }) }),
  status,
  version: 1,
  createdAt: 0,
  updatedAt: 0,
});

const changes = (known: readonly Schedule[], records: FunctionRecord[]) =>
  scheduleChanges("env_a", known, records, { now, self: "me" });
const leaves = (made: ReturnType<typeof changes>) =>
  made.frames.map(({ environmentId: _e, functionId: _f, at: _a, ...frame }) => frame);

const hourly = { cron: "0 * * * *" };
const daily = { cron: "0 6 * * *" };

describe("schedules follow the triggers", () => {
  const before = changes([], [record([hourly])]).put;

  test("a new one", () => {
    const made = changes([], [record([hourly, hourly, { ...hourly, event: "tick" }, { event: "x" }])]);
    expect(made.put.map(({ place, eventName, nextAt }) => [place, eventName, nextAt])).toEqual([
      [0, "", at("13:00:00")],
      [1, "tick", at("13:00:00")],
    ]);
    expect(leaves(made)[0]).toEqual({
      leaf: "registered",
      expression: "0 * * * *",
      nextRun: at("13:00:00"),
      replaced: false,
    });
  });

  test("an unchanged one says nothing", () => {
    expect(changes(before, [record([hourly])])).toEqual({ gone: [], put: [], frames: [] });
  });

  test("a changed expression replaces", () => {
    const made = changes(before, [record([daily])]);
    expect(made.gone).toEqual(before);
    expect(made.put).toMatchObject([{ place: 1, expression: "0 6 * * *" }]);
    expect(leaves(made)).toMatchObject([{ leaf: "registered", replaced: true }]);
  });

  test("one that is gone says why", () => {
    expect(leaves(changes(before, [record([])]))).toEqual([{ leaf: "removed", cause: "triggers_changed" }]);
    expect(leaves(changes(before, []))).toEqual([{ leaf: "removed", cause: "function_deleted" }]);
    expect(leaves(changes(before, [record([hourly], "archived")]))).toEqual([
      { leaf: "removed", cause: "triggers_changed" },
    ]);
  });

  test("one that does not parse is announced once and never due", () => {
    const made = changes([], [record([{ cron: "61 * * * *" }])]);
    expect(made.put).toMatchObject([{ nextAt: null }]);
    expect(leaves(made)).toMatchObject([{ leaf: "invalid", expression: "61 * * * *" }]);
    expect(changes(made.put, [record([{ cron: "61 * * * *" }])]).frames).toEqual([]);
    expect(leaves(changes(made.put, []))).toEqual([]);
    expect(leaves(changes(before, [record([{ cron: "x" }])])).map(({ leaf }) => leaf)).toEqual([
      "invalid",
      "removed",
    ]);
  });

  test("a paused function's rests, and goes on from when it is active again", () => {
    const paused = changes(before, [record([hourly], "paused")]);
    expect(paused).toMatchObject({ gone: [], put: [{ place: 0, nextAt: null }], frames: [] });
    expect(changes(paused.put, [record([hourly])])).toMatchObject({
      put: [{ nextAt: at("13:00:00") }],
      frames: [],
    });
  });
});

describe("due slots", () => {
  const plan = (expression: string) => {
    const made = planOf(expression);
    if ("error" in made) throw new Error(made.error);
    return made;
  };

  test("in time", () => {
    expect(dueSlots(plan("* * * * *"), at("12:00:00"), at("12:00:00"))).toEqual({
      fires: at("12:00:00"),
      missed: undefined,
      nextAt: at("12:01:00"),
    });
  });

  test("the last of several is fired, the others are missed", () => {
    expect(dueSlots(plan("* * * * * *"), at("12:00:00"), at("12:00:04"))).toEqual({
      fires: at("12:00:04"),
      missed: {
        count: 4,
        verified: true,
        windowStart: at("12:00:00"),
        windowEnd: at("12:00:03"),
        slots: [0, 1, 2, 3].map((second) => at(`12:00:0${second}`)),
      },
      nextAt: at("12:00:05"),
    });
  });

  test("nothing is backfilled", () => {
    expect(dueSlots(plan("0 * * * *"), at("03:00:00"), at("06:30:00"))).toEqual({
      fires: undefined,
      missed: {
        count: 4,
        verified: true,
        windowStart: at("03:00:00"),
        windowEnd: at("06:00:00"),
        slots: [3, 4, 5, 6].map((hour) => at(`0${hour}:00:00`)),
      },
      nextAt: at("07:00:00"),
    });
  });

  test("those that were fired unheard are not missed", () => {
    const { missed } = dueSlots(plan("0 * * * *"), at("03:00:00"), at("06:30:00"));
    expect(withoutFired(missed!, new Set([at("04:00:00"), at("06:00:00")]))).toMatchObject({
      missed: { count: 2, windowStart: at("04:00:00"), windowEnd: at("06:00:00") },
      fired: 2,
    });
    expect(withoutFired(missed!, new Set())).toEqual({ missed: undefined, fired: 4 });
  });

  test("more than are counted are a floor", () => {
    const { fires, missed, nextAt } = dueSlots(plan("* * * * * *"), at("00:00:00"), at("12:00:00"));
    expect({ fires, nextAt }).toEqual({ fires: at("12:00:00"), nextAt: at("12:00:01") });
    expect(missed).toMatchObject({ verified: false, windowStart: at("00:00:00"), windowEnd: at("11:59:59") });
    expect(missed!.count).toBeGreaterThanOrEqual(1_000);
  });
});
