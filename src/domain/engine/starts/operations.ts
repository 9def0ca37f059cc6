import { Type } from "@sinclair/typebox";
import { SvcService } from "../../../gen/svc/v1/svc_pb.ts";
import { rpc, unary } from "../../../kit/operation.ts";
import type { EmitInput } from "../../log/events/rules.ts";
import { dataOf, fromBody, fromMessage } from "../../log/events/wire.ts";
import type { RunResult } from "../runs/run.ts";
import { type InvokeInput, type Starts, type SyncInput, syncTimeoutMsDefault } from "./service.ts";
import { toResultBody, toResultMessage } from "./wire.ts";

const payload = {
  data: Type.Optional(Type.Unknown()),
  metadata: Type.Optional(Type.Union([Type.Record(Type.String(), Type.Unknown()), Type.Null()])),
  idempotencyKey: Type.Optional(Type.String()),
};
const invoke = { functionId: Type.String({ minLength: 1, maxLength: 200 }), ...payload };
const timeoutMs = Type.Optional(Type.Integer());

interface Triggered {
  eventId: string;
  results: RunResult[];
}

export const startsOperations = (starts: Starts) => [
  unary({
    name: "functions.invoke",
    action: "functions:invoke",
    summary: "Starts one run of a function, whatever its triggers are.",
    input: Type.Object(invoke),
    rpc: rpc(
      SvcService.method.invokeFunction,
      (m): InvokeInput => ({ functionId: m.functionId, idempotencyKey: m.idempotencyKey, ...dataOf(m) }),
      (started: { runId: string; eventId: string }) => started,
      { decode: (body) => fromBody(body, []), encode: (started) => started },
    ),
    handle: (input, call) => starts.invoke(input as InvokeInput, call),
  }),
  unary({
    name: "functions.invokeSync",
    action: "functions:invoke",
    summary: `Starts one run of a function and waits for its end, ${syncTimeoutMsDefault} ms unless timeoutMs says otherwise.`,
    held: true,
    input: Type.Object({ ...invoke, timeoutMs }),
    rpc: rpc(
      SvcService.method.invokeFunctionSync,
      (m): InvokeInput & SyncInput => ({
        functionId: m.functionId,
        idempotencyKey: m.idempotencyKey,
        timeoutMs: m.timeoutMs,
        ...dataOf(m),
        ...(m.metadata !== undefined && { metadata: m.metadata }),
      }),
      (result: RunResult) => ({ result: toResultMessage(result) }),
      {
        decode: (body) => fromBody(body, ["timeoutMs"]),
        encode: (result) => ({ result: toResultBody(result) }),
      },
    ),
    handle: (input, call) => starts.invokeSync(input as InvokeInput & SyncInput, call),
  }),
  unary({
    name: "events.emitSync",
    action: "events:emit",
    summary: `Accepts one event and waits for the ends of the runs it starts, ${syncTimeoutMsDefault} ms unless timeoutMs says otherwise.`,
    held: true,
    about: ({ event }: { event: string }) => [event, { type: "event", id: `events:${event}` }],
    alsoAsks: ["functions:invoke"],
    input: Type.Object({
      event: Type.String(),
      version: Type.Optional(Type.Integer({ maximum: 2_147_483_647 })),
      ...payload,
      timeoutMs,
    }),
    rpc: rpc(
      SvcService.method.triggerSync,
      (m): EmitInput & SyncInput => ({ ...fromMessage(m), timeoutMs: m.timeoutMs }),
      ({ eventId, results }: Triggered) => ({ eventId, results: results.map(toResultMessage) }),
      {
        decode: (body) => fromBody(body, ["version", "timeoutMs"]),
        encode: ({ eventId, results }) => ({ eventId, results: results.map(toResultBody) }),
      },
    ),
    handle: (input, call) => starts.triggerSync(input as EmitInput & SyncInput, call),
  }),
];
