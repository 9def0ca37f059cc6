import { describe, expect, test } from "bun:test";
import { join } from "node:path";
import fc from "fast-check";
import { notePaths, suggestCel } from "../../src/dashboard/lib/cel.ts";
import { ago, duration, plain } from "../../src/dashboard/lib/format.ts";
import { lastSaid } from "../../src/dashboard/lib/last-said.ts";
import { layOut } from "../../src/dashboard/lib/layers.ts";
import type { Moment, RunView, StepView } from "../../src/dashboard/lib/runs.ts";
import { csvOf, problemOf } from "../../src/dashboard/lib/sql-text.ts";
import type { StreamEventView } from "../../src/dashboard/lib/streams.ts";
import { extentOf, linesOf } from "../../src/dashboard/pages/run/lines.ts";
import { sdkTestOf } from "../../src/dashboard/pages/run/sdk-test.ts";
import { diffLines } from "../../src/dashboard/ui/diff.tsx";
import { createFunction, NonRetryableError, type SvcFunction, testFunction } from "../../src/sdk/index.ts";

const moment = (type: string, ms: number): Moment => ({
  ...{ id: `${type} ${ms}`, type, stepId: "", stepName: "", summary: "", significant: true },
  at: ms,
});

/** Runs the text of a test with the function that it names. */
async function runCopied(text: string, target: SvcFunction): Promise<void> {
  const body = new Bun.Transpiler({ loader: "ts" }).transformSync(text.replaceAll(/^import .*$/gm, ""));
  const copied: (() => Promise<void>)[] = [];
  const there = { test: (_: string, work: () => Promise<void>) => copied.push(work), expect, target };
  const all = { ...there, testFunction, NonRetryableError };
  new Function(...Object.keys(all), body)(...Object.values(all));
  expect(copied).toHaveLength(1);
  await copied[0]!();
}

describe("what the dashboard works out by itself", () => {
  test("a run copied as a test gives the same run again, whatever its texts hold", async () => {
    const hostile = "`\"'\\ \u2028 */ </script>";
    const target = createFunction({ id: hostile, event: "order.placed" }, async ({ event, step }) => {
      const each: unknown[] = [];
      for (const part of [1, 2]) each.push(await step.run("part", () => ({ part, hostile })));
      const paid = await step.waitForEvent("order.paid", { timeout: "1h" });
      const child = await step.invoke("bill", { input: { sum: 1 } });
      const { fails } = event.data as { fails: boolean };
      if (fails)
        await step.run("charge", () => {
          throw new NonRetryableError(hostile, { code: "DECLINED" });
        });
      return { each, paid: paid?.data, child };
    });
    for (const fails of [false, true]) {
      const input = { fails, hostile };
      const result = await testFunction(target)
        .mockInvoke("bill", ["2 EUR"])
        .on("order.paid", () => ({ by: hostile }))
        .run(input);
      const steps = result.steps.map(({ id, ...step }, sequence) => ({
        ...{ ...step, stepId: id, sequence, waitEventName: "order.paid" },
      }));
      const run = { id: "run_1", functionId: hostile, eventName: "order.placed" };
      const { status, error, output } = result;
      const shown = { run: { ...run, status, error } as unknown as RunView, input, output };
      const children = new Map(steps.map(({ stepId }) => [stepId, "bill"]));
      const text = sdkTestOf(shown, steps as unknown as StepView[], children);
      await runCopied(text, target);
      const other = text.replace(`toBe("${status}")`, `toBe("cancelled")`);
      await expect(runCopied(other, target)).rejects.toThrow();
    }
  });

  test("so does a run that waited for signals, for several things, and for a run that it started", async () => {
    const target = createFunction({ id: "waits", event: "order.placed" }, async ({ step }) => {
      const child = await step.invokeAsync("bill", { input: { sum: 1 } });
      const signals = [await step.waitForSignal("add"), await step.waitForSignal("add")];
      const first = await step.waitForAny("first", {
        paid: { event: "order.paid" },
        left: { event: "order.left" },
      });
      const all = await step.waitForAll("all", {
        sent: { event: "order.sent" },
        cart: { stream: "c1", version: 3 },
      });
      const key = await step.waitForKey("locks", "a", { exists: true });
      const bill = await step.waitForRun(child.runId);
      await step.emit("order.closed", {});
      return { signals, first: first?.name, all: all?.cart, exists: key?.exists, bill: bill?.output };
    });
    const result = await testFunction(target)
      .mockInvoke("bill", "2 EUR")
      .mockStep("emit.order.closed", { eventId: "evt_1", runIds: [] })
      .signal("add", { n: 1 })
      .signal("add", null)
      .on("order.paid", () => ({ by: "ada" }))
      .on("order.sent", () => null)
      .stream("c1", 3)
      .key("locks", "a", 1)
      .run({});
    const { status, output, error } = result;
    expect(error).toBeUndefined();
    // As the server names them, which has one type for all waits.
    const names = [
      "",
      "signal add",
      "signal add",
      "order.paid, order.left",
      "order.sent, stream c1",
      "key locks/a",
    ];
    const steps = result.steps.map(({ id, type, ...step }, sequence) => ({
      ...{ ...step, stepId: id, sequence, waitEventName: names[sequence] ?? "run run_child_bill" },
      type: type.startsWith("wait") ? "wait_for_event" : type.replace(/_async$/, ""),
    }));
    const run = { id: "run_1", functionId: "waits", eventName: "order.placed", status, error };
    const shown = { run: run as unknown as RunView, input: {}, output };
    const children = new Map(steps.map(({ stepId }) => [stepId, "bill"]));
    await runCopied(sdkTestOf(shown, steps as unknown as StepView[], children), target);
  });

  test("no two pages of an area have one key behind g", async () => {
    const table = await Bun.file(join(import.meta.dir, "../../src/dashboard/pages.tsx")).text();
    const areas = table.split(/^export const pages\b/m);
    expect(areas).toHaveLength(2);
    for (const area of areas) {
      const keys = [...area.matchAll(/\bkey: "(\w)"/g)].map(([, key]) => key!);
      expect(keys.length).toBeGreaterThan(5);
      expect(keys.toSorted()).toEqual([...new Set(keys)].sort());
    }
  });

  test("every link leads to a page that there is", async () => {
    const folder = join(import.meta.dir, "../../src/dashboard");
    const table = await Bun.file(join(folder, "pages.tsx")).text();
    const pages = new Set(Array.from(table.matchAll(/path: "([a-z-]+)"/g), ([, path]) => path));
    const dead: string[] = [];
    for await (const file of new Bun.Glob("**/*.{ts,tsx}").scan(folder))
      for (const [, page] of (await Bun.file(join(folder, file)).text()).matchAll(/hrefOf\(\[\s*"([^"]+)"/g))
        if (!pages.has(page)) dead.push(`${file}: ${page}`);
    expect(dead).toEqual([]);
    expect(pages.size).toBeGreaterThan(20);
  });

  test("a difference has every line of both sides, in order", () => {
    const lines = fc.array(fc.constantFrom("a", "b", "c", "d"), { maxLength: 30 });
    fc.assert(
      fc.property(lines, lines, (before, after) => {
        const found = diffLines(before, after);
        const of = (gone: "gone" | "new") =>
          found.filter(({ kind }) => kind !== gone).map(({ text }) => text);
        expect(of("new")).toEqual(before);
        expect(of("gone")).toEqual(after);
      }),
    );
    expect(diffLines(["a", "b", "c"], ["a", "x", "c"]).map(({ kind }) => kind)).toEqual([
      "same",
      "gone",
      "new",
      "same",
    ]);
  });

  test("characters that nobody sees are written out, letters of any script stay", () => {
    expect(plain("a\u202eb\u0000c\u200bd\n")).toBe("a\\u{202e}b\\u{0}c\\u{200b}d\\u{a}");
    expect(plain("Zoë 東京 👩‍💻")).toBe("Zoë 東京 👩‍💻");
  });

  test("a drawing leads from left to right, but for what leads back", () => {
    const graph = fc.uniqueArray(fc.tuple(fc.nat(9), fc.nat(9)), { selector: String });
    fc.assert(
      fc.property(graph, (pairs) => {
        const lines = pairs.map(([from, to]) => ({ from: `${from}`, to: `${to}` }));
        const ids = [...new Set(lines.flatMap(({ from, to }) => [from, to]))];
        const { places, width, height } = layOut({ ids, lines, box: { width: 10, height: 4 } });
        expect(Object.keys(places).sort()).toEqual(ids.sort());
        expect(new Set(Object.values(places).map(({ x, y }) => `${x} ${y}`)).size).toBe(ids.length);
        const isInside = ({ x, y }: { x: number; y: number }) =>
          x >= 0 && y >= 0 && x + 10 <= width && y + 4 <= height;
        expect(Object.values(places).every(isInside)).toBe(true);
        if (pairs.every(([from, to]) => from < to))
          for (const { from, to } of lines) expect(places[from]!.x).toBeLessThan(places[to]!.x);
      }),
    );
  });

  test("a time has two units at most", () => {
    const times = [0, 999, 1_000, 59_900, 59_960, 3_599_000, 3_600_000, 90_000_000];
    const said = ["0 ms", "999 ms", "1.00 s", "59.9 s", "0 m 59 s", "59 m 59 s", "1 h 00 m", "1 d 1 h"];
    expect(times.map(duration)).toEqual(said);
  });

  test("a time to come is not said to be just now", () => {
    const said = [2_000_000, 1_000, 0, -59_000, -61_000, -7_300_000].map((before) => ago(9e6 - before, 9e6));
    expect(said).toEqual(["33 m ago", "just now", "just now", "just now", "in 1 m", "in 2 h"]);
  });

  test("the run's line shows what it was, and each attempt has one where there were more", () => {
    const run = { id: "run_1", functionId: "f", status: "completed", createdAt: 0, endedAt: 90 } as RunView;
    const moments = [
      moment("run.created", 0),
      moment("run.started", 10),
      moment("run.retrying", 30),
      moment("run.retried", 50),
      moment("run.started", 60),
      moment("run.completed", 90),
    ];
    const [whole, ...attempts] = linesOf(run, [], moments);
    expect(whole!.segments.map(({ from, to, tone }) => [from, to, tone])).toEqual([
      [0, 10, "idle"],
      [10, 30, "busy"],
      [30, 50, "warn"],
      [50, 60, "idle"],
      [60, 90, "busy"],
    ]);
    expect(attempts.map(({ name, segments: [one] }) => [name, one!.from, one!.to, one!.tone])).toEqual([
      ["Attempt 1", 10, 30, "bad"],
      ["Attempt 2", 60, 90, "good"],
    ]);
  });

  test("sleeps, waits, children and compensations have a line of their own, with what is to come", () => {
    const run = { id: "run_1", functionId: "f", status: "paused", createdAt: 0 } as RunView;
    const step = (stepId: string, rest: Partial<StepView>) =>
      ({ ...{ stepId, name: stepId, sequence: 0 }, ...rest }) as StepView;
    const steps = [
      step("refund", { type: "compensate", status: "completed", startedAt: 50, endedAt: 60 }),
      step("bill", { type: "invoke_function", status: "running", startedAt: 40 }),
      step("paid", { type: "wait_for_event", status: "waiting", startedAt: 30, waitTimeout: 900 }),
      // Written down when the sleep began: that is no end of it.
      step("night", { type: "sleep", status: "sleeping", startedAt: 20, endedAt: 20, sleepUntil: 800 }),
      step("slept", { type: "sleep", status: "completed", startedAt: 10, endedAt: 15, sleepUntil: 15 }),
      step("charge", { type: "invoke", status: "failed", startedAt: 5, endedAt: 8, retryAt: 100 }),
    ];
    const [, ...lines] = linesOf(run, steps, []);
    const shown = lines.map(({ name, about, icon, level, segments }) => [
      ...[name, about, icon, level],
      ...segments.map(({ from, to, isAhead }) => `${from} to ${to ?? "now"}${isAhead ? ", ahead" : ""}`),
    ]);
    expect(shown).toEqual([
      ["charge", "Failed", "step", 1, "5 to 8", "5 to 100, ahead"],
      ["slept", "Completed", "moon", 1, "10 to 15"],
      ["night", "Sleeping", "moon", 1, "20 to now", "20 to 800, ahead"],
      ["paid", "Waiting", "clock", 1, "30 to now", "30 to 900, ahead"],
      ["bill", "Running", "child", 1, "40 to now"],
      ["undo refund", "Completed", "undo", 2, "50 to 60"],
    ]);
    expect(extentOf(run, lines, 70)).toEqual({ from: 0, to: 70 });
  });

  test("steps of branches stand under their group, which says how it went", () => {
    const run = { id: "run_1", functionId: "f", status: "running", createdAt: 0 } as RunView;
    const step = (stepId: string, startedAt: number, rest: Partial<StepView> = {}) =>
      ({
        ...{ stepId: `run_1:${stepId}`, name: stepId.split(":").at(-2), sequence: 0, type: "invoke" },
        ...{ status: "completed", startedAt, endedAt: startedAt + 5, ...rest },
      }) as StepView;
    const steps = [
      step("first:0", 1),
      step("each\\:one:0:pack:0", 10),
      step("each\\:one:1:pack:0", 11, { status: "failed" }),
      step("label:0:print:0", 12, { status: "running", endedAt: undefined }),
      step("each\\:one:0:legs:0:walk:0", 20),
      step("each\\:one:0:compensate:pack:0", 30, { type: "compensate" }),
      step("last:0", 40),
      // Not as the SDK writes it.
      { ...step("other:0", 50), stepId: "step-of-a-foreign:worker:0:a:b" } as StepView,
      // The id of a group may be that of a step.
      step("twin:0:pack:0", 60),
      { ...step("twin:0", 61), stepId: "run_1:twin" } as StepView,
    ];
    const shown = linesOf(run, steps, []).map(({ name, level, about, segments: [one] }) => [
      ...[name, level, about, `${one!.from} to ${one!.to ?? "now"}`, one!.tone],
    ]);
    expect(shown.slice(1)).toEqual([
      ["first", 1, "Completed", "1 to 6", "good"],
      ["each:one", 1, "2 branches", "10 to 35", "bad"],
      ["pack [0]", 2, "Completed", "10 to 15", "good"],
      ["pack [1]", 2, "Failed", "11 to 16", "bad"],
      ["legs [0]", 2, "1 branch", "20 to 25", "good"],
      ["walk [0]", 3, "Completed", "20 to 25", "good"],
      ["undo pack [0]", 3, "Completed", "30 to 35", "good"],
      ["label", 1, "1 branch", "12 to now", "busy"],
      ["print [0]", 2, "Running", "12 to now", "busy"],
      ["last", 1, "Completed", "40 to 45", "good"],
      ["other", 1, "Completed", "50 to 55", "good"],
      ["twin", 1, "1 branch", "60 to 65", "good"],
      ["pack [0]", 2, "Completed", "60 to 65", "good"],
      ["twin", 1, "Completed", "61 to 66", "good"],
    ]);
  });

  test("a file for spreadsheets quotes what divides it, and holds no formula", () => {
    const rows = [
      ["=1+1", "-5"],
      ['say "a, b"', null],
    ];
    const file = csvOf({ columns: ["text", "number"], rows });
    expect(file).toBe('text,number\r\n\'=1+1,-5\r\n"say ""a, b""",\r\n');
  });

  test("what is wrong with a query is found in its text, by line and column or by name", () => {
    const query = "SELECT '😀'\n  FORM runs";
    const place = problemOf('query: syntax error at or near "FORM", line 2, column 3', query);
    expect(query.slice(place.from, place.to)).toBe("FORM");
    const named = problemOf('query: table "runs" is not there', query);
    expect(query.slice(named.from, named.to)).toBe("runs");
  });

  test("the fields of a stream are what was said last, up to a version", () => {
    const event = (at: number, data: unknown) => ({ at, data }) as StreamEventView;
    const events = [event(3, { sum: 3 }), event(2, ["none"]), event(1, { sum: 1, by: "ada" })];
    expect({ ...lastSaid(events, 2) }).toEqual({ sum: 1, by: "ada" });
    expect({ ...lastSaid(events, 3) }).toEqual({ sum: 3, by: "ada" });
  });

  test("a word of a filter is ended by names that came, and by methods", () => {
    const known = new Set<string>();
    notePaths(known, { customer: { name: "a", "not-a-name": 1 } }, "data");
    expect(suggestCel("data.c", known)).toEqual(["data.customer", "data.customer.name", "data.contains("]);
  });
});
