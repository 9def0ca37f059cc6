import type { Clock } from "../../../kit/clock.ts";
import { Fault, missing } from "../../../kit/fault.ts";
import { purgeSliceMax } from "../../../kit/limits.ts";
import { runOfStep, stepRowId } from "../../../kit/step-id.ts";
import type { Basics, Session, Store } from "../../../store/store.ts";
import type { QueueHint, Run, Step } from "../runs/run.ts";
import type { Runs } from "../runs/service.ts";
import type { StepMove } from "../runs/step-moves.ts";
import type { ControlMessage, Controls } from "./controls.ts";
import { findStep, requireRun } from "./find.ts";
import { previewResume, type ResumeDeps, resumeRun, resumeWindowMs } from "./resume.ts";
import * as rows from "./rows.ts";
import * as rules from "./rules.ts";
import { notHeld } from "./rules.ts";

interface StepOutputsDeps {
  store: Store;
  clock: Pick<Clock, "now">;
  runs: Pick<Runs, "get" | "steps">;
  /** Called after the commit that gave a step another output; a hint that may be lost. */
  onPatched?: (step: StepMove) => void;
}

/** Replaces the output of a completed step of a held run. */
async function injectOutput(
  deps: StepOutputsDeps,
  environmentId: string,
  { runId, stepId, output, reason }: { runId: string; stepId: string; output: string; reason: string },
  actorId: string,
): Promise<{ stepId: string; previousOutput: string }> {
  const run = await deps.runs.get(environmentId, runId);
  if (run.pauseReason !== "injection") throw rules.notHeld();
  const step = await findStep(deps.store, environmentId, runId, stepId);
  if (step.status !== "completed")
    throw new Fault("failed_precondition", `the step is ${step.status}, not completed`);
  await replaceOutput(deps, environmentId, step, { output, reason, actorId, isInjected: true });
  return { stepId: stepRowId(runId, step.step_id), previousOutput: step.output ?? "null" };
}

/** Replaces the output of a completed or failed step, whatever the state of its run. */
async function patchOutput(
  deps: StepOutputsDeps,
  environmentId: string,
  { stepId, output, reason }: { stepId: string; output: string; reason: string },
  actorId: string,
): Promise<Step> {
  const step = await findStep(deps.store, environmentId, runOfStep(stepId), stepId);
  if (step.redacted_at !== null) throw rules.isRedacted("step");
  if (step.status !== "completed" && step.status !== "failed")
    throw new Fault("failed_precondition", `the step is ${step.status}, neither completed nor failed`);
  await replaceOutput(deps, environmentId, step, { output, reason, actorId, isInjected: false });
  const [patched] = await deps.runs.steps(environmentId, step.run_id, { stepId: step.step_id });
  if (!patched) throw missing("step", step.step_id);
  return patched;
}

/** Later executions of the run compute with the output that a person wrote. */
async function replaceOutput(
  { store, clock, onPatched }: StepOutputsDeps,
  environmentId: string,
  seen: rows.SteeredStepRow,
  change: { output: string; reason: string; actorId: string; isInjected: boolean },
): Promise<void> {
  const at = clock.now();
  const { output, reason, actorId } = change;
  await store.write(async (session) => {
    const execution = await rows.lockExecution(session, environmentId, seen.run_id);
    if (!execution) {
      await rows.lockRun(session, environmentId, seen.run_id);
      await rows.touchRun(session, seen.run_id, at);
    }
    if (change.isInjected && execution?.state !== "held") throw rules.notHeld();
    if ((await rows.patchStep(session, seen, { output, at, by: actorId })) === 0) throw rules.contended();
    if (execution) await rows.countNote(session, seen.run_id);
    await rows.note(session, {
      runId: seen.run_id,
      environmentId,
      type: "step.patched",
      at,
      detail: {
        step_id: seen.step_id,
        previous_output: seen.output === null ? null : JSON.parse(seen.output),
        // Tells an output that was the JSON value null from no output.
        had_output: seen.output !== null,
        output: JSON.parse(output),
        reason,
        actor_id: actorId,
        injected: change.isInjected,
      },
      ...(execution && { sequence: execution.history_count + 1 }),
    });
  });
  onPatched?.({ environmentId, runId: seen.run_id, stepId: seen.step_id, at: clock.now() });
}

interface CancelDeps extends Basics<"store" | "log"> {
  controls: Pick<Controls, "notifyHere">;
  /** Writes the message to the outbox in this transaction; call what it answers after the commit. */
  enqueue: (session: Session, message: ControlMessage) => Promise<() => void>;
  runs: Pick<Runs, "get" | "endHeld" | "cancelled">;
  /** Called after the commit with queues that got work, or room under their limit. */
  onQueued: (lanes: readonly QueueHint[]) => void;
}

interface Cancelled {
  execution: rows.ExecutionRow;
  message: ControlMessage;
  /** Queues of the run that is undone first; undefined when it ended. */
  undoing: readonly QueueHint[] | undefined;
  /** Tells the outbox that the message is committed. */
  committed: () => void;
}

async function cancelRun(
  deps: CancelDeps,
  environmentId: string,
  runId: string,
  { reason, actorId }: { reason: string; actorId: string | undefined },
): Promise<Run> {
  const { store, runs } = deps;
  const before = await requireRun(store, environmentId, runId);
  if (before.status === "cancelled") return runs.get(environmentId, runId);
  if (before.status !== "active") throw rules.notCancellable(before.status);
  const cancelled = await store.write(async (session): Promise<Cancelled | undefined> => {
    const execution = await rows.lockExecution(session, environmentId, runId);
    if (!execution) {
      const now = await requireRun(session, environmentId, runId);
      if (now.status === "cancelled") return undefined;
      throw rules.endedOtherwise(now.status);
    }
    // Its end is decided: what undoes it goes on.
    if (execution.ending !== null) return undefined;
    const cut = rules.cutReason(reason);
    const end = { runId, status: "cancelled" as const, error: null, cause: "user" };
    const undoing = await runs.endHeld(session, [
      { ...end, ...(cut !== "" && { reason: cut }), ...(actorId !== undefined && { actorId }) },
    ]);
    const message: ControlMessage = {
      messageId: `cancel-${runId}`,
      kind: "cancel",
      environmentId,
      runId,
      workerId: execution.worker_id,
      executionSeq: execution.execution_seq,
      reason: cut,
    };
    return {
      execution,
      message,
      undoing: undoing.runIds.has(runId) ? undoing.lanes : undefined,
      committed: await deps.enqueue(session, message),
    };
  });
  if (cancelled) announce(deps, cancelled);
  return runs.get(environmentId, runId);
}

function announce(deps: CancelDeps, { execution, message, undoing, committed }: Cancelled): void {
  const { environmentId, runId } = message;
  if (undoing) deps.onQueued(undoing);
  else deps.runs.cancelled(environmentId, [runId]);
  if (!undoing && execution.state === "leased" && execution.lane_id !== null) {
    const { function_id: functionId, lane_id: laneId } = execution;
    deps.onQueued([{ environmentId, functionId, laneId, freed: true, queued: false }]);
  }
  deps.log.info("run.cancelled", { runId, environmentId, reason: message.reason });
  deps.controls.notifyHere(message);
  committed();
}

interface PauseDeps {
  store: Store;
  clock: Pick<Clock, "now">;
  runs: Pick<Runs, "neverWakesAt">;
  /** Called after the commit with runs that changed their state; a hint that may be lost. */
  onMoved?: (runs: readonly { runId: string; environmentId: string }[]) => void;
}

/** A run that no worker holds is held at once; a leased one when its worker reports next. */
async function pauseRun(
  { store, clock, runs, onMoved }: PauseDeps,
  environmentId: string,
  runId: string,
  actorId: string,
): Promise<"pause_requested" | "paused"> {
  const run = await requireRun(store, environmentId, runId);
  const paused = await store.write(async (session) => {
    const execution = await rows.lockExecution(session, environmentId, runId);
    if (!execution) {
      const { status } = await requireRun(session, environmentId, run.id);
      throw new Fault("failed_precondition", `the run is ${status} and cannot be paused`);
    }
    const at = clock.now();
    if (execution.state === "held") return "paused";
    if (execution.state === "resuming")
      throw new Fault("aborted", "the run is being resumed, try again", { headers: { "Retry-After": "1" } });
    if (execution.state === "leased") {
      await rows.requestPause(session, runId, at, actorId);
      return "pause_requested";
    }
    await rows.holdNow(session, execution, { at, by: actorId, never: runs.neverWakesAt });
    await rows.note(session, {
      runId,
      environmentId,
      type: "run.paused",
      at,
      detail: { from: execution.state, actor_id: actorId },
      sequence: execution.history_count + 1,
    });
    return "paused";
  });
  if (paused === "paused") onMoved?.([{ runId, environmentId }]);
  return paused;
}

export type { DiscardedStep } from "./rules.ts";

export interface PausedState {
  steps: Step[];
  /** Name of the step that the run sleeps or waits at; empty when it does neither. */
  nextStepHint: string;
  pauseReason: string;
}

export type Steering = ReturnType<typeof openSteering>;

export type SteeringDeps = CancelDeps & PauseDeps & StepOutputsDeps & ResumeDeps & { controls: Controls };

export function openSteering(deps: SteeringDeps) {
  const { clock, runs } = deps;
  return {
    /**
     * Idempotent. `failed_precondition` when the run ended in another status before the call, `aborted`
     * during it.
     */
    cancel: (environmentId: string, runId: string, reason: string, actorId?: string) =>
      cancelRun(deps, environmentId, runId, { reason, actorId }),
    pause: (environmentId: string, runId: string, actorId: string) =>
      pauseRun(deps, environmentId, runId, actorId),

    async pausedState(environmentId: string, runId: string): Promise<PausedState> {
      const run = await runs.get(environmentId, runId);
      if (run.pauseReason !== "injection") throw notHeld();
      const steps = await runs.steps(environmentId, runId);
      const next = steps.find((step) => step.status === "sleeping" || step.status === "waiting");
      return { steps, nextStepHint: next?.name ?? "", pauseReason: run.pauseReason };
    },

    /** Replaces a step's output in a held run; answers the previous output. */
    inject: (
      environmentId: string,
      target: { runId: string; stepId: string; output: string; reason: string },
      actorId: string,
    ) => injectOutput(deps, environmentId, target, actorId),
    patch: (
      environmentId: string,
      target: { stepId: string; output: string; reason: string },
      actorId: string,
    ) => patchOutput(deps, environmentId, target, actorId),
    resume: (
      environmentId: string,
      target: {
        runId: string;
        fromStep: string | undefined;
        /**
         * True ends the sleep that the run is in, or was held in; false leaves it alone; undefined ends it
         * unless it was held.
         */
        skipSleep: boolean | undefined;
        /** The sleep to end, of several. */
        stepId?: string | undefined;
      },
      actorId: string,
    ) => resumeRun(deps, { ...target, environmentId, actorId }),
    /** What a resume would do with the steps that are stored, in order. */
    previewResume: (environmentId: string, target: { runId: string; fromStep: string | undefined }) =>
      previewResume(deps, environmentId, target),

    /**
     * The tick of loop `runs.resumes`, part of the duty `retention`: deletes resumes whose window has passed.
     */
    async forgetOnce(write: Store["write"]) {
      const before = clock.now() - resumeWindowMs;
      while (
        (await write((session) => rows.forgetWindows(session, before, purgeSliceMax))) === purgeSliceMax
      );
    },
  };
}
