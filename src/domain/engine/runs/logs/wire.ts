import type { JsonObject, MessageInitShape } from "@bufbuild/protobuf";
import { Type } from "@sinclair/typebox";
import type { GetRunLogsResponseSchema } from "../../../../gen/svc/v1/svc_pb.ts";
import { maybe, shape } from "../../../../kit/described.ts";
import { timestampOf } from "../../../../kit/wkt.ts";
import type { WrittenLines } from "./read-logs.ts";

const Line = Type.Object({
  at: shape.time("When it was written, by the clock of its worker."),
  level: shape.text("debug, info, warn or error."),
  text: shape.text("What it says; `***` stands for secrets."),
  fields: Type.Optional(
    Type.Record(Type.String(), Type.Unknown(), { description: "What was given beside the text." }),
  ),
  step: maybe.text("Name of the step that wrote it."),
  attempt: shape.count("The run's attempt, from 1."),
  worker_id: shape.text("The worker that had the run."),
});

export const RunLogsShape = Type.Object({
  lines: Type.Array(Line, { description: "What the handler wrote, oldest first." }),
  left_out: shape.count("Lines that were written beyond the bounds, and not kept."),
  cursor: shape.text("Where to go on: `after` of the next request."),
});

export const logsJson = ({ lines, leftOut, cursor }: WrittenLines) => ({
  lines: lines.map(({ workerId, ...line }) => ({ ...line, worker_id: workerId })),
  left_out: leftOut,
  cursor,
});

export const toLogsMessage = ({
  lines,
  leftOut,
  cursor,
}: WrittenLines): MessageInitShape<typeof GetRunLogsResponseSchema> => ({
  lines: lines.map(({ at, fields, step = "", ...line }) => ({
    ...line,
    step,
    at: timestampOf(Date.parse(at)),
    ...(fields && { fields: fields as JsonObject }),
  })),
  leftOut,
  cursor,
});
