import type { Assignment } from "./wire.ts";

/** Where the code of a run is in its trace; with a step's id, that step's code. Undefined for no trace. */
export type TraceparentOf = (stepId?: string) => string | undefined;

/** The id that the server gives the span of a step: FNV-1a, 64 bits (`kit/trace-context.ts`). */
export function spanIdOf(runId: string, stepId: string): string {
  let hash = 0xcbf29ce484222325n;
  for (const byte of new TextEncoder().encode(`${runId}/${stepId}`))
    hash = BigInt.asUintN(64, (hash ^ BigInt(byte)) * 0x100000001b3n);
  return (hash || 1n).toString(16).padStart(16, "0");
}

/** Where the server keeps no spans of steps, these continue from where their run does. */
export function traceparentsOf({
  run_id: runId,
  context: { traceparent, step_spans } = {},
}: Pick<Assignment, "run_id" | "context">): TraceparentOf {
  return (stepId) => {
    if (stepId === undefined || traceparent === undefined || !step_spans) return traceparent;
    const [version, traceId, , flags] = traceparent.split("-");
    return [version, traceId, spanIdOf(runId, stepId), flags].join("-");
  };
}
