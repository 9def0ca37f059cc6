import { type KnownOptions, requireBounds, requireKnown } from "../wire/known-options.ts";
import { instant } from "../wire/read.ts";
import { once, safe } from "../wire/retry.ts";
import type { Transport } from "../wire/transport.ts";

export interface DeleteRunsOptions {
  functionId?: string;
  /** Of runs that are over; all three without it. */
  statuses?: readonly ("completed" | "failed" | "cancelled")[];
  /** Only what was created by then. */
  until?: Date | string;
  limit?: number;
  reason?: string;
}

export interface RedactedValues {
  redactedAt: string;
  redactedBy: string;
}

export interface RedactedRun extends RedactedValues {
  eventId: string;
  /** Whether the events that started the run, and `svc.run.failed` of it, are redacted as well, or gone. */
  eventRedacted: boolean;
  /** Those that are not. */
  unredactedEventIds: string[];
}

/** What erases runs that are over, for good. Each reason is for the audit. */
export interface RunErasureCalls {
  /** With all that is its; its event stays. */
  delete(runId: string, options?: { reason?: string }): Promise<void>;
  /** The oldest first, up to `limit` (1,000 unless it says otherwise, at most 10,000). */
  deleteMany(options?: DeleteRunsOptions): Promise<{ deleted: number; hasMore: boolean }>;
  /** Overwrites what a run was given, made and wrote. `client.events.redact` is for its event. */
  redact(runId: string, options?: { reason?: string }): Promise<RedactedRun>;
  /** The same of one step: the row's id or the SDK's. */
  redactStep(stepId: string, options?: { reason?: string }): Promise<RedactedValues>;
}

const known: KnownOptions<DeleteRunsOptions> = {
  ...{ functionId: true, statuses: true, until: true, limit: true, reason: true },
};

export function runErasureCalls(transport: Transport): RunErasureCalls {
  const rpc = <Answer>(method: string, message: unknown, options = safe) =>
    transport.rpc<Answer>(`SvcService/${method}`, message, options);
  return {
    async delete(runId, { reason = "" } = {}) {
      await rpc("DeleteRun", { runId, reason }, once);
    },

    async deleteMany(options = {}) {
      requireKnown("runs.deleteMany", options, known);
      // A value that its caller does not have must not delete the runs of all functions, for good.
      requireBounds("runs.deleteMany", options, ["functionId", "statuses", "until"]);
      const { statuses, until, ...given } = options;
      const message = {
        ...given,
        // Without a list all three are meant; an empty one is refused.
        ...(statuses && { statuses: statuses.map((status) => `RUN_STATUS_${status.toUpperCase()}`) }),
        ...(until !== undefined && { until: instant(until) }),
      };
      const answer = await rpc<Partial<{ deleted: number; hasMore: boolean }>>("DeleteRuns", message, once);
      return { deleted: answer.deleted ?? 0, hasMore: answer.hasMore ?? false };
    },

    async redact(runId, { reason = "" } = {}) {
      const answer = await rpc<Partial<RedactedRun>>("RedactRun", { runId, reason });
      return { ...none, eventId: "", eventRedacted: false, unredactedEventIds: [], ...answer };
    },

    redactStep: async (stepId, { reason = "" } = {}) => ({
      ...{ ...none, ...(await rpc<Partial<RedactedValues>>("RedactStep", { stepId, reason })) },
    }),
  };
}

const none: RedactedValues = { redactedAt: "", redactedBy: "" };
