import { fromJson, type MessageInitShape } from "@bufbuild/protobuf";
import { type Value, ValueSchema } from "@bufbuild/protobuf/wkt";
import type { QuerySQLProjectionResponseSchema } from "../../../../gen/svc/v1/projection_pb.ts";
import { type Cell, textOf } from "../../query/rules.ts";
import type { SqlProjections } from "./service.ts";

function valueFrom(cell: Cell): Value {
  const isJson = typeof cell === "object" && cell !== null;
  return fromJson(ValueSchema, isJson ? JSON.parse(cell.text) : cell);
}

export const toPage = ({
  answer: { columns, rows },
  totalCount,
}: Awaited<ReturnType<SqlProjections["query"]>>): MessageInitShape<
  typeof QuerySQLProjectionResponseSchema
> => ({
  columns,
  rows: rows.map((row) => ({ values: row.map(textOf), typedValues: row.map(valueFrom) })),
  totalCount,
});
