import { Type } from "@sinclair/typebox";
import { ListRunSignalsResponseSchema, RunSignalSchema, SvcService } from "../../../../gen/svc/v1/svc_pb.ts";
import { rfc3339 } from "../../../../kit/clock.ts";
import { maybe } from "../../../../kit/described.ts";
import { keyOf } from "../../../../kit/key-claims.ts";
import { shapeOf } from "../../../../kit/message-shape.ts";
import { type Operation, rpc, unary } from "../../../../kit/operation.ts";
import { jsonText } from "../../../../kit/payload-json.ts";
import { storedJson } from "../../../../kit/stored-json.ts";
import { dataOf, messageOf, safeCount } from "../../../../kit/wkt.ts";
import { requireSignalName } from "../../waits/rules.ts";
import { signalDataBytesMax } from "./limits.ts";
import type { SignalBox, SignalRow, SignalState, SignalsPage } from "./signals.ts";

const id = Type.String({ minLength: 1, maxLength: 200, description: "Id of the run (`run_…`)." });

const Signal = shapeOf(RunSignalSchema, { absent: "data taken_at step_id" });

const stateOf = ({ taken_at }: SignalRow): SignalState => (taken_at === null ? "kept" : "taken");

const signalJson = (row: SignalRow) => ({
  ...{ number: row.sequence, name: row.name, state: stateOf(row) },
  ...(row.data !== null && { data: storedJson(row.data) ?? null }),
  ...{ sent_by: row.sent_by, sent_at: rfc3339(row.sent_at) },
  ...(row.taken_at !== null && { taken_at: rfc3339(row.taken_at) }),
  ...(row.taken_by !== null && { step_id: row.taken_by }),
});

const pageJson = ({ signals, kept, hasMore }: SignalsPage) => ({
  ...{ signals: signals.map(signalJson), kept, has_more: hasMore },
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
    output: shapeOf(ListRunSignalsResponseSchema, { own: { signals: Type.Array(Signal) } }),
    rest: { route: "GET /api/v1/runs/{id}/signals", json: pageJson },
    rpc: rpc(
      SvcService.method.listRunSignals,
      (m) => ({ id: m.runId, limit: m.limit, ...(m.before > 0n && { before: safeCount(m.before) }) }),
      (page: SignalsPage) => messageOf(ListRunSignalsResponseSchema)(pageJson(page)),
    ),
    handle: ({ id: runId, limit, before }, call) =>
      signals.list(call.environmentId, { runId, limit, before }),
  }),
];
