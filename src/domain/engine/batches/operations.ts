import { Type } from "@sinclair/typebox";
import { rfc3339 } from "../../../kit/clock.ts";
import { described, maybe, shape } from "../../../kit/described.ts";
import { listed, type Operation, unary } from "../../../kit/operation.ts";
import type { BatchStarts, OpenBatch } from "./service.ts";

const text = Type.String({ maxLength: 2_000 });
const instant = Type.String({ format: "date-time" });

export const BatchShape = Type.Object({
  id: described(text, "Id of what the function and one value of its key have open."),
  function_id: text,
  function_version: Type.Integer(),
  state: Type.Union([Type.Literal("gathering"), Type.Literal("ready")], {
    description: "`ready`: full, or its time is over; its run starts as soon as quotas let it.",
  }),
  events: shape.count("How many events wait in it."),
  events_max: shape.count("With how many its run starts at once."),
  bytes: shape.count("Bytes of the data and metadata of these events."),
  first_event_id: Type.Optional(described(text, "Id of the event that waits longest.")),
  first_at: Type.Optional(described(instant, "When that event was logged, RFC 3339.")),
  closes_at: described(instant, "When its run starts at the latest, RFC 3339."),
});

const batchJson = (batch: OpenBatch) => ({
  ...{ id: batch.id, function_id: batch.function_id, function_version: batch.function_version },
  ...{ state: batch.isReady ? "ready" : "gathering", events: batch.count, events_max: batch.size },
  bytes: batch.bytes,
  ...(batch.first_event_id !== null && { first_event_id: batch.first_event_id }),
  ...(batch.first_at !== null && { first_at: rfc3339(batch.first_at) }),
  closes_at: rfc3339(batch.closes_at),
});

export const batchesOperations = (batches: Pick<BatchStarts, "list">): Operation[] => [
  unary({
    name: "batches.list",
    action: "functions:read",
    summary: "Events that wait to start one run together, by function: what gathers, and what is ready.",
    reads: true,
    input: Type.Object({
      function_id: Type.Optional(text),
      cursor: Type.Optional(text),
      limit: maybe.count("How many at most: 50 unless it says otherwise."),
    }),
    output: Type.Object({
      batches: Type.Array(BatchShape, { description: "Open batches, by function." }),
      next_cursor: Type.Optional(text),
    }),
    rest: "GET /api/v1/batches",
    about: ({ function_id }: { function_id?: string }) =>
      function_id ? [{ type: "function", id: function_id }] : [],
    lists: listed(({ function_id }: { function_id: string }) => [function_id], {
      under: "batches",
      type: "function",
    }),
    async handle({ function_id, ...page }, call) {
      const found = await batches.list(call.environmentId, { ...page, functionId: function_id });
      return {
        batches: found.batches.map(batchJson),
        ...(found.nextCursor !== undefined && { next_cursor: found.nextCursor }),
      };
    },
  }),
];
