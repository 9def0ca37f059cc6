import { fromJson, type MessageInitShape } from "@bufbuild/protobuf";
import { type Value, ValueSchema } from "@bufbuild/protobuf/wkt";
import { type Static, Type } from "@sinclair/typebox";
import { actionsThatShow } from "../../../../gate/things.ts";
import {
  ProjectionService,
  type QuerySQLProjectionResponseSchema,
} from "../../../../gen/svc/v1/projection_pb.ts";
import { type Operation, unary } from "../../../../kit/operation.ts";
import { requestOf } from "../../../../kit/request.ts";
import { namedProjection } from "../../../../kit/sequence.ts";
import { type Cell, textOf } from "../../query/rules.ts";
import { projectionThings } from "../rules.ts";
import type { SqlProjections } from "./service.ts";

function valueFrom(cell: Cell): Value {
  const isJson = typeof cell === "object" && cell !== null;
  return fromJson(ValueSchema, isJson ? JSON.parse(cell.text) : cell);
}

const toPage = ({
  answer: { columns, rows },
  totalCount,
}: Awaited<ReturnType<SqlProjections["query"]>>): MessageInitShape<
  typeof QuerySQLProjectionResponseSchema
> => ({
  columns,
  rows: rows.map((row) => ({ values: row.map(textOf), typedValues: row.map(valueFrom) })),
  totalCount,
});

const Create = Type.Object({
  name: Type.String(),
  tableSql: Type.String(),
  eventHandlers: Type.Record(Type.String(), Type.String()),
  events: Type.Array(Type.String()),
  description: Type.String(),
});

const Query = Type.Object({
  name: Type.String(),
  where: Type.String(),
  orderBy: Type.String(),
  limit: Type.Integer(),
  offset: Type.Integer(),
});

export const sqlOperations = (projections: SqlProjections): Operation[] => [
  unary({
    name: "projections.createSql",
    action: "projections:manage",
    summary: "Registers a projection whose table the server folds by statements, or takes over changed ones.",
    ...requestOf(
      ProjectionService.method.createSQLProjection,
      ({ name, status }: Awaited<ReturnType<SqlProjections["create"]>>) => ({ name, status }),
    ),
    about: ({ name, events, eventHandlers }: Static<typeof Create>) =>
      projectionThings(name, [...events, ...Object.keys(eventHandlers)]),
    alsoAsks: actionsThatShow("event", "stream"),
    handle: (definition, call) => projections.create(call.environmentId, definition, call.caller.id),
  }),
  unary({
    name: "projections.querySql",
    action: "projections:read",
    summary: "Rows of a SQL projection's table, by a condition and an order.",
    reads: true,
    held: true,
    waitsFor: namedProjection,
    ...requestOf(ProjectionService.method.querySQLProjection, toPage),
    about: ({ name }: Static<typeof Query>) => [name, { type: "query", id: "*" }],
    handle: (query, call) => projections.query(call.environmentId, query, call.signal),
  }),
];
