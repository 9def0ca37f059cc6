import { describe, expect, test } from "bun:test";
import type { Events } from "../../src/domain/engine/emit/service.ts";
import { openRunEnds } from "../../src/domain/engine/runs/children/run-ends.ts";
import type { RunResult } from "../../src/domain/engine/runs/run.ts";
import { openStarts } from "../../src/domain/engine/starts/service.ts";

const result = (runId: string, isOver: boolean): RunResult => ({
  runId,
  functionId: "f",
  status: isOver ? "completed" : "running",
  output: null,
  error: null,
  durationMs: 1,
  isOver,
});

describe("callers that wait for ends", () => {
  const events = (repeated: boolean): Pick<Events, "invoke" | "emitUndelayed"> => {
    const emitted = {
      eventId: "evt_1",
      runIds: ["run_a"],
      position: 1,
      ...(repeated && { repeated: true as const }),
    };
    return { invoke: async () => emitted, emitUndelayed: async () => emitted };
  };
  const call = (signal: AbortSignal) => ({
    environmentId: "env_a",
    idempotencyKey: undefined,
    runId: undefined,
    signal,
    screen: () => undefined,
  });

  test.each([
    ["that its call started", false, false, ["run_a"]],
    ["of a repeated key", true, false, []],
    ["that is over", false, true, []],
  ] as const)(
    "whoever goes away cancels the run %s: %p %p %j",
    async (_what, repeated, isOver, cancelled) => {
      const gone = new AbortController();
      const asked: string[] = [];
      let places = 0;
      const starts = openStarts({
        events: events(repeated),
        ends: {
          enter: () => {
            places++;
            return () => void places--;
          },
          wait: async () => {
            gone.abort();
            return [result("run_a", isOver)];
          },
        },
        cancelRun: async (_environmentId, runId) => void asked.push(runId),
      });
      await expect(starts.invokeSync({ functionId: "f" }, call(gone.signal))).rejects.toMatchObject({
        kind: "deadline_exceeded",
      });
      expect(asked).toEqual([...cancelled]);
      expect(places).toBe(0);
    },
  );

  test("only so many may wait, places are given back, and one environment leaves some to others", () => {
    const ends = openRunEnds({
      store: undefined as never,
      clock: undefined as never,
      bus: { kind: "in-process", channel: () => ({}) } as never,
      self: "me",
    });
    const leave = Array.from({ length: 7_500 }, () => ends.enter("env_a"));
    expect(() => ends.enter("env_a")).toThrow("too many callers that wait for runs to end");
    ends.enter("env_b");
    leave[0]!();
    leave[0]!();
    ends.enter("env_a");
    expect(() => ends.enter("env_a")).toThrow("too many callers");
  });
});
