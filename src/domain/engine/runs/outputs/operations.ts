import { create, fromJson, type JsonValue } from "@bufbuild/protobuf";
import { ValueSchema } from "@bufbuild/protobuf/wkt";
import { Type } from "@sinclair/typebox";
import {
  ListRunOutputsResponseSchema,
  type RunOutputFrame,
  RunOutputFrameSchema,
  SvcService,
} from "../../../../gen/svc/v1/svc_pb.ts";
import { shape } from "../../../../kit/described.ts";
import { invalid } from "../../../../kit/fault.ts";
import { shapeOf } from "../../../../kit/message-shape.ts";
import { nothing, type Operation, rpc, rpcStream, stream, unary } from "../../../../kit/operation.ts";
import { jsonText } from "../../../../kit/payload-json.ts";
import { asSent } from "../../../../kit/request.ts";
import { requireStepId } from "../../../../kit/step-id.ts";
import { jsonOf, safeCount } from "../../../../kit/wkt.ts";
import { requireSignalName as requireName } from "../../waits/rules.ts";
import { outputChunkBytesMax, outputWriteBytesMax, outputWriteChunksMax } from "./limits.ts";
import type { OutputFrame, OutputFrames } from "./output-readers.ts";
import type { OutputSummary, RunOutputs } from "./outputs.ts";

const id = Type.String({ minLength: 1, maxLength: 200, description: "Id of the run (`run_…`)." });
const name = Type.String({ minLength: 1, maxLength: 200, description: "Name of the output." });
const count = { minimum: 0, maximum: Number.MAX_SAFE_INTEGER };

const Written = Type.Object({
  runId: Type.String({ minLength: 1, maxLength: 200 }),
  executionSeq: Type.Integer(count),
  leaseToken: Type.String({ minLength: 1, maxLength: 200 }),
  name: Type.String(),
  stepId: Type.String(),
  entry: Type.Integer(count),
  first: Type.Integer(count),
  chunks: Type.Array(Type.Unknown(), { maxItems: outputWriteChunksMax }),
});

const messageOf = (frame: OutputFrame): RunOutputFrame =>
  create(RunOutputFrameSchema, {
    ...{ kind: frame.kind, index: BigInt(frame.index) },
    ...(frame.kind === "chunk" && {
      ...{ attempt: frame.attempt, superseded: frame.isSuperseded },
      data: fromJson(ValueSchema, frame.data as JsonValue),
    }),
    ...(frame.kind === "superseded" && { until: BigInt(frame.until) }),
    ...(frame.kind === "end" && { status: frame.status }),
  });

/** Readers at one place are handed the same frames, which are written once for all of them. */
function writtenOnce<From extends object, To>(write: (from: From) => To): (from: From) => To {
  const known = new WeakMap<From, { to: To }>();
  return (from) => {
    const { to } = known.get(from) ?? { to: write(from) };
    known.set(from, { to });
    return to;
  };
}

const toFrame = writtenOnce(messageOf);

/** As a server-sent event; its id is where to go on behind it. */
function eventText(frame: OutputFrame): string {
  if (frame.kind === "heartbeat") return ": beat\n\n";
  const { kind, ...fields } = frame;
  const { isSuperseded, ...rest } = fields as typeof fields & { isSuperseded?: boolean };
  const data = JSON.stringify({ ...rest, ...(isSuperseded && { superseded: true }) });
  return `${kind === "chunk" ? `id: ${frame.index}\n` : ""}event: ${kind}\ndata: ${data}\n\n`;
}

const encoder = new TextEncoder();
const toEvents = writtenOnce((frames: OutputFrames) => encoder.encode(frames.map(eventText).join("")));

async function* eventsOf(batches: AsyncIterable<OutputFrames>): AsyncGenerator<string | Uint8Array> {
  // Headers leave with the first byte.
  yield ": output\n\n";
  for await (const frames of batches) yield toEvents(frames);
}

const wholeNumber = (field: string, text: string): number => {
  if (!/^\d{1,15}$/.test(text)) throw invalid(field, "must be the index of a chunk");
  return Number(text);
};

/** As protobuf's JSON has it: a number, or its text. */
const countIn = (value: unknown): unknown =>
  typeof value === "string" && /^\d{1,19}$/.test(value)
    ? Math.min(Number(value), Number.MAX_SAFE_INTEGER)
    : (value ?? 0);

/** Without messages: workers write twenty times a second, and a message would hold each chunk as one more. */
const fromBody = (body: Record<string, unknown>) => ({
  ...{ runId: "", leaseToken: "", name: "", stepId: "", chunks: [], ...body },
  ...{ executionSeq: countIn(body.executionSeq), entry: countIn(body.entry), first: countIn(body.first) },
});

/** `leaseHashOf` answers the hash of a lease's token, which the store has. */
export const outputOperations = (
  outputs: RunOutputs,
  leaseHashOf: (token: string) => string,
): Operation[] => [
  unary({
    name: "runs.writeOutput",
    action: "functions:invoke",
    summary: "Stores chunks of an output, from the worker that has the run.",
    isRoutine: true,
    input: Written,
    about: ({ runId }: { runId: string }) => [{ type: "run", id: runId }],
    rpc: rpc(
      SvcService.method.writeRunOutput,
      (m) => ({
        ...{
          runId: m.runId,
          executionSeq: safeCount(m.executionSeq),
          leaseToken: m.leaseToken,
          name: m.name,
        },
        ...{ stepId: m.stepId, entry: m.entry, first: safeCount(m.first), chunks: m.chunks.map(jsonOf) },
      }),
      nothing,
      { decode: fromBody, encode: () => ({}) },
    ),
    async handle({ leaseToken, stepId, entry, chunks, ...write }, call) {
      requireName("name", write.name);
      if (stepId !== "") requireStepId("stepId", stepId);
      const texts = chunks.map((one, at) => jsonText(`chunks[${at}]`, one, outputChunkBytesMax));
      if (texts.reduce((sum, text) => sum + text.length, 0) > outputWriteBytesMax)
        throw invalid("chunks", `at most ${outputWriteBytesMax} bytes of JSON`);
      await outputs.write({
        ...{ ...write, environmentId: call.environmentId, leaseHash: leaseHashOf(leaseToken) },
        ...{ step: stepId === "" ? null : { id: stepId, entry }, chunks: texts },
      });
      return {};
    },
  }),
  unary({
    name: "runs.outputEvents",
    action: "runs:read",
    summary:
      "What the handler of a run writes to one of its outputs, as server-sent events, to the run's end.",
    reads: true,
    held: true,
    input: Type.Object({
      ...{ id, name },
      from: Type.Optional(
        Type.Integer({
          ...count,
          description: "Index of the first chunk, 0 when left out; `Last-Event-ID` is the one before it.",
        }),
      ),
    }),
    output: shape.text(
      "Events `chunk` (`index`, `attempt`, `data`), `superseded` (`index`, `until`) and `end`.",
    ),
    rest: {
      route: "GET /api/v1/runs/{id}/outputs/{name}",
      decode({ params, query, headers }) {
        const before = headers.get("last-event-id");
        const from = query.get("from");
        return {
          ...{ id: params.id, name: params.name },
          ...(from !== null && { from: wholeNumber("from", from) }),
          ...(before && { from: wholeNumber("Last-Event-ID", before) + 1 }),
        };
      },
      encode: (batches: AsyncIterable<OutputFrames>) => ({
        status: 200,
        body: eventsOf(batches),
        headers: { "content-type": "text/event-stream; charset=utf-8", "cache-control": "no-store" },
      }),
    },
    handle: ({ id: runId, name: output, from = 0 }, call) =>
      outputs.read(call.caller, {
        ...{ environmentId: call.environmentId, runId, name: output, from },
        signal: call.signal,
      }),
  }),
  stream({
    name: "runs.output",
    action: "runs:read",
    summary: "What the handler of a run writes to one of its outputs, as it is written, to the run's end.",
    reads: true,
    input: Type.Object({
      runId: Type.String({ minLength: 1, maxLength: 200 }),
      name,
      from: Type.Integer(count),
    }),
    about: ({ runId }: { runId: string }) => [runId],
    rpc: rpcStream(SvcService.method.watchRunOutput, asSent, toFrame),
    async *handle({ runId, name: output, from }, call) {
      const { environmentId, signal } = call;
      const at = { environmentId, runId, name: output, from, signal };
      const batches = await outputs.read(call.caller, at);
      call.admitted?.();
      for await (const frames of batches) yield* frames;
    },
  }),
  unary({
    name: "runs.outputs",
    action: "runs:read",
    summary: "The outputs of a run, each with how much was written and the end of it.",
    reads: true,
    input: Type.Object({ id }),
    output: shapeOf(ListRunOutputsResponseSchema),
    rest: { route: "GET /api/v1/runs/{id}/outputs", json: (list: OutputSummary[]) => ({ outputs: list }) },
    rpc: rpc(
      SvcService.method.listRunOutputs,
      (m) => ({ id: m.runId }),
      (list: OutputSummary[]) => ({
        outputs: list.map((one) => ({ ...one, chunks: BigInt(one.chunks), bytes: BigInt(one.bytes) })),
      }),
    ),
    handle: ({ id: runId }, call) => outputs.list(call.environmentId, runId),
  }),
];
