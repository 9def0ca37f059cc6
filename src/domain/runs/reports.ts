import type { Clock } from "../../kit/clock.ts";
import { type Combiner, combine, type Outcome } from "../../kit/combine.ts";
import { Fault, missing } from "../../kit/fault.ts";
import { laneOfEnvironment } from "../../kit/lanes.ts";
import { combineLanes, combinePaceMs, combineWaitingMax, flushItemsMax } from "../../kit/limits.ts";
import { type Store, StoreError } from "../../store/store.ts";
import type { FunctionDefinition } from "../functions/definition.ts";
import { type RunReport, toRelease, toSettlement, type Verdict } from "./report.ts";
import { attemptsOf, lastFence } from "./rows.ts";
import { afterFailure } from "./rules.ts";
import type { Fence } from "./run.ts";
import { type Settled, type Settlement, settleFlush } from "./settle.ts";

export interface ReportsDeps {
  store: Store;
  clock: Clock;
  /** The definition a run is pinned to. */
  definitionOf: (environmentId: string, functionId: string, version: number) => Promise<FunctionDefinition>;
  /** An execution's next wake was planned for then. */
  onWakePlanned: (at: number) => void;
}

type Item = { report: RunReport } | { release: Fence & { environmentId: string } };

const fenceOf = (item: Item) => ("report" in item ? item.report : item.release);

/** So many characters of output weigh as much as one small report: a flush stays small in bytes too. */
const weightChars = 16_384;

const sizeOf = ({ outcome, steps }: RunReport): number =>
  steps.reduce(
    (sum, step) => sum + (step.output?.length ?? 0),
    outcome.kind === "completed" ? outcome.output.length : 0,
  );

/** Brings reports of all workers together into flushes; a failed attempt's retry policy is looked up before. */
export function openReports(deps: ReportsDeps) {
  const { store, clock, onWakePlanned } = deps;

  async function flush(items: readonly Item[]): Promise<Outcome<void>[]> {
    const verdicts = await verdictsOf(items);
    const settlements = items.map((item, at) =>
      "report" in item ? toSettlement(item.report, verdicts[at]!) : toRelease(item.release, clock.now()),
    );
    const settled = await store.flush(settleFlush, { now: clock.now(), settlements });
    const outcomes: Outcome<void>[] = [];
    for (const { ord, outcome } of settled) {
      const settlement = settlements[ord - 1]!;
      if (outcome !== "done") {
        outcomes[ord - 1] = { error: await whyNot(settlement, outcome) };
        continue;
      }
      if (settlement.wakeAt !== null && settlement.ends === null) onWakePlanned(settlement.wakeAt);
      outcomes[ord - 1] = { value: undefined };
    }
    return outcomes;
  }

  /** Read without a lock: the fence pins attempt and definition until the settlement. */
  async function verdictsOf(items: readonly Item[]): Promise<Verdict[]> {
    const failed = items.flatMap((item) =>
      "report" in item && item.report.outcome.kind === "failed" ? item.report : [],
    );
    if (failed.length === 0) return items.map(() => "ends");
    const attempts = await attemptsOf(store, failed);
    return Promise.all(
      items.map(async (item): Promise<Verdict> => {
        if (!("report" in item) || item.report.outcome.kind !== "failed") return "ends";
        const row = attempts.get(item.report.runId);
        if (!row) return "ends";
        const definition = await deps.definitionOf(row.environment_id, row.function_id, row.function_version);
        const next = afterFailure(item.report.outcome.error, definition.retry, {
          attempt: row.attempt,
          maxAttempts: row.max_attempts,
        });
        if (next === "ends") return next;
        return { retryAt: clock.now() + next.retryInMs, inMs: next.retryInMs, attempt: row.attempt };
      }),
    );
  }

  async function whyNot(
    settlement: Settlement,
    outcome: Exclude<Settled["outcome"], "done">,
  ): Promise<Fault> {
    if (outcome === "stale") return staleExecution();
    if (outcome === "not_running") return runNotRunning();
    return whyGone(store, settlement);
  }

  const combiner: Combiner<Item, void> = combine<Item, void>({
    name: "runs.settle",
    lanes: combineLanes,
    laneOf: (item) => laneOfEnvironment(fenceOf(item).environmentId),
    keyOf: (item) => fenceOf(item).runId,
    itemsMax: flushItemsMax,
    waitingMax: combineWaitingMax,
    pace: { clock, ms: combinePaceMs },
    weigh: (item) => ("report" in item ? 1 + sizeOf(item.report) / weightChars : 1),
    flush,
    // A value the store refuses must cost its own report only.
    retrySplit: (error, items) => (error instanceof Fault ? items.map((item) => [item]) : undefined),
    // One environment's locked runs must not fail the others' reports.
    apart: {
      groupOf: (item) => fenceOf(item).environmentId,
      isStuck: (error) => error instanceof StoreError && error.trouble === "lock_timeout",
    },
  });

  return {
    submit: (report: RunReport) => combiner.submit({ report }),
    release: (fence: Fence & { environmentId: string }) => combiner.submit({ release: fence }),
    combiner,
  };
}

/** There is no execution any more: the run's own row knows under which fence it ended. */
export async function whyGone(store: Store, fence: Fence & { environmentId: string }): Promise<Fault> {
  const last = await lastFence(store, fence.environmentId, fence.runId);
  if (!last) return missing("run", fence.runId);
  const held = last.execution_seq === fence.executionSeq && last.lease_hash === fence.leaseHash;
  return held ? runNotRunning() : staleExecution();
}

const staleExecution = (): Fault =>
  new Fault("aborted", "this execution was recovered or superseded", { code: "STALE_EXECUTION" });

const runNotRunning = (): Fault =>
  new Fault("aborted", "the run is not running", { code: "RUN_NOT_RUNNING" });
