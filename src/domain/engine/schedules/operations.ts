import { Type } from "@sinclair/typebox";
import { actionsThatShow, screenOfKinds, thingsOf } from "../../../gate/things.ts";
import { rfc3339 } from "../../../kit/clock.ts";
import { maybe, shape } from "../../../kit/described.ts";
import { type Call, listed, type Operation, unary } from "../../../kit/operation.ts";
import type { Schedules, ShownSchedule } from "./service.ts";

export const ScheduleOut = Type.Object({
  function_id: shape.text("Whose runs it starts."),
  expression: shape.text("As it was registered."),
  event: maybe.text("The event that it emits; absent where it starts the function alone."),
  next_at: maybe.time("The next slot; absent of a paused function and of an expression without one."),
  coming: Type.Array(shape.time("A slot."), { description: "The next slots, that one first, at most five." }),
  error: maybe.text("Why the expression cannot be read."),
  expected: shape.count("Slots that have passed since it was registered."),
  fired: shape.count("Those that started something."),
  last_at: maybe.time("The last of these; absent before the first."),
  last_run_id: maybe.text(
    "The run of the function that it started; absent where there is none, or the caller may not read it.",
  ),
  last_status: maybe.text("The status of that run."),
  missed: shape.count("Those that were more than ten seconds late when a node could have fired them."),
});

const scheduleJson = ({ schedule, coming, error, lastRun }: ShownSchedule) => ({
  function_id: schedule.functionId,
  expression: schedule.expression,
  ...(schedule.eventName !== "" && { event: schedule.eventName }),
  ...(schedule.nextAt !== null && { next_at: rfc3339(schedule.nextAt) }),
  coming: coming.map(rfc3339),
  ...(error !== undefined && { error }),
  expected: schedule.expectedCount,
  fired: schedule.firedCount,
  ...(schedule.lastAt !== null && { last_at: rfc3339(schedule.lastAt) }),
  ...(lastRun && { last_run_id: lastRun.id, last_status: lastRun.status }),
  missed: schedule.missedCount,
});

/** Without the runs that the caller may not read. */
async function withReadable(
  schedules: readonly ShownSchedule[],
  call: Call,
  may: MayRead,
): Promise<ShownSchedule[]> {
  const readsRuns = await may(call, "runs:read", { type: "run", id: "*" });
  const screen = readsRuns ? await screenOfKinds(call, "run") : undefined;
  const shown: ShownSchedule[] = [];
  for (const { lastRun, ...schedule } of schedules) {
    const isHidden = !readsRuns || (lastRun && (await screen?.refusalOf(thingsOf("run", lastRun.id))));
    shown.push(isHidden ? schedule : { ...schedule, lastRun });
  }
  return shown;
}

/** Whether the caller's roles grant the action, and no deny policy keeps the thing from it. */
type MayRead = (call: Call, action: "runs:read", thing: { type: string; id: string }) => Promise<boolean>;

export const schedulesOperations = (schedules: Pick<Schedules, "list">, may: MayRead): Operation[] => [
  unary({
    name: "schedules.list",
    action: "functions:read",
    alsoAsks: actionsThatShow("run"),
    reads: true,
    summary:
      "Cron triggers of the environment's functions, or of one: the next slots, the last run, and those that were missed.",
    input: Type.Object({
      function_id: Type.Optional(
        Type.String({ maxLength: 2_048, description: "Triggers of this function." }),
      ),
    }),
    output: Type.Object({
      schedules: Type.Array(ScheduleOut, { description: "Cron triggers, by function." }),
    }),
    rest: "GET /api/v1/schedules",
    lists: listed(({ function_id }: { function_id: string }) => [function_id], {
      ...{ under: "schedules", type: "function" },
    }),
    handle: async ({ function_id }, call) => ({
      schedules: (await withReadable(await schedules.list(call.environmentId, function_id), call, may)).map(
        scheduleJson,
      ),
    }),
  }),
];
