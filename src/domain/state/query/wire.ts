import type { MessageInitShape } from "@bufbuild/protobuf";
import type { ExecuteSQLResponseSchema } from "../../../gen/svc/v1/query_pb.ts";
import { type Cell, textOf } from "./rules.ts";
import type { QueryAnswer } from "./service.ts";

const nullsOf = (row: readonly Cell[]): number[] =>
  row.flatMap((cell, place) => (cell === null ? [place] : []));

/** An answer as the message has it, which is its JSON form as well. */
export const toAnswer = ({
  columns,
  rows,
  isTruncated,
}: QueryAnswer): MessageInitShape<typeof ExecuteSQLResponseSchema> => ({
  columns,
  rows: rows.map((row) => ({ values: row.map(textOf), nulls: nullsOf(row) })),
  totalRows: rows.length,
  truncated: isTruncated,
});

/** The REST form. */
export const answerJson = ({ columns, rows, isTruncated }: QueryAnswer) => ({
  columns,
  rows: rows.map((row) => ({ values: row.map(textOf), nulls: nullsOf(row) })),
  total_rows: rows.length,
  truncated: isTruncated,
});
