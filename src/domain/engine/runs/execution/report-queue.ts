import type { Clock } from "../../../../kit/clock.ts";
import type { ItemOutcome } from "../../../../kit/combine.ts";
import { flushQueue, weightChars } from "../../../../kit/flush-queue.ts";
import type { Watch } from "../../../../kit/watch.ts";
import { isMarked, isOfItem, isStuck } from "../../../../store/store.ts";
import { attributesMax } from "../../attributes/rules.ts";
import type { AttributeNames } from "../attributes/attribute-names.ts";
import { attributesFull, attributeUnnamed } from "../attributes/attribute-rows.ts";
import { type NamedReports, openNamedReports } from "../attributes/named-reports.ts";
import { type LogsDeps, linesToStore } from "../logs/lines-to-store.ts";
import type { Fence, PutOff, RunError } from "../run.ts";
import { afterReports } from "./after-reports.ts";
import { type CommittedReport, commitReportsFlush } from "./commit-reports.ts";
import type { ExecutionChange } from "./execution-change.ts";
import { handIn } from "./hand-in.ts";
import { type RunReport, toExecutionChange, toRelease, withoutAttributes } from "./report.ts";
import { decideRetries, groupFailures, type RetryDeps, refusedWaits, triggersFor } from "./report-reads.ts";
import { noteWait, openSubmitWaits, type SubmitWaitsDeps } from "./submit-waits.ts";
import { whyRefused } from "./why-refused.ts";

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
