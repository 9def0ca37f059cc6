import { describe, expect, test } from "bun:test";
import {
  passedOn,
  readTraceparent,
  spanIdOf,
  traceIn,
  traceOfRun,
  traceparentOf,
  withTraceparent,
} from "../../src/kit/trace.ts";
import { spanIdOf as spanIdOfSdk, traceparentsOf } from "../../src/sdk/wire/wire.ts";

const trace = "4bf92f3577b34da6a3ce929d0e0e4736";
const span = "00f067aa0ba902b7";
const own = `00-${trace}-${span}-01`;

describe("a traceparent", () => {
  test("is read and written as W3C has it", () => {
    expect(readTraceparent(own)).toEqual({ traceId: trace, spanId: span, sampled: true });
    expect(traceparentOf({ traceId: trace, spanId: span, sampled: false })).toBe(`00-${trace}-${span}-00`);
    // Further flags, and a later version with more behind it.
    expect(passedOn(`00-${trace}-${span}-ff`)).toBe(own);
    expect(passedOn(`cc-${trace}-${span}-01-what-the-future-will-be-like`)).toBe(own);
    expect(passedOn(`cc-${trace}-${span}-01-${"x".repeat(100_000)}`)).toBe(own);
  });

  test.each([
    null,
    undefined,
    "",
    "00",
    own.toUpperCase(),
    ` ${own}`,
    `${own}-more`,
    `${own}x`,
    `ff-${trace}-${span}-01`,
    `cc-${trace}-${span}-01.more`,
    `00-${"0".repeat(32)}-${span}-01`,
    `00-${trace}-${"0".repeat(16)}-01`,
    `00-${trace.slice(1)}-${span}-01`,
    `00-${trace}-${span}-1`,
  ])("that is malformed is none: %p", (text) => {
    expect(readTraceparent(text)).toBeUndefined();
    expect(passedOn(text)).toBeUndefined();
  });

  test("that is endless is none", () => {
    expect(readTraceparent("x".repeat(1_000_000))).toBeUndefined();
  });

  test("travels in an event's metadata, where the sender's own word stands before the header's", () => {
    expect(withTraceparent(null, undefined)).toBeNull();
    expect(withTraceparent('{"a":1}', undefined)).toBe('{"a":1}');
    expect(withTraceparent(null, own)).toBe(`{"traceparent":"${own}"}`);
    expect(JSON.parse(withTraceparent('{"a":1}', own)!)).toEqual({ a: 1, traceparent: own });
    expect(JSON.parse(withTraceparent("{}", own)!)).toEqual({ traceparent: own });
    expect(withTraceparent('{"traceparent":"mine"}', own)).toBe('{"traceparent":"mine"}');
    expect(traceIn(withTraceparent('{"a":1}', own))).toEqual({ traceId: trace, spanId: span, sampled: true });
    for (const metadata of [
      null,
      "{}",
      '{"a":"traceparent"}',
      '{"traceparent":7}',
      '{"traceparent":"mine"}',
      `{"inner":{"traceparent":"${own}"}}`,
    ])
      expect(traceIn(metadata)).toBeUndefined();
  });

  test("of a run and of its steps has ids of its own, the same ones at the server and in a worker", () => {
    const made = new Set<string>();
    for (let run = 0; run < 50; run++) {
      const runId = `run_01jd${run}`;
      made.add(spanIdOf(runId));
      for (const stepId of [`${runId}:a:0`, `${runId}:a:1`, `${runId}:ä ❄:0`]) {
        made.add(spanIdOf(runId, stepId));
        expect(spanIdOfSdk(runId, stepId)).toBe(spanIdOf(runId, stepId));
      }
    }
    expect(made.size).toBe(200);
    for (const id of made) expect(readTraceparent(`00-${trace}-${id}-01`)?.spanId).toBe(id);
  });

  test("of a step is that of its run where nobody keeps spans of steps", () => {
    const context = readTraceparent(own)!;
    const run = traceparentOf(traceOfRun(context, { runId: "run_1", keepsSpans: true }));
    expect(run).toBe(`00-${trace}-${spanIdOf("run_1")}-01`);
    expect(traceOfRun(context, { runId: "run_1", keepsSpans: false })).toEqual(context);
    const kept = traceparentsOf({ run_id: "run_1", context: { traceparent: run, step_spans: true } });
    expect(kept()).toBe(run);
    expect(kept("run_1:a:0")).toBe(`00-${trace}-${spanIdOf("run_1", "run_1:a:0")}-01`);
    const passed = traceparentsOf({ run_id: "run_1", context: { traceparent: own } });
    expect([passed(), passed("run_1:a:0")]).toEqual([own, own]);
    expect(traceparentsOf({ run_id: "run_1" })("run_1:a:0")).toBeUndefined();
  });
});
