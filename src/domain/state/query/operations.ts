import { Type } from "@sinclair/typebox";
import { actionsThatShow } from "../../../gate/things.ts";
import { QueryService } from "../../../gen/svc/v1/query_pb.ts";
import { described, shape } from "../../../kit/described.ts";
import { type Operation, rpc, unary } from "../../../kit/operation.ts";
import type { ProjectionRead } from "../../../kit/waits-for.ts";
import { isOwnTable, ownTables } from "./names.ts";
import { queryThings } from "./rules.ts";
import type { Queries } from "./service.ts";
import { answerJson, toAnswer } from "./wire.ts";

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
    output: Type.Object({
      columns: Type.Array(Type.String()),
      rows: Type.Array(
        Type.Object({
          values: Type.Array(Type.String(), { description: "Every value as text; null is an empty one." }),
          nulls: Type.Array(Type.Integer(), { description: "Places of the values that are null." }),
        }),
        { description: "Rows in the order of the query." },
      ),
      total_rows: Type.Integer(),
      truncated: shape.flag("Rows were left out, by max_rows or by 16 MiB."),
    }),
    rpc: rpc(
      QueryService.method.executeSQL,
      ({ query, timeoutMs, maxRows }) => ({ query, timeout_ms: timeoutMs, max_rows: maxRows }),
      toAnswer,
    ),
    handle: ({ query, timeout_ms: timeoutMs, max_rows: maxRows }, call) =>
      queries.execute(call.environmentId, { query, timeoutMs, maxRows }, call.signal),
  }),
];
