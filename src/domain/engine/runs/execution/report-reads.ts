import type { Clock } from "../../../../kit/clock.ts";
import type { Log } from "../../../../kit/log.ts";
import { type Store, StoreError } from "../../../../store/store.ts";
import type { FunctionDefinition } from "../../functions/definition.ts";
import { attemptsOf, triggersOf } from "../rows.ts";
import { afterFailure } from "../rules.ts";
import type { RetryDecision, RunReport } from "./report.ts";

/**
 * What a flush of reports reads before its transaction. No lock is needed: the fence pins the attempt and the
 * definition.
 */

export interface RetryDeps {
  store: Store;
  clock: Pick<Clock, "now">;
  log: Log;
  /** The definition a run is pinned to. */
  definitionOf: (environmentId: string, functionId: string, version: number) => Promise<FunctionDefinition>;
}

/**
 * Of failed reports, by run, whether and when the run is tried again. A run that is missing in the answer
 * ends.
 */
export async function decideRetries(
  deps: RetryDeps,
  reports: readonly RunReport[],
): Promise<ReadonlyMap<string, RetryDecision>> {
  const decisions = new Map<string, RetryDecision>();
  const failed = reports.filter(({ outcome }) => outcome.kind === "failed");
  if (failed.length === 0) return decisions;
  const attempts = await attemptsOf(deps.store, failed);
  await Promise.all(
    failed.map(async ({ runId, outcome }) => {
      const row = attempts.get(runId);
      if (!row || outcome.kind !== "failed") return;
      const definition = await definitionOf(deps, row);
      // Without its retry policy the run ends: the next report of it could not read the policy either.
      if (!definition) return;
      const next = afterFailure(outcome.error, definition.retry, {
        attempt: row.attempt,
        maxAttempts: row.max_attempts,
      });
      if (next === "ends") return;
      const retryAt = deps.clock.now() + next.retryInMs;
      decisions.set(runId, { retryAt, inMs: next.retryInMs, attempt: row.attempt });
    }),
  );
  return decisions;
}

/** Undefined when the definition cannot be read; throws when the store is away. */
const definitionOf = (
  deps: RetryDeps,
  row: { environment_id: string; function_id: string; function_version: number },
): Promise<FunctionDefinition | undefined> =>
  deps
    .definitionOf(row.environment_id, row.function_id, row.function_version)
    .catch((error: unknown): undefined => {
      if (error instanceof StoreError) throw error;
      deps.log.error("run.definition_unread", { functionId: row.function_id, error });
    });

/**
 * Data of the triggering events, by run, for waits that compare with it; undefined when no report has such a
 * wait.
 */
export async function triggersFor(
  store: Store,
  reports: readonly RunReport[],
): Promise<Map<string, unknown> | undefined> {
  const comparing = reports.filter(
    ({ outcome }) => outcome.kind === "wait" && outcome.match.kind === "trigger",
  );
  return comparing.length === 0 ? undefined : triggersOf(store, comparing);
}
