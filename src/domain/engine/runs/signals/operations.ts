import { fromJson, type JsonValue, type MessageInitShape } from "@bufbuild/protobuf";
import { ValueSchema } from "@bufbuild/protobuf/wkt";
import { Type } from "@sinclair/typebox";
import { type ListRunSignalsResponseSchema, SvcService } from "../../../../gen/svc/v1/svc_pb.ts";
import { rfc3339 } from "../../../../kit/clock.ts";
import { maybe, shape } from "../../../../kit/described.ts";
import { keyOf } from "../../../../kit/idempotency-key.ts";
import { type Operation, rpc, unary } from "../../../../kit/operation.ts";
import { jsonText } from "../../../../kit/payload-json.ts";
import { storedJson } from "../../../../kit/stored-json.ts";
import { dataOf, safeCount, timestampOf } from "../../../../kit/wkt.ts";
import { requireSignalName } from "../../waits/rules.ts";
import { signalDataBytesMax } from "./limits.ts";
import type { SignalRow } from "./signal-rows.ts";
import type { SignalBox, SignalState, SignalsPage } from "./signals.ts";

const id = Type.String({ minLength: 1, maxLength: 200, description: "Id of the run (`run_…`)." });

const Signal = Type.Object({
  number: shape.count("Counts the run's signals from 1, in the order in which they came."),
  name: shape.text("What a step waits for."),
  state: shape.text("`taken` by a step, or `kept` for the next one that waits for the name."),
  data: Type.Optional(
    Type.Unknown({
      description:
        "Of one that is kept, if it has at most 4,096 characters; afterwards the step has it as its output.",
    }),
  ),
  sent_by: shape.text("Id of the key or user that sent it."),
  sent_at: shape.time("When it came."),
  taken_at: maybe.time("When a step took it."),
  step_id: maybe.text("The id that the SDK made for the step that took it."),
});

const stateOf = ({ taken_at }: SignalRow): SignalState => (taken_at === null ? "kept" : "taken");

const signalJson = (row: SignalRow) => ({
  ...{ number: row.sequence, name: row.name, state: stateOf(row) },
  ...(row.data !== null && { data: storedJson(row.data) ?? null }),
  ...{ sent_by: row.sent_by, sent_at: rfc3339(row.sent_at) },
  ...(row.taken_at !== null && { taken_at: rfc3339(row.taken_at) }),
  ...(row.taken_by !== null && { step_id: row.taken_by }),
});

const toListMessage = ({
  signals,
  kept,
  hasMore,
}: SignalsPage): MessageInitShape<typeof ListRunSignalsResponseSchema> => ({
  signals: signals.map((row) => ({
    ...{ number: BigInt(row.sequence), name: row.name, state: stateOf(row) },
    ...(row.data !== null && { data: fromJson(ValueSchema, storedJson<JsonValue>(row.data) ?? null) }),
    ...{ sentBy: row.sent_by, sentAt: timestampOf(row.sent_at), stepId: row.taken_by ?? "" },
    ...(row.taken_at !== null && { takenAt: timestampOf(row.taken_at) }),
  })),
  kept,
  hasMore,
});

export const signalOperations = (signals: SignalBox): Operation[] => [
  unary({
    name: "runs.signal",
    action: "runs:signal",
    summary: "Tells a run something by a name: a step that waits for the name gets the data, now or later.",
    input: Type.Object({
      runId: id,
      name: Type.String(),
      data: Type.Optional(Type.Unknown()),
      idempotencyKey: Type.Optional(Type.String()),
    }),
    rpc: rpc(
      SvcService.method.signalRun,
      (m) => ({ runId: m.runId, name: m.name, ...dataOf(m), idempotencyKey: m.idempotencyKey }),
      (state: SignalState) => ({ state }),
    ),
    handle({ runId, name, data, idempotencyKey }, call) {
      requireSignalName("name", name);
      return signals.send({
        ...{ environmentId: call.environmentId, runId, name, sentBy: call.caller.id },
        data: jsonText("data", data, signalDataBytesMax),
        idempotencyKey: keyOf(idempotencyKey, call.idempotencyKey),
      });
    },
  }),
  unary({
    name: "runs.signals",
    action: "runs:read",
    summary: "What was sent to a run by name, newest first: taken by a step, or kept.",
    reads: true,
    input: Type.Object({
      id,
      limit: maybe.count("At most so many, 20 when left out; at most 200."),
      before: Type.Optional(
        Type.Integer({
          ...{ minimum: 1, maximum: Number.MAX_SAFE_INTEGER },
          description: "Only those that came before the one with this number.",
        }),
      ),
    }),
    output: Type.Object({
      signals: Type.Array(Signal, { description: "What was sent to the run, newest first." }),
      kept: shape.count("How many of the run's signals no step has taken."),
      has_more: shape.flag("There are older ones."),
    }),
    rest: {
      route: "GET /api/v1/runs/{id}/signals",
      json: ({ signals: list, kept, hasMore }: SignalsPage) => ({
        signals: list.map(signalJson),
        kept,
        has_more: hasMore,
      }),
    },
    rpc: rpc(
      SvcService.method.listRunSignals,
      (m) => ({ id: m.runId, limit: m.limit, ...(m.before > 0n && { before: safeCount(m.before) }) }),
      toListMessage,
    ),
    handle: ({ id: runId, limit, before }, call) =>
      signals.list(call.environmentId, { runId, limit, before }),
  }),
];
