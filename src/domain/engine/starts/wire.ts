import type { MessageInitShape } from "@bufbuild/protobuf";
import type { RunResultSchema } from "../../../gen/svc/v1/svc_pb.ts";
import { storedJson } from "../../../kit/payload-json.ts";
import { isJsonObject, payload } from "../../../kit/wkt.ts";
import type { RunResult } from "../runs/run.ts";
import { runStatusWire, toError } from "../runs/wire.ts";

const int32Max = 2_147_483_647;
const durationOf = ({ durationMs }: RunResult) => Math.min(durationMs, int32Max);

export const toResultMessage = (result: RunResult): MessageInitShape<typeof RunResultSchema> => ({
  runId: result.runId,
  functionId: result.functionId,
  status: runStatusWire[result.status],
  ...payload("output", "outputValue", result.output),
  ...(result.error && { error: toError(result.error) }),
  durationMs: durationOf(result),
  waitTimedOut: !result.isOver,
});

/** The same as plain JSON: outputs never become messages on the hot path. */
export function toResultBody(result: RunResult) {
  const output = result.output === null ? undefined : storedJson(result.output);
  const { error } = result;
  return {
    runId: result.runId,
    functionId: result.functionId,
    status: `RUN_STATUS_${result.status.toUpperCase()}`,
    durationMs: durationOf(result),
    ...(output !== undefined && (isJsonObject(output) ? { output } : { outputValue: output })),
    ...(error && {
      error: {
        message: error.message,
        ...(error.code && { code: error.code }),
        ...(error.stack && { stack: error.stack }),
        ...(error.retryable && { retryable: true }),
      },
    }),
    ...(!result.isOver && { waitTimedOut: true }),
  };
}
