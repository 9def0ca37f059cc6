import type { Clock } from "../../../kit/clock.ts";
import { Fault, missing } from "../../../kit/fault.ts";
import { stepRowId } from "../../../kit/step-id.ts";
import type { Session, Store } from "../../../store/store.ts";
import type { FunctionDefinition } from "../functions/definition.ts";
import { laneOf } from "../functions/rules.ts";
import type { QueueHint, Run } from "../runs/run.ts";
import type { Runs } from "../runs/service.ts";
import type { Controls } from "./controls.ts";
import { requireRun, stepsAtResume } from "./find.ts";
import * as rows from "./rows.ts";
import * as rules from "./rules.ts";

/** A second resume of a run is refused for this long. */
export const resumeWindowMs = 2 * 60 * 1000;
/** The wake loop finishes a resume that its node left unfinished for this long. */
const resumeHealMs = 10_000;

export interface ResumeDeps {
  store: Store;
  clock: Pick<Clock, "now">;
  controls: Pick<Controls, "publish">;
  runs: Pick<Runs, "get" | "finishResumes" | "compareAgain">;
  definitionOf: (environmentId: string, functionId: string, version: number) => Promise<FunctionDefinition>;
  /** Counts a run that was over and goes on. */
  noteRevived: (session: Session, environmentId: string) => Promise<void>;
  /** Called after the commit; a hint that may be lost. */
  onResumed?: (environmentId: string, runId: string) => void;
  onMoved?: (runs: readonly { runId: string; environmentId: string }[]) => void;
  /** Called after the commit with queues that got work. */
  onQueued: (lanes: readonly QueueHint[]) => void;
}

interface ResumeTarget {
  environmentId: string;
  runId: string;
  fromStep: string | undefined;
  skipSleep: boolean | undefined;
  stepId?: string | undefined;
  actorId: string;
}

interface BegunResume {
  /** Undefined for a run that had failed. */
  execution: rows.ExecutionRow | undefined;
  run: rows.SteeredRunRow;
}

/**
 * Three steps: `begin` commits state `resuming` and the plan, the message is published, `finishResumes`
 * commits the plan. When the message cannot be published, `undo` restores the run; after a crash in between
 * the wake loop finishes the resume.
 */
export async function resumeRun(deps: ResumeDeps, target: ResumeTarget): Promise<Run> {
  const { store, runs } = deps;
  const { environmentId, runId } = target;
  const laneId = await laneOfFailed(deps, await requireRun(store, environmentId, runId));
  const at = deps.clock.now();
  const begun = await store.write(async (session) => {
    const some = await begin(session, target, { at, laneId });
    if (!some.execution) await deps.noteRevived(session, environmentId);
    return some;
  });
  try {
    await deps.controls.publish({
      messageId: `resume-${runId}`,
      kind: "resume",
      environmentId,
      runId,
      workerId: null,
      executionSeq: begun.execution?.execution_seq ?? begun.run.execution_seq,
      reason: "",
    });
  } catch (cause) {
    await undo(deps, target, begun);
    throw new Fault("internal", "the resume could not be published, the run is unchanged", { cause });
  }
  const lanes = await store.write(async (session) => {
    await rows.lockExecution(session, environmentId, runId);
    return runs.finishResumes(session, [runId]);
  });
  deps.onResumed?.(environmentId, runId);
  if (lanes.length === 0) deps.onMoved?.([{ runId, environmentId }]);
  if (lanes.length > 0) deps.onQueued(lanes);
  return runs.get(environmentId, runId);
}

/** Refused as the resume would be. */
export async function previewResume(
  { store, clock }: Pick<ResumeDeps, "store" | "clock">,
  environmentId: string,
  { runId, fromStep }: { runId: string; fromStep: string | undefined },
) {
  const run = await requireRun(store, environmentId, runId);
  const execution = await rows.executionOf(store, environmentId, runId);
  rules.requireResumable(run, execution, { fromStep, skipSleep: undefined });
  const last = await rows.resumedAt(store, runId);
  if (last !== undefined && clock.now() - last < resumeWindowMs) throw rules.resumedAlready();
  const steps = await stepsAtResume(store, run, { fromStep, isOver: execution === undefined });
  const [isAgain, isLost, isNotUndone, isBehind] = [
    ...[steps.again, steps.patchesLost, steps.notUndone, steps.keptBehind],
  ].map((list) => new Set(list));
  return steps.own.map((step) => ({
    ...{ id: stepRowId(runId, step.step_id), name: step.name, status: step.status },
    // One that failed is tried again in any case.
    ...{ runsAgain: isAgain!.has(step) || step.status === "failed", patchLost: isLost!.has(step) },
    ...{ notUndone: isNotUndone!.has(step), builtOnAgain: isBehind!.has(step) },
  }));
}

/**
 * The concurrency queue of a failed run, by the definition it is pinned to; null for other runs: they kept
 * theirs.
 */
async function laneOfFailed(deps: ResumeDeps, run: rows.SteeredRunRow): Promise<string | null> {
  if (run.status !== "failed") return null;
  const { environment_id, function_id, function_version } = run;
  const [definition, trigger] = await Promise.all([
    deps.definitionOf(environment_id, function_id, function_version),
    rows.triggerOf(deps.store, run),
  ]);
  return trigger === undefined
    ? null
    : laneOf({ environmentId: environment_id, definition }, JSON.parse(trigger));
}

async function begin(
  session: Session,
  { environmentId, runId, fromStep, skipSleep, stepId, actorId }: ResumeTarget,
  { at, laneId }: { at: number; laneId: string | null },
): Promise<BegunResume> {
  const execution = await rows.lockExecution(session, environmentId, runId);
  const run = await rows.lockRun(session, environmentId, runId);
  if (!run) throw missing("run", runId);
  const last = await rows.resumedAt(session, runId);
  if (last !== undefined && at - last < resumeWindowMs) throw rules.resumedAlready();
  rules.requireResumable(run, execution, { fromStep, skipSleep, stepId });
  const sleep =
    execution && rules.endsOneSleep(execution, { skipSleep, stepId })
      ? await rows.firstSleep(session, runId, stepId)
      : undefined;
  if (stepId !== undefined && !sleep) throw rules.sleepsNot(stepId);
  const isOver = execution === undefined;
  // Steps may be large, and of a run that goes on where it was held all stay.
  const steps =
    isOver || fromStep !== undefined
      ? await stepsAtResume(session, run, { fromStep, isOver })
      : rules.stepsAtResume([], { wasUndone: false, places: new Map() });
  const discarded = [...steps.again, ...steps.forgotten].sort((one, other) => one.sequence - other.sequence);
  const plan = {
    ...rules.planOfResume(execution, steps, { skipsSleep: skipSleep === true, sleep }),
    exhaustedStepId: execution ? null : rules.exhaustedStepOf(run),
  };
  if (execution) await rows.beginResume(session, runId, at + resumeHealMs);
  else
    await rows.revive(session, run, {
      at,
      healAt: at + resumeHealMs,
      timeoutAt: rules.timeoutOfRevived(run, at),
      historyCount: (await rows.lastSequence(session, runId)) + 1,
      laneId,
      // Of what was cut short nothing is known but how much it was.
      undoCount: Math.max(steps.undoCount, run.undo_failed ?? 0),
    });
  await rows.openWindow(session, { runId, environmentId, at, by: actorId, plan: JSON.stringify(plan) });
  await rows.note(session, {
    runId,
    environmentId,
    type: "run.resumed",
    at,
    detail: {
      from: plan.from,
      from_step: fromStep ?? null,
      actor_id: actorId,
      ...(discarded.length > 0 && { discarded: rules.recordOf(discarded) }),
    },
    ...(execution && { sequence: execution.history_count + 1 }),
  });
  return { execution, run };
}

/** Restores the run as it was before `begin`, unless the wake loop has finished the resume meanwhile. */
async function undo(
  { store, clock, runs }: ResumeDeps,
  { environmentId, runId }: ResumeTarget,
  { execution, run }: BegunResume,
): Promise<void> {
  await store.write(async (session) => {
    const now = await rows.lockExecution(session, environmentId, runId);
    if (now?.state !== "resuming") return;
    if (execution) await rows.undoResume(session, execution);
    else await rows.unrevive(session, run);
    if (execution?.state === "waiting" || execution?.gather_ms != null)
      await runs.compareAgain(session, runId);
    await rows.dropWindow(session, runId);
    await rows.note(session, {
      runId,
      environmentId,
      type: "run.resume_undone",
      at: clock.now(),
      detail: {},
      sequence: now.history_count + 1,
    });
    if (execution) await rows.countNote(session, runId);
  });
}
