import { Type } from "@sinclair/typebox";
import { rfc3339 } from "../../../kit/clock.ts";
import { listed, type Operation, unary } from "../../../kit/operation.ts";
import type { Schedules, ShownSchedule } from "./service.ts";

const said = (description: string) => Type.String({ description });
const time = (description: string) => Type.String({ format: "date-time", description });
const count = (description: string) => Type.Integer({ description });

export const ScheduleOut = Type.Object({
  function_id: said("Whose runs it starts."),
  expression: said("As it was registered."),
  event: Type.Optional(said("The event that it emits; absent where it starts the function alone.")),
  next_at: Type.Optional(
    time("The next slot; absent of a paused function and of an expression without one."),
  ),
  coming: Type.Array(time("A slot."), { description: "The next slots, that one first, at most five." }),
  error: Type.Optional(said("Why the expression cannot be read.")),
  expected: count("Slots that have passed since it was registered."),
  fired: count("Those that started something."),
  missed: count("Those that were more than ten seconds late when a node could have fired them."),
});

const scheduleJson = ({ schedule, coming, error }: ShownSchedule) => ({
  function_id: schedule.functionId,
  expression: schedule.expression,
  ...(schedule.eventName !== "" && { event: schedule.eventName }),
  ...(schedule.nextAt !== null && { next_at: rfc3339(schedule.nextAt) }),
  coming: coming.map(rfc3339),
  ...(error !== undefined && { error }),
  expected: schedule.expectedCount,
  fired: schedule.firedCount,
  missed: schedule.missedCount,
});

export const schedulesOperations = (schedules: Pick<Schedules, "list">): Operation[] => [
  unary({
    name: "schedules.list",
    action: "functions:read",
    reads: true,
    summary:
      "Cron triggers of the environment's functions, or of one: the next slots, and those that were missed.",
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
      schedules: (await schedules.list(call.environmentId, function_id)).map(scheduleJson),
    }),
  }),
];
