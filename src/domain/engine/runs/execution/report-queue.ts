import type { Clock } from "../../../../kit/clock.ts";
import type { ItemOutcome } from "../../../../kit/combine.ts";
import { Fault, missing, tryAgain } from "../../../../kit/fault.ts";
import { flushQueue, weightChars } from "../../../../kit/flush-queue.ts";
import type { Log } from "../../../../kit/log.ts";
import type { Watch } from "../../../../kit/watch.ts";
import { isOfItem, isStuck, type Store, StoreError } from "../../../../store/store.ts";
import type { FunctionDefinition } from "../../functions/definition.ts";
import { attemptsOf, lastFences, triggersOf } from "../rows.ts";
import { afterFailure } from "../rules.ts";
import type { Fence, PutOff, RunError } from "../run.ts";
import type { Tally } from "../tally.ts";
import type { QueueHint } from "../wakes/due.ts";
import { commitReportsFlush, type ExecutionChange } from "./commit-reports.ts";
import { type RetryDecision, type RunReport, toExecutionChange, toRelease } from "./report.ts";

export interface ReportsDeps {
  store: Store;
  clock: Clock;
  log: Log;
  /** The definition a run is pinned to. */
  definitionOf: (environmentId: string, functionId: string, version: number) => Promise<FunctionDefinition>;
  /** An execution's next wake was planned for then. */
  onWakePlanned: (at: number) => void;
  /** Runs of the environment began to wait for events. */
  onWaiting: (environmentId: string) => void;
  /** There are children to start, or ends to tell parents of. */
  onChildren: () => void;
  /** Leases of functions with a limit were given up. */
  onQueued: (lanes: readonly QueueHint[]) => void;
  watch: Watch;
}

type Released = Fence & { environmentId: string };
type ReportItem = { report: RunReport } | { release: Released; putOff: PutOff | undefined };

const fenceOf = (item: ReportItem) => ("report" in item ? item.report : item.release);

/** This many steps, each of which is a row, weigh as much as one small report. */
const weightSteps = 50;

const errorSize = (error: RunError | null): number =>
  error ? error.message.length + (error.code?.length ?? 0) + (error.stack?.length ?? 0) : 0;

function sizeOf({ outcome, steps }: RunReport): number {
  let size = 0;
  if (outcome.kind === "completed") size = outcome.output.length;
  else if (outcome.kind === "failed") size = errorSize(outcome.error);
  else if (outcome.kind === "wait" || outcome.kind === "invoke") size = outcome.input?.length ?? 0;
  for (const step of steps)
    size += step.stepId.length + step.name.length + (step.output?.length ?? 0) + errorSize(step.error);
  return size;
}

/** Brings reports of all workers together into flushes; a failed attempt's retry policy is looked up before. */
export function openReports(deps: ReportsDeps, tally: Tally | undefined) {
  const { store, clock, onWakePlanned, onQueued, watch } = deps;

  async function flush(items: readonly ReportItem[], committed: () => void): Promise<ItemOutcome<void>[]> {
    const [decisions, triggers] = await Promise.all([decisionsOf(items), triggersFor(items)]);
    const changes = items.map((item, at) =>
      "report" in item
        ? toExecutionChange(item.report, {
            decision: decisions[at]!,
            triggerData: triggers?.get(item.report.runId),
          })
        : toRelease(item.release, clock.now(), item.putOff),
    );
    const now = clock.now();
    const committedReports = await store.flush(commitReportsFlush, { now, changes });
    committed();
    const outcomes: ItemOutcome<void>[] = [];
    const done: ExecutionChange[] = [];
    const gone: { at: number; change: ExecutionChange }[] = [];
    let children = false;
    const freed = new Map<string, QueueHint>();
    for (const { ord, outcome, parent_run_id, lane_id, function_id } of committedReports) {
      if (parent_run_id !== null) children = true;
      const change = changes[ord - 1]!;
      if (outcome === "stale") outcomes[ord - 1] = { error: staleExecution() };
      else if (outcome === "not_running") outcomes[ord - 1] = { error: runNotRunning() };
      else if (outcome === "gone") gone.push({ at: ord - 1, change });
      else {
        if (change.wakeAt !== null && change.ends === null) onWakePlanned(change.wakeAt);
        if (change.pending?.for.kind === "event") deps.onWaiting(change.environmentId);
        else if (change.pending) children = true;
        done.push(change);
        const stays = change.ends === null && change.next === "leased";
        if (lane_id !== null && function_id !== null && !stays) {
          const queued = change.next === "queued" || freed.get(lane_id)?.queued === true;
          const { environmentId } = change;
          freed.set(lane_id, {
            environmentId,
            functionId: function_id,
            laneId: lane_id,
            freed: true,
            queued,
          });
        }
        outcomes[ord - 1] = { value: undefined };
      }
    }
    if (children) deps.onChildren();
    tally?.reported(done, now);
    if (freed.size > 0) onQueued([...freed.values()]);
    if (gone.length > 0) {
      const why = await whyRefused(
        store,
        gone.map(({ change }) => change),
      );
      for (const [place, { at }] of gone.entries()) outcomes[at] = { error: why[place] };
    }
    return outcomes;
  }

  /** Only waits that compare with the triggering event ask for its data. */
  async function triggersFor(items: readonly ReportItem[]): Promise<Map<string, unknown> | undefined> {
    const comparing = items.flatMap((item) =>
      "report" in item && item.report.outcome.kind === "wait" && item.report.outcome.match.kind === "trigger"
        ? item.report
        : [],
    );
    return comparing.length === 0 ? undefined : triggersOf(store, comparing);
  }

  /** Undefined when it cannot be read, for another reason than that the store is away. */
  const definitionOf = (row: { environment_id: string; function_id: string; function_version: number }) =>
    deps
      .definitionOf(row.environment_id, row.function_id, row.function_version)
      .catch((error: unknown): undefined => {
        if (error instanceof StoreError) throw error;
        deps.log.error("run.definition_unread", { functionId: row.function_id, error });
      });

  /** Read without a lock: the fence pins attempt and definition until the settlement. */
  async function decisionsOf(items: readonly ReportItem[]): Promise<RetryDecision[]> {
    const failed = items.flatMap((item) =>
      "report" in item && item.report.outcome.kind === "failed" ? item.report : [],
    );
    if (failed.length === 0) return items.map(() => "ends");
    const attempts = await attemptsOf(store, failed);
    return Promise.all(
      items.map(async (item): Promise<RetryDecision> => {
        if (!("report" in item) || item.report.outcome.kind !== "failed") return "ends";
        const row = attempts.get(item.report.runId);
        if (!row) return "ends";
        const definition = await definitionOf(row);
        // Whether it may be tried again is not known, and the next report of it would not be either.
        if (!definition) return "ends";
        const next = afterFailure(item.report.outcome.error, definition.retry, {
          attempt: row.attempt,
          maxAttempts: row.max_attempts,
        });
        if (next === "ends") return next;
        return { retryAt: clock.now() + next.retryInMs, inMs: next.retryInMs, attempt: row.attempt };
      }),
    );
  }

  const queue = flushQueue<ReportItem, void>({
    name: "runs.settle",
    clock,
    watch,
    environmentOf: (item) => fenceOf(item).environmentId,
    keyOf: (item) => fenceOf(item).runId,
    weigh: (item) =>
      "report" in item ? 1 + sizeOf(item.report) / weightChars + item.report.steps.length / weightSteps : 1,
    flush,
    // A value the store refuses fails its own report; one environment's locked runs do not fail the others' reports.
    isOfItem,
    isStuck,
  });

  return {
    submit: (report: RunReport) => queue.submit({ report }),
    release: (release: Released, putOff?: PutOff) => queue.submit({ release, putOff }),
    drain: queue.drain,
  };
}

/** What to tell workers whose fences no longer open anything: the run, over or not, knows its last fence. */
export async function whyRefused(
  store: Store,
  fences: readonly (Fence & { environmentId: string })[],
): Promise<Fault[]> {
  // What was settled is committed: a failed read here costs only these their answer.
  const known = await lastFences(store, fences).catch(() => undefined);
  return fences.map((fence) => {
    if (!known) return unread();
    const last = known.get(fence.runId);
    if (!last) return missing("run", fence.runId);
    const held = last.execution_seq === fence.executionSeq && last.lease_hash === fence.leaseHash;
    return held ? runNotRunning() : staleExecution();
  });
}

const unread = (): Fault => tryAgain("unavailable", "the run cannot be read now, send it again");

const staleExecution = (): Fault =>
  new Fault("aborted", "this execution was recovered or superseded", { code: "STALE_EXECUTION" });

const runNotRunning = (): Fault =>
  new Fault("aborted", "the run is not running", { code: "RUN_NOT_RUNNING" });
