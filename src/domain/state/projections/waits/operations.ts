import type { MessageInitShape } from "@bufbuild/protobuf";
import { type Static, Type } from "@sinclair/typebox";
import {
  ProjectionService,
  type WaitProjectionCatchupResponseSchema,
  WaitStreamFrameKind,
} from "../../../../gen/svc/v1/projection_pb.ts";
import { type Operation, rpc, rpcStream, stream, unary } from "../../../../kit/operation.ts";
import { safeCount } from "../../../../kit/wkt.ts";
import { millisOf } from "../wire.ts";
import type { WaitFrame, WaitResult, Waits } from "./service.ts";

const Item = Type.Object({ name: Type.String(), minPosition: Type.Integer(), partition: Type.String() });
const timeout = { timeoutMs: Type.Optional(Type.Number()) };
const Wait = Type.Object({ ...Item.properties, ...timeout });
const Batch = Type.Object({ items: Type.Array(Item), ...timeout });
const ForEvent = Type.Object({
  name: Type.String(),
  eventId: Type.String(),
  partition: Type.String(),
  ...timeout,
});

const about = ({ name }: { name: string }) => [name];

const fromItem = (m: { name: string; minSeq: bigint; partition: string }) => ({
  name: m.name,
  minPosition: safeCount(m.minSeq),
  partition: m.partition,
});

const toFields = (result: WaitResult) => ({
  ...{ caughtUp: result.isCaughtUp, timedOut: result.isTimedOut, mode: result.mode },
  currentSeq: BigInt(result.current),
  targetSeq: BigInt(result.target),
  behindByEvents: BigInt(result.behind),
});

const toResult = (result: WaitResult): MessageInitShape<typeof WaitProjectionCatchupResponseSchema> => ({
  ...toFields(result),
  rebuilding: result.isRebuilding,
});

const kinds: Record<WaitFrame["kind"], WaitStreamFrameKind> = {
  progress: WaitStreamFrameKind.PROGRESS,
  heartbeat: WaitStreamFrameKind.HEARTBEAT,
  done: WaitStreamFrameKind.DONE,
};

const fromWait = (m: Parameters<typeof fromItem>[0] & { timeout?: Parameters<typeof millisOf>[0] }) => {
  const timeoutMs = millisOf(m.timeout);
  return { ...fromItem(m), ...(timeoutMs !== undefined && { timeoutMs }) };
};

const read = { action: "projections:read", reads: true } as const;

export const waitOperations = (waits: Waits): Operation[] => [
  unary({
    name: "projections.wait",
    ...read,
    summary: "Waits until a projection has seen a position of the log.",
    held: true,
    input: Wait,
    about,
    rpc: rpc(ProjectionService.method.waitProjectionCatchup, fromWait, toResult),
    handle: ({ timeoutMs, ...request }, call) =>
      waits.wait(call.environmentId, request, { timeoutMs, signal: call.signal }),
  }),
  unary({
    name: "projections.waitBatch",
    ...read,
    summary: "Waits for several projections; one that fails leaves the others alone.",
    held: true,
    input: Batch,
    about: ({ items }: Static<typeof Batch>) => items.map(({ name }) => name),
    rpc: rpc(
      ProjectionService.method.waitProjectionCatchupBatch,
      (m) => {
        const timeoutMs = millisOf(m.timeout);
        return { items: m.items.map(fromItem), ...(timeoutMs !== undefined && { timeoutMs }) };
      },
      (results: Awaited<ReturnType<Waits["batch"]>>) => ({
        results: results.map((one) => ("result" in one ? { result: toResult(one.result) } : one)),
      }),
    ),
    handle: ({ items, timeoutMs }, call) =>
      waits.batch(call.environmentId, items, { timeoutMs, signal: call.signal }),
  }),
  unary({
    name: "projections.waitForEvent",
    ...read,
    summary: "Waits until a projection has seen an event.",
    held: true,
    input: ForEvent,
    about,
    rpc: rpc(
      ProjectionService.method.waitForEvent,
      (m) => {
        const timeoutMs = millisOf(m.timeout);
        return {
          ...{ name: m.projection, eventId: m.eventId, partition: m.partition },
          ...(timeoutMs !== undefined && { timeoutMs }),
        };
      },
      toResult,
    ),
    handle: ({ timeoutMs, ...request }, call) =>
      waits.forEvent(call.environmentId, request, { timeoutMs, signal: call.signal }),
  }),
  stream({
    name: "projections.waitStream",
    ...read,
    summary: "The same as a stream that tells how far the projection is.",
    input: Wait,
    about,
    rpc: rpcStream(ProjectionService.method.waitProjectionCatchupStream, fromWait, (frame: WaitFrame) => ({
      ...toFields(frame),
      ...{ kind: kinds[frame.kind], error: frame.error },
    })),
    handle: ({ timeoutMs, ...request }, call) =>
      waits.stream(call.environmentId, request, { timeoutMs, signal: call.signal }),
  }),
];
