import { Type } from "@sinclair/typebox";
import { SvcService } from "../../gen/svc/v1/svc_pb.ts";
import { type Call, rpc, unary } from "../../kit/operation.ts";
import { dataOf, fromBody } from "../events/wire.ts";
import type { InvokeInput, Starts } from "./service.ts";

const Invoke = Type.Object({
  functionId: Type.String({ minLength: 1, maxLength: 200 }),
  data: Type.Optional(Type.Unknown()),
  metadata: Type.Optional(Type.Union([Type.Record(Type.String(), Type.Unknown()), Type.Null()])),
  idempotencyKey: Type.Optional(Type.String()),
});

export const startsOperations = (starts: Starts) => [
  unary({
    name: "functions.invoke",
    action: "functions:invoke",
    summary: "Starts one run of a function, whatever its triggers are.",
    input: Invoke,
    rpc: rpc(
      SvcService.method.invokeFunction,
      (m): InvokeInput => ({ functionId: m.functionId, idempotencyKey: m.idempotencyKey, ...dataOf(m) }),
      (started: { runId: string; eventId: string }) => started,
      { take: (body) => fromBody(body, []), give: (started) => started },
    ),
    handle: (input, call: Call) => starts.invoke(input as InvokeInput, call),
  }),
];
