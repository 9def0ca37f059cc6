import type { MessageInitShape } from "@bufbuild/protobuf";
import { Type } from "@sinclair/typebox";
import { actionsThatShow } from "../../../gate/things.ts";
import { ExecuteSQLResponseSchema, QueryService } from "../../../gen/svc/v1/query_pb.ts";
import { described, shape } from "../../../kit/described.ts";
import { shapeOf } from "../../../kit/message-shape.ts";
import { type Operation, rpc, unary } from "../../../kit/operation.ts";
import { asRest } from "../../../kit/request.ts";
import type { ProjectionRead } from "../../../kit/sequence.ts";
import { isOwnTable, ownTables } from "./names.ts";
import { type Cell, queryThings, textOf } from "./rules.ts";
import type { Queries, QueryAnswer } from "./service.ts";

const nullsOf = (row: readonly Cell[]): number[] =>
  row.flatMap((cell, place) => (cell === null ? [place] : []));

/** An answer as the message has it, which is its JSON form as well. */
const toAnswer = ({
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
const answerJson = ({ columns, rows, isTruncated }: QueryAnswer) => ({
  columns,
  rows: rows.map((row) => ({ values: row.map(textOf), nulls: nullsOf(row) })),
  total_rows: rows.length,
  truncated: isTruncated,
});

const count = Type.Optional(Type.Integer());

export interface QueryOperationsDeps {
  queries: Queries;
  /** The projections whose tables these are. */
  ownersOf: (environmentId: string, tables: readonly string[]) => Promise<readonly ProjectionRead[]>;
}

export const queryOperations = ({ queries, ownersOf }: QueryOperationsDeps): Operation[] => [
  unary({
    name: "query.execute",
    action: "projections:read",
    summary:
      "One SELECT, WITH or EXPLAIN over the runs, steps, events, functions and SQL projections of an environment.",
    reads: true,
    held: true,
    async waitsFor({ query }: { query: string }, environmentId: string) {
      const tables = queries.tablesOf(query).filter((table) => !isOwnTable(table));
      return tables.length === 0 ? "log" : ownersOf(environmentId, tables);
    },
    input: Type.Object({
      query: shape.text("One SELECT, WITH or EXPLAIN of at most 8 KiB."),
      timeout_ms: described(
        count,
        "Milliseconds that the query may take: 5,000 unless it says otherwise, at most 30,000.",
      ),
      max_rows: count,
    }),
    special: {
      loads: (sent, { caller }) => queries.read(caller.id, (sent as { query?: unknown } | null)?.query),
    },
    about: ({ query }: { query: string }) => queryThings(queries.tablesOf(query)),
    alsoAsks: actionsThatShow(...Object.values(ownTables).flat()),
    rest: { route: "POST /api/v1/sql", json: answerJson },
    output: shapeOf(ExecuteSQLResponseSchema),
    rpc: rpc(QueryService.method.executeSQL, asRest, toAnswer),
    handle: ({ query, timeout_ms: timeoutMs, max_rows: maxRows }, call) =>
      queries.execute(call.environmentId, { query, timeoutMs, maxRows }, call.signal),
  }),
];
