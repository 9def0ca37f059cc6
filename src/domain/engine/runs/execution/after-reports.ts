import type { Instant } from "../../../../kit/clock.ts";
import type { ItemOutcome } from "../../../../kit/combine.ts";
import type { QueueHint } from "../run.ts";
import type { CommittedReport } from "./commit-reports.ts";
import type { ExecutionChange } from "./execution-change.ts";
import type { BegunWait } from "./submit-waits.ts";
import { runNotRunning, staleExecution } from "./why-refused.ts";

interface PlacedChange {
  at: number;
  change: ExecutionChange;
}

/** What a committed flush of reports came to. */
export interface ReportFacts {
  /** One for each change, in their order; those of `gone` are left open. */
  outcomes: ItemOutcome<void>[];
  done: readonly ExecutionChange[];
  /** Of runs that are over: what they say of compensations still counts. */
  late: readonly ExecutionChange[];
  /** Of runs that are not there; why must be read. */
  gone: readonly PlacedChange[];
  /** Planned wakes of executions that stay. */
  wakes: readonly Instant[];
  waits: readonly BegunWait[];
  /** Children are to be started, or parents wait for a run that ended. */
  hasChildren: boolean;
  /** Queues that have got work, or room. */
  queued: readonly QueueHint[];
}

/** Notes by queue what a report that was done leaves to hand out. */
function noteQueue(
  queued: Map<string, QueueHint>,
  { environmentId, runId, ends, next, undo }: ExecutionChange,
  { lane_id, function_id }: Pick<CommittedReport, "lane_id" | "function_id">,
): void {
  const undoneBy = undo?.functionId ?? null;
  if (undoneBy !== null) queued.set(runId, { environmentId, functionId: undoneBy });
  const stays = ends === null && next === "leased";
  if (lane_id === null || function_id === null || stays) return;
  const hasWork = next === "queued" || queued.get(lane_id)?.queued === true;
  const hint = { environmentId, functionId: function_id, laneId: lane_id };
  queued.set(lane_id, { ...hint, freed: true, queued: hasWork });
}

/** `rows` name the changes by `ord`, from 1. */
export function afterReports(
  changes: readonly ExecutionChange[],
  rows: readonly CommittedReport[],
): ReportFacts {
  const outcomes: ItemOutcome<void>[] = [];
  const done: ExecutionChange[] = [];
  const late: ExecutionChange[] = [];
  const gone: PlacedChange[] = [];
  const wakes: Instant[] = [];
  const waits: BegunWait[] = [];
  const queued = new Map<string, QueueHint>();
  let hasChildren = false;
  for (const row of rows) {
    const { outcome } = row;
    if (row.parent_run_id !== null) hasChildren = true;
    const at = row.ord - 1;
    const change = changes[at]!;
    if (outcome === "gone") gone.push({ at, change });
    else if (outcome === "stale") outcomes[at] = { error: staleExecution() };
    else if (outcome === "not_running") {
      outcomes[at] = { error: runNotRunning() };
      if (change.undo !== null) late.push(change);
    } else {
      outcomes[at] = { value: undefined };
      if (row.function_id !== null) change.functionId = row.function_id;
      if (row.claimed_at !== null) change.claimedAt = row.claimed_at;
      done.push(change);
      noteQueue(queued, change, row);
      if (change.wakeAt !== null && change.ends === null) wakes.push(change.wakeAt);
      const awaited = change.pending?.for;
      if (awaited && "functionId" in awaited) hasChildren = true;
      else if (awaited) {
        const { environmentId } = change;
        waits.push({ environmentId, functionId: row.function_id, awaited });
      }
    }
  }
  return { outcomes, done, late, gone, wakes, waits, hasChildren, queued: [...queued.values()] };
}
