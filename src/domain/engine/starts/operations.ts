import { Type } from "@sinclair/typebox";
import { SvcService } from "../../../gen/svc/v1/svc_pb.ts";
import { rpc, unary } from "../../../kit/operation.ts";
import { dataOf } from "../../../kit/wkt.ts";
import type { EmitInput } from "../emit/rules.ts";
import { fromBody, fromMessage } from "../emit/wire.ts";
import {
  type InvokeInput,
  type Starts,
  type SyncInput,
  syncTimeoutMsDefault,
  type Triggered,
} from "./service.ts";
import { toResultBody, toResultMessage } from "./wire.ts";

const payload = {
  data: Type.Optional(Type.Unknown()),
  metadata: Type.Optional(Type.Union([Type.Record(Type.String(), Type.Unknown()), Type.Null()])),
  idempotencyKey: Type.Optional(Type.String()),
};
const invoke = { functionId: Type.String({ minLength: 1, maxLength: 200 }), ...payload };
const timeoutMs = Type.Optional(Type.Integer());

type Invoked = Awaited<ReturnType<Starts["invoke"]>>;
type InvokedSync = Awaited<ReturnType<Starts["invokeSync"]>>;

const writes = {
  log: "events",
  positionOf: ({ position }: { position: number | undefined }) => position,
} as const;

const sequence = (position: number | undefined) => BigInt(position ?? 0);
const sequenceField = (position: number | undefined) =>
  position === undefined ? undefined : { sequence: `${position}` };

export const startsOperations = (starts: Starts) => [
  unary({
    name: "functions.invoke",
    action: "functions:invoke",
    summary: "Starts one run of a function, whatever its triggers are.",
    input: Type.Object(invoke),
    writes,
    rpc: rpc(
      SvcService.method.invokeFunction,
      (m): InvokeInput => ({ functionId: m.functionId, idempotencyKey: m.idempotencyKey, ...dataOf(m) }),
      ({ runId, eventId, position }: Invoked) => ({ runId, eventId, sequence: sequence(position) }),
      {
        decode: fromBody,
        encode: ({ runId, eventId, position }) => ({ runId, eventId, ...sequenceField(position) }),
      },
    ),
    handle: (input, call) => starts.invoke(input as InvokeInput, call),
  }),
  unary({
    name: "functions.invokeSync",
    action: "functions:invoke",
    summary: `Starts one run of a function and waits for its end, ${syncTimeoutMsDefault} ms unless timeoutMs says otherwise.`,
    held: true,
    input: Type.Object({ ...invoke, timeoutMs }),
    writes,
    rpc: rpc(
      SvcService.method.invokeFunctionSync,
      (m): InvokeInput & SyncInput => ({
        functionId: m.functionId,
        idempotencyKey: m.idempotencyKey,
        timeoutMs: m.timeoutMs,
        ...dataOf(m),
        ...(m.metadata !== undefined && { metadata: m.metadata }),
      }),
      ({ result, position }: InvokedSync) => ({
        result: toResultMessage(result),
        sequence: sequence(position),
      }),
      {
        decode: fromBody,
        encode: ({ result, position }) => ({ result: toResultBody(result), ...sequenceField(position) }),
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
    writes,
    input: Type.Object({
      event: Type.String(),
      version: Type.Optional(Type.Integer({ maximum: 2_147_483_647 })),
      ...payload,
      timeoutMs,
    }),
    rpc: rpc(
      SvcService.method.triggerSync,
      (m): EmitInput & SyncInput => ({ ...fromMessage(m), timeoutMs: m.timeoutMs }),
      ({ eventId, position, results }: Triggered) => ({
        ...{ eventId, results: results.map(toResultMessage) },
        sequence: sequence(position),
      }),
      {
        decode: fromBody,
        encode: ({ eventId, position, results }) => ({
          ...{ eventId, results: results.map(toResultBody) },
          ...sequenceField(position),
        }),
      },
    ),
    handle: (input, call) => starts.triggerSync(input as EmitInput & SyncInput, call),
  }),
];
