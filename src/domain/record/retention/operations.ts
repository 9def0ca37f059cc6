import { Type } from "@sinclair/typebox";
import { shape } from "../../../kit/described.ts";
import { type Operation, unary } from "../../../kit/operation.ts";
import type { KeptDays, Retention } from "./service.ts";

/** The longest retention of an environment, in days, when it does not keep everything. */
const retentionDaysMax = 36_500;

const days = shape.count("0: for ever. A part of a day counts as one.");

export const KeptShape = Type.Object({
  event_days: days,
  run_days: days,
  own_days: Type.Union([Type.Integer(), Type.Null()], {
    description: "Days of the environment's own; null where the server's hold.",
  }),
  retention_floor: Type.Integer(),
});

const keptJson = (kept: KeptDays) => ({
  event_days: kept.events,
  run_days: kept.runs,
  own_days: kept.own,
  retention_floor: kept.floor,
});

export const retentionOperations = (retention: Pick<Retention, "daysOf" | "setDays">): Operation[] => [
  unary({
    name: "retention.get",
    action: "runs:read",
    reads: true,
    summary:
      "How many days the environment's events and runs are kept, and below which position events have expired.",
    input: Type.Object({}),
    output: KeptShape,
    rest: "GET /api/v1/retention",
    handle: async (_input, call) => keptJson(await retention.daysOf(call.environmentId)),
  }),
  unary({
    name: "retention.set",
    // As every change of an environment.
    action: "secrets:manage",
    summary:
      "Keeps the environment's events and runs so many days: 0 without end, null as long as the installation says.",
    input: Type.Object({
      days: Type.Union([Type.Integer({ minimum: 0, maximum: retentionDaysMax }), Type.Null()], {
        description: "Days that events and runs are kept, 0 for no end; null takes the server's.",
      }),
    }),
    output: KeptShape,
    rest: "PUT /api/v1/retention",
    handle: async ({ days: own }, call) => keptJson(await retention.setDays(call.environmentId, own)),
  }),
];
