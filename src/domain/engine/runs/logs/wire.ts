import type { JsonObject, MessageInitShape } from "@bufbuild/protobuf";
import { Type } from "@sinclair/typebox";
import { GetRunLogsResponseSchema } from "../../../../gen/svc/v1/svc_pb.ts";
import { RunLogLineSchema } from "../../../../gen/svc/v1/types_pb.ts";
import { shapeOf } from "../../../../kit/message-shape.ts";
import { timestampOf } from "../../../../kit/wkt.ts";
import type { WrittenLines } from "./read-logs.ts";

const Line = shapeOf(RunLogLineSchema, { absent: "fields step" });

export const RunLogsShape = shapeOf(GetRunLogsResponseSchema, { own: { lines: Type.Array(Line) } });

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
