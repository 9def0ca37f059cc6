import type { Clock, Instant } from "../../../../kit/clock.ts";
import { type Basics, type Store, StoreError } from "../../../../store/store.ts";
import type { FunctionDefinition } from "../../functions/definition.ts";
import { runPlace, type StateCondition } from "../../waits/rules.ts";
import { isFull, notStartedBy } from "../awaited/state-rows.ts";
import { groupsOf } from "../error-groups.ts";
import { compensatingMsMax, compensationTriesMax, stateWaitsMax } from "../limits.ts";
import { type AttemptRow, attemptsOf, triggersOf } from "../rows.ts";
import {
  afterFailure,
  readEnding,
  retryDelayMs,
  tooManyWaits,
  unknownChild,
  unresolvedMatch,
} from "../rules.ts";
import type { RunError } from "../run.ts";
import type { ExecutionChange, ReportOutcome } from "./execution-change.ts";
import type { ReportedUndo, RetryDecision, RunReport } from "./report.ts";

/**
 * What a flush of reports reads before its transaction. No lock is needed: the fence pins the attempt and the
 * definition.
 */

export interface RetryDeps extends Basics<"store" | "log"> {
  clock: Pick<Clock, "now">;
  /** The definition a run is pinned to. */
  definitionOf: (environmentId: string, functionId: string, version: number) => Promise<FunctionDefinition>;
}

export interface Retries {
  /** By run; a run that is missing here ends. */
  decisions: ReadonlyMap<string, RetryDecision>;
  /** The functions of the runs that were looked at. */
  functionIds: ReadonlyMap<string, string>;
}

/** Of failed reports, whether and when the run is tried again, or undone. */
export async function decideRetries(deps: RetryDeps, reports: readonly RunReport[]): Promise<Retries> {
  const functionIds = new Map<string, string>();
  const decisions = new Map<string, RetryDecision>();
  const now = deps.clock.now();
  // The error is the one of the match that fails, if one does.
  for (const { runId, outcome, undo } of reports)
    if ((comparesWithTrigger(outcome) || waitsForStates(outcome)) && asksUndo(undo))
      decisions.set(runId, undoOf(now, unresolvedMatch(""), null));
  const failed = reports.filter(({ outcome }) => outcome.kind === "failed");
  if (failed.length === 0) return { decisions, functionIds };
  const attempts = await attemptsOf(deps.store, failed);
  await Promise.all(
    failed.map(async (report) => {
      const row = attempts.get(report.runId);
      if (!row) return;
      functionIds.set(report.runId, row.function_id);
      const definition = await definitionOf(deps, row);
      const decision = decideFailure(report, row, definition, now);
      if (decision !== "ends") decisions.set(report.runId, decision);
    }),
  );
  return { decisions, functionIds };
}

/** Names the groups of the runs that are about to end as failed. */
export async function groupFailures(
  store: Store,
  changes: readonly ExecutionChange[],
  functionIds: ReadonlyMap<string, string>,
): Promise<void> {
  const failed = changes.filter(({ ends }) => ends === "failed");
  if (failed.length === 0) return;
  const unread = failed.filter(({ runId }) => !functionIds.has(runId));
  const read = unread.length === 0 ? undefined : await attemptsOf(store, unread);
  const failures = failed.flatMap(({ runId, environmentId, error }) => {
    const functionId = functionIds.get(runId) ?? read?.get(runId)?.function_id;
    if (functionId === undefined || error === null) return [];
    return { runId, environmentId, functionId, error: JSON.parse(error) as RunError };
  });
  if (failures.length === 0) return;
  const groups = await groupsOf(store, failures);
  for (const change of failed) change.errorGroup = groups.get(change.runId) ?? null;
}

/** `definition` is undefined when it cannot be read: nothing is retried then, but what was done is undone. */
function decideFailure(
  { outcome, undo }: RunReport,
  row: AttemptRow,
  definition: FunctionDefinition | undefined,
  now: Instant,
): RetryDecision {
  if (outcome.kind !== "failed") return "ends";
  const { function_id: functionId, attempt, max_attempts: maxAttempts } = row;
  const { error } = outcome;
  if (row.ending !== null) {
    const ending = readEnding(row.ending);
    const tries = ending.tries + 1;
    if (!error.retryable || tries >= compensationTriesMax || !definition)
      // A job that was never reported by its worker undid nothing that is known.
      return { undone: ending, failed: undo ? undo.failed : Math.max(1, row.undo_count) };
    const at = now + retryDelayMs(definition.retry, tries);
    return { undo: { ...ending, tries }, at, until: null, functionId };
  }
  // Without its retry policy the run ends: the next report of it could not read the policy either.
  const next = definition ? afterFailure(error, definition.retry, { attempt, maxAttempts }) : "ends";
  if (next !== "ends") return { retryAt: now + next.retryInMs, inMs: next.retryInMs, attempt };
  const hasUndo = (undo?.count ?? row.undo_count) > 0 || definition?.onFailure === true;
  return hasUndo ? undoOf(now, error, functionId) : "ends";
}

const asksUndo = (undo: ReportedUndo | undefined): boolean =>
  undo !== undefined && (undo.count > 0 || undo.onFailure);

const undoOf = (now: Instant, error: RunError, functionId: string | null) => ({
  undo: { status: "failed" as const, error, cause: null, interrupted: false, tries: 0 },
  at: now,
  until: now + compensatingMsMax,
  functionId,
});

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
  const comparing = reports.filter(({ outcome }) => comparesWithTrigger(outcome));
  return comparing.length === 0 ? undefined : triggersOf(store, comparing);
}

function comparesWithTrigger(outcome: ReportOutcome): boolean {
  if (outcome.kind === "wait") return outcome.match.kind === "trigger";
  if (outcome.kind !== "wait_many") return false;
  return outcome.conditions.some((one) => "match" in one && one.match.kind === "trigger");
}

const waitsForStates = (outcome: ReportOutcome): boolean =>
  outcome.kind === "wait_many" && outcome.conditions.some((one) => "state" in one);

const statesOf = (outcome: ReportOutcome): StateCondition[] =>
  outcome.kind === "wait_many" ? outcome.conditions.flatMap((one) => ("state" in one ? one.state : [])) : [];

/**
 * Why waits for states cannot begin, by run: one names a run that its run did not start, or its environment
 * has as many as it may; undefined when no report has such a wait.
 */
export async function refusedWaits(
  store: Store,
  reports: readonly RunReport[],
): Promise<ReadonlyMap<string, RunError> | undefined> {
  const waiting = reports.filter(({ outcome }) => waitsForStates(outcome));
  if (waiting.length === 0) return undefined;
  const named = waiting.flatMap(({ environmentId, runId, outcome }) =>
    statesOf(outcome).flatMap(({ place, subject }) =>
      place === runPlace ? { environmentId, runId, childRunId: subject } : [],
    ),
  );
  const strangers = named.length === 0 ? new Map<string, string>() : await notStartedBy(store, named);
  const environments = [...new Set(waiting.map(({ environmentId }) => environmentId))];
  const full = new Set<string>();
  await Promise.all(
    environments.map(async (id) => (await isFull(store, id, stateWaitsMax - 1)) && full.add(id)),
  );
  return new Map(
    waiting.flatMap(({ environmentId, runId }): [string, RunError][] => {
      const stranger = strangers.get(runId);
      if (stranger !== undefined) return [[runId, unknownChild(stranger)]];
      return full.has(environmentId) ? [[runId, tooManyWaits(stateWaitsMax)]] : [];
    }),
  );
}
