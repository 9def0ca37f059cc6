import { type Static, Type } from "@sinclair/typebox";
import { actionsThatShow } from "../../../../gate/things.ts";
import { ProjectionService } from "../../../../gen/svc/v1/projection_pb.ts";
import { type Operation, rpc, unary } from "../../../../kit/operation.ts";
import { namedProjection } from "../../../../kit/waits-for.ts";
import { projectionThings } from "../rules.ts";
import type { SqlProjections } from "./service.ts";
import { toPage } from "./wire.ts";

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
    input: Create,
    about: ({ name, events, eventHandlers }: Static<typeof Create>) =>
      projectionThings(name, [...events, ...Object.keys(eventHandlers)]),
    alsoAsks: actionsThatShow("event", "stream"),
    rpc: rpc(
      ProjectionService.method.createSQLProjection,
      (m) => ({
        ...{ name: m.name, tableSql: m.tableSql, eventHandlers: m.eventHandlers },
        ...{ events: m.events, description: m.description },
      }),
      ({ name, status }: Awaited<ReturnType<SqlProjections["create"]>>) => ({ name, status }),
    ),
    handle: (definition, call) => projections.create(call.environmentId, definition, call.caller.id),
  }),
  unary({
    name: "projections.querySql",
    action: "projections:read",
    summary: "Rows of a SQL projection's table, by a condition and an order.",
    reads: true,
    held: true,
    waitsFor: namedProjection,
    input: Query,
    about: ({ name }: Static<typeof Query>) => [name, { type: "query", id: "*" }],
    rpc: rpc(
      ProjectionService.method.querySQLProjection,
      ({ name, where, orderBy, limit, offset }) => ({ name, where, orderBy, limit, offset }),
      toPage,
    ),
    handle: (query, call) => projections.query(call.environmentId, query, call.signal),
  }),
];
