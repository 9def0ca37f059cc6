import { Fault, invalid } from "../../../kit/fault.ts";
import { keyOf } from "../../../kit/key-claims.ts";
import type { Call } from "../../../kit/operation.ts";
import { jsonText } from "../../../kit/payload-json.ts";
import { draftOf, type EmitInput, noteStarts } from "../emit/rules.ts";
import type { Emitted, Events, InvokeDraft } from "../emit/service.ts";
import type { RunEnds } from "../runs/children/run-ends.ts";
import type { RunResult } from "../runs/run.ts";

export const syncTimeoutMsDefault = 30_000;
const syncTimeoutMsMax = 15 * 60 * 1000;

export interface InvokeInput {
  functionId: string;
  /** Any JSON value; absent means `{}`. */
  data?: unknown;
  metadata?: Record<string, unknown> | null;
  idempotencyKey?: string;
}

/** How long the caller waits; absent and 0 mean `syncTimeoutMsDefault`. */
export interface SyncInput {
  timeoutMs?: number;
}

/** The part of the request that a start reads. */
export type StartCall = Pick<
  Call,
  "environmentId" | "idempotencyKey" | "runId" | "traceparent" | "signal" | "screen"
>;

/** The event of a start, and its position. */
export type StartedBy = Pick<Emitted, "eventId" | "position">;

export interface Triggered extends StartedBy {
  results: RunResult[];
}

/** Starts runs for a caller, and answers at once or with their results. */
export type Starts = ReturnType<typeof openStarts>;

export interface StartsDeps {
  events: Pick<Events, "invoke" | "emitUndelayed">;
  ends: Pick<RunEnds, "enter" | "wait">;
  /** Called with runs whose caller disconnected: nobody waits for them any more. */
  cancelRun?: (environmentId: string, runId: string) => Promise<void>;
}

export function openStarts({ events, ends, cancelRun }: StartsDeps) {
  async function withEnds(
    input: SyncInput,
    call: StartCall,
    start: () => Promise<Emitted>,
  ): Promise<Triggered> {
    const timeoutMs = timeoutOf(input.timeoutMs);
    const leave = ends.enter(call.environmentId);
    try {
      const { eventId, position, runIds, repeated = false } = await start();
      const { environmentId, signal } = call;
      const results = await ends.wait({ environmentId, runIds, timeoutMs, signal, look: repeated });
      if (!signal.aborted) return { eventId, position, results };
      // A repeated idempotency key answers runs of another call: they are not cancelled with this one.
      const begun = repeated ? [] : results.filter(({ isOver }) => !isOver);
      await Promise.allSettled(begun.map(({ runId }) => cancelRun?.(environmentId, runId)));
      throw new Fault("deadline_exceeded", "the caller disconnected");
    } finally {
      leave();
    }
  }

  return {
    /** Resolves once the run is durable; a repeated idempotency key answers the first. */
    async invoke(input: InvokeInput, call: StartCall): Promise<StartedBy & { runId: string }> {
      const { eventId, position, runIds } = await events.invoke(invokeDraftOf(input, call), call);
      return { runId: runIds[0]!, eventId, position };
    },

    /** The same, and waits for the run's end. */
    async invokeSync(
      input: InvokeInput & SyncInput,
      call: StartCall,
    ): Promise<Pick<StartedBy, "position"> & { result: RunResult }> {
      const draft = invokeDraftOf(input, call);
      const { position, results } = await withEnds(input, call, () => events.invoke(draft, call));
      const [result] = results;
      if (!result) throw new Fault("not_found", "the run of this idempotency key was deleted by retention");
      return { position, result };
    },

    /** Emits, and waits for the ends of all runs that the event starts. */
    async triggerSync(input: EmitInput & SyncInput, call: StartCall): Promise<Triggered> {
      const draft = draftOf(input, call.idempotencyKey);
      await noteStarts(call, [draft]);
      const { environmentId, runId, traceparent } = call;
      return withEnds(input, call, () =>
        events.emitUndelayed(draft, { environmentId, source: "api", runId, traceparent }),
      );
    },
  };
}

function timeoutOf(timeoutMs = 0): number {
  if (timeoutMs < 0 || timeoutMs > syncTimeoutMsMax)
    throw invalid("timeoutMs", `must be from 0 to ${syncTimeoutMsMax}`);
  return timeoutMs || syncTimeoutMsDefault;
}

/** Throws the fault that names the field. */
function invokeDraftOf(input: InvokeInput, call: StartCall): InvokeDraft {
  const value = input.data === undefined ? {} : input.data;
  const metadata = input.metadata ?? null;
  return {
    functionId: input.functionId,
    value,
    data: jsonText("data", value),
    metadata: metadata && jsonText("metadata", metadata),
    idempotencyKey: keyOf(input.idempotencyKey, call.idempotencyKey),
  };
}
