import type { Call } from "../../kit/operation.ts";
import { jsonText, keyOf } from "../events/rules.ts";
import type { Events, InvokeDraft } from "../events/service.ts";

export interface InvokeInput {
  functionId: string;
  /** Any JSON value; absent means `{}`. */
  data?: unknown;
  metadata?: Record<string, unknown> | null;
  idempotencyKey?: string;
}

/** What a start needs to know of the request. */
export type StartCall = Pick<Call, "environmentId" | "idempotencyKey" | "runId" | "signal">;

export interface Starts {
  /** Resolves once the run is durable; a repeated idempotency key answers the first. */
  invoke(input: InvokeInput, call: StartCall): Promise<{ runId: string; eventId: string }>;
}

export interface StartsDeps {
  events: Pick<Events, "invoke">;
}

export function openStarts({ events }: StartsDeps): Starts {
  return {
    async invoke(input, call) {
      const { eventId, runIds } = await events.invoke(invokeDraftOf(input, call), call);
      return { runId: runIds[0]!, eventId };
    },
  };
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
