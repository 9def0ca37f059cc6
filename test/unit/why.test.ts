import { expect, test } from "bun:test";
import { explain } from "../../src/cli/why.ts";

/** What is said of a run with these steps. */
const whyOf = (run: object, steps: readonly object[]) =>
  explain(
    <Answer>(operation: string) =>
      Promise.resolve((operation === "runs.get" ? { id: "run_1", ...run } : { steps }) as Answer),
    "run_1",
  );

test("a run that waits for a signal names the command that sends it", async () => {
  const waiting = { stepId: "a", status: "STEP_STATUS_WAITING", waitEventName: "signal approve" };
  const { next } = await whyOf({ status: "RUN_STATUS_PAUSED", pauseReason: "wait_event" }, [
    { ...waiting, status: "STEP_STATUS_COMPLETED", waitEventName: "signal before" },
    waiting,
  ]);
  expect(next[0]).toBe("svc run signal run_1 approve");
});

test("a failed run says how many of its steps were undone", async () => {
  const undone = { name: "compensate:a", stepType: "STEP_TYPE_COMPENSATE", status: "STEP_STATUS_COMPLETED" };
  const failed = await whyOf({ status: "RUN_STATUS_FAILED" }, [undone, undone]);
  expect(failed.because.at(-1)).toBe("2 steps were undone: a resume runs what was undone again");
  const completed = await whyOf({ status: "RUN_STATUS_COMPLETED" }, [undone]);
  expect(completed.because.join()).not.toContain("undone");
});
