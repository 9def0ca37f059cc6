import type { Clock, Instant } from "../../../../kit/clock.ts";
import type { ItemOutcome } from "../../../../kit/combine.ts";
import { flushQueue, weightChars } from "../../../../kit/flush-queue.ts";
import { column, sql } from "../../../../kit/sql.ts";
import type { Watch } from "../../../../kit/watch.ts";
import { isMarked, isOfItem, isStuck, type Session } from "../../../../store/store.ts";
import type { RowOf } from "../../../../store/tables/index.ts";
import { attributesMax } from "../../attributes/rules.ts";
import { type AttributeNames, type NamedReports, openNamedReports } from "../attributes/attribute-names.ts";
import { attributesFull, attributeUnnamed } from "../attributes/attribute-rows.ts";
import { type LogsDeps, linesToStore } from "../logs/lines-to-store.ts";
import { storeLateLines } from "../logs/log-rows.ts";
import { readEnding } from "../rules.ts";
import type { Fence, PutOff, QueueHint, RunError } from "../run.ts";
import { seenBySleep } from "../waits/rank-met.ts";
import {
  type CommittedReport,
  commitReportsFlush,
  stepColumns,
  stepConflict,
  stepsOfReports,
  stepTarget,
} from "./commit-reports.ts";
import type { ExecutionChange } from "./execution-change.ts";
import { runNotRunning, staleExecution, whyRefused } from "./refusal.ts";
import { type RunReport, toExecutionChange, toRelease, withoutAttributes } from "./report.ts";
import { decideRetries, groupFailures, type RetryDeps, refusedWaits, triggersFor } from "./report-reads.ts";
import { type BegunWait, noteWait, openSubmitWaits, type SubmitWaitsDeps } from "./submit-waits.ts";

interface EndedLease extends RowOf<"executions", "run_id, attempt, step_count, execution_seq, worker_id"> {
  ending: string;
}

/**
 * Stores the steps of workers whose runs were ended while they worked on them: what they finished is to be
 * undone with the rest. A last report says that nothing more will come, so that the undoing begins at once.
 * Nothing changes when another worker has the run by now. Locks: executions, sorted by run.
 */
async function handIn(session: Session, changes: readonly ExecutionChange[], now: Instant): Promise<void> {
  for (const change of [...changes].sort((a, b) => (a.runId < b.runId ? -1 : 1))) {
    const lease =
      await session.one<EndedLease>(sql`SELECT run_id, ending, attempt, step_count, execution_seq, worker_id FROM executions
      WHERE run_id = ${change.runId} AND environment_id || '' = ${change.environmentId} AND state = 'queued'
        AND ending IS NOT NULL AND execution_seq = ${change.executionSeq} AND lease_hash = ${change.leaseHash}
      ${session.seams.holdRow}`);
    if (lease) await storeLate(session, change, lease, now);
  }
}

async function storeLate(
  session: Session,
  change: ExecutionChange,
  lease: EndedLease,
  now: Instant,
): Promise<void> {
  // What the handler waited for is of no interest any more.
  const own = { ...change, steps: change.steps.filter((step) => step.status !== "sleeping") };
  const steps = stepsOfReports([own]);
  const first = Math.max(lease.step_count, change.stepsTop);
  if (steps.length > 0)
    await session.run(sql`INSERT INTO ${stepTarget}
      SELECT s.run_id, s.step_id, s.environment_id, s.name, s.type, s.sequence, s.status, s.output, s.error,
        ${sql.bigint(lease.attempt)}, s.started_at, s.ended_at, s.duration_ms, s.compensation_for, s.sleep_until,
        ${sql.bigint(now)}, ${sql.bigint(now)}, ${seenBySleep}
      FROM ${session.seams.rowsFrom("s", {
        ...stepColumns(steps),
        sequence: column.bigint(steps.map((s) => (s.sequence < 0 ? first - s.sequence - 1 : s.sequence))),
      })} WHERE true ${stepConflict}`);
  await storeLateLines(session, { change, row: lease }, now);
  const isLast = change.next !== "leased" || change.ends !== null;
  const count = change.undo?.count ?? 0;
  const ending = readEnding(lease.ending);
  const interrupted = ending.lostBefore === true && own.steps.length === 0;
  await session.run(sql`UPDATE executions SET step_count = ${first + own.steps.filter((step) => step.sequence < 0).length},
      undo_count = CASE WHEN undo_count < ${sql.bigint(count)} THEN ${sql.bigint(count)} ELSE undo_count END
      ${
        isLast
          ? sql`, wake_at = ${now}, lease_hash = NULL,
            ending = ${JSON.stringify({ ...ending, interrupted })}`
          : sql.empty
      }
    WHERE run_id = ${change.runId}`);
}

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
function afterReports(changes: readonly ExecutionChange[], rows: readonly CommittedReport[]): ReportFacts {
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

export interface ReportsDeps extends RetryDeps, SubmitWaitsDeps, LogsDeps {
  clock: Clock;
  names: Pick<AttributeNames, "require" | "forget">;
  watch: Watch;
}

type Released = Fence & { environmentId: string };
type ReportItem = { report: RunReport } | { release: Released; putOff: PutOff | undefined };

const fenceOf = (item: ReportItem) => ("report" in item ? item.report : item.release);

/** This many steps, each of which is a row, weigh as much as one small report. */
const weightSteps = 50;

const errorSize = (error: RunError | null): number =>
  error ? error.message.length + (error.code?.length ?? 0) + (error.stack?.length ?? 0) : 0;

function sizeOf({ outcome, steps, failures = [], logs }: RunReport): number {
  let size = 0;
  if (outcome.kind === "completed") size = outcome.output.length;
  else if (outcome.kind === "failed") size = errorSize(outcome.error);
  else if (outcome.kind === "wait" || outcome.kind === "invoke") size = outcome.input?.length ?? 0;
  for (const { text } of logs?.lines ?? []) size += text.length;
  for (const { error } of failures) size += errorSize(error);
  for (const step of steps)
    size += step.stepId.length + step.name.length + (step.output?.length ?? 0) + errorSize(step.error);
  return size;
}

/** The report of a run that would have too many attributes. */
const withFewer = (item: ReportItem): ReportItem =>
  "report" in item
    ? { report: withoutAttributes(item.report, `attributes: a run has at most ${attributesMax}`) }
    : item;

/** The items of a flush that the attributes of one report refused; undefined when something else did. */
async function withoutRefused(
  items: readonly ReportItem[],
  error: unknown,
  named: NamedReports,
): Promise<ReportItem[] | undefined> {
  const marked = (mark: string) => items.findIndex((item) => isMarked(error, mark + fenceOf(item).runId));
  const overfull = marked(attributesFull);
  if (overfull >= 0) {
    named.onRefused();
    return items.with(overfull, withFewer(items[overfull]!));
  }
  const unnamed = marked(attributeUnnamed);
  const item = items[unnamed];
  return item && "report" in item
    ? items.with(unnamed, { report: await named.again(item.report) })
    : undefined;
}

/** What the items change, by what is read before their transaction. */
async function changesOf(deps: ReportsDeps, items: readonly ReportItem[]): Promise<ExecutionChange[]> {
  const { store, clock } = deps;
  const reports = items.flatMap((item) => ("report" in item ? item.report : []));
  const [{ decisions, functionIds }, triggers, refusals, lines] = await Promise.all([
    decideRetries(deps, reports),
    triggersFor(store, reports),
    refusedWaits(store, reports),
    linesToStore(deps, reports),
  ]);
  const changes = items.map((item) =>
    "report" in item
      ? toExecutionChange(item.report, {
          decision: decisions.get(item.report.runId) ?? "ends",
          triggerData: triggers?.get(item.report.runId),
          refused: refusals?.get(item.report.runId),
          lines: lines?.get(item.report.runId),
        })
      : toRelease(item.release, clock.now(), item.putOff),
  );
  await groupFailures(store, changes, functionIds);
  return changes;
}

/** Combines reports of all workers into flushes. */
export function openReports(deps: ReportsDeps) {
  const { store, clock, onWakePlanned, observers, watch } = deps;
  const refused = watch.metrics.counter({
    name: "svc_attributes_refused_total",
    help: "Runs that failed because a report gave them attributes that cannot be stored.",
  })();

  async function flush(items: readonly ReportItem[], committed: () => void): Promise<ItemOutcome<void>[]> {
    const changes = await changesOf(deps, items);
    const now = clock.now();
    let committedReports: CommittedReport[];
    try {
      committedReports = await store.flush(commitReportsFlush, { now, changes });
    } catch (error) {
      const other = await withoutRefused(items, error, named);
      if (!other) throw error;
      return flush(other, committed);
    }
    committed();
    const { outcomes, done, late, gone, wakes, waits, hasChildren, queued } = afterReports(
      changes,
      committedReports,
    );
    for (const at of wakes) onWakePlanned(at);
    for (const wait of waits) noteWait(deps, wait);
    if (hasChildren) deps.onChildren();
    observers.reported(done, now);
    if (queued.length > 0) observers.queued(queued);
    if (late.length > 0) await store.write((session) => handIn(session, late, now));
    if (gone.length > 0) {
      const why = await whyRefused(
        store,
        gone.map(({ change }) => change),
      );
      for (const [place, { at }] of gone.entries()) outcomes[at] = { error: why[place] };
    }
    return outcomes;
  }

  const queue = flushQueue<ReportItem, void>({
    name: "runs.settle",
    clock,
    watch,
    environmentOf: (item) => fenceOf(item).environmentId,
    isAwaited: (item) => "report" in item && item.report.isAwaited === true,
    keyOf: (item) => fenceOf(item).runId,
    weigh: (item) =>
      "report" in item ? 1 + sizeOf(item.report) / weightChars + item.report.steps.length / weightSteps : 1,
    flush,
    // A value the store refuses fails only its own report; locked runs of one environment fail no others.
    isOfItem,
    isStuck,
  });

  const named = openNamedReports(
    deps.names,
    (report) => queue.submit({ report }),
    () => refused.add(1),
  );

  const submitWaits = openSubmitWaits(deps, named.submit);

  return {
    submit: (report: RunReport) => (report.waits ? submitWaits(report) : named.submit(report)),
    release: (release: Released, putOff?: PutOff) => queue.submit({ release, putOff }),
    drain: queue.drain,
  };
}
