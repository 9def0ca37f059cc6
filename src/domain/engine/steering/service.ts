import type { Clock } from "../../../kit/clock.ts";
import { Fault, missing, tryAgain } from "../../../kit/fault.ts";
import { purgeSliceMax, resumeHealMs, resumeWindowMs } from "../../../kit/limits.ts";
import type { Log } from "../../../kit/log.ts";
import { stepRowId } from "../../../kit/step-id.ts";
import type { Session, Store } from "../../../store/store.ts";
import type { FunctionDefinition } from "../functions/definition.ts";
import { laneOf } from "../functions/rules.ts";
import type { Run, Step } from "../runs/run.ts";
import type { Runs } from "../runs/service.ts";
import type { StepMove } from "../runs/step-moves.ts";
import type { QueueHint } from "../runs/wakes/due.ts";
import type { ResumePlan } from "../runs/wakes/finish-resumes.ts";
import type { ControlMessage, Controls } from "./controls.ts";
import * as rows from "./rows.ts";
import * as rules from "./rules.ts";

export type { DiscardedStep } from "./rules.ts";

export interface PausedState {
  steps: Step[];
  /** Name of the step that the run stands before; empty when that cannot be told. */
  nextStepHint: string;
  pauseReason: string;
}

export interface Steering {
  /** Idempotent; `failed_precondition` for a run that ended otherwise, `aborted` when it did so meanwhile. */
  cancel(environmentId: string, runId: string, reason: string): Promise<Run>;
  pause(environmentId: string, runId: string, actorId: string): Promise<"pause_requested" | "paused">;
  pausedState(environmentId: string, runId: string): Promise<PausedState>;
  /** Only for a run that a person holds; answers the output of before. */
  inject(
    environmentId: string,
    target: { runId: string; stepId: string; output: string; reason: string },
    actorId: string,
  ): Promise<{ stepId: string; previousOutput: string }>;
  patch(
    environmentId: string,
    target: { stepId: string; output: string; reason: string },
    actorId: string,
  ): Promise<Step>;
  resume(environmentId: string, runId: string, fromStep: string | undefined, actorId: string): Promise<Run>;
  /** Part of the duty `retention`: forgets resumes whose window has passed. */
  forgetOnce(write: Store["write"]): Promise<void>;
}

export interface SteeringDeps {
  store: Store;
  clock: Clock;
  log: Log;
  controls: Controls;
  /** Promises to tell the other nodes, with the fact; what it answers is called after the commit (outbox). */
  enqueue: (session: Session, message: ControlMessage) => Promise<() => void>;
  runs: Pick<Runs, "get" | "steps" | "endHeld" | "cancelled" | "finishResumes" | "neverWakesAt">;
  /** Told after the commit that gave a step another output; a hint that may be lost. */
  onPatched?: (step: StepMove) => void;
  /** Told after the commit, likewise. */
  onResumed?: (environmentId: string, runId: string) => void;
  onMoved?: (runs: readonly { runId: string; environmentId: string }[]) => void;
  definitionOf: (environmentId: string, functionId: string, version: number) => Promise<FunctionDefinition>;
  /** Lanes that have got work, or room for it. */
  onQueued: (lanes: readonly QueueHint[]) => void;
}

export function openSteering(deps: SteeringDeps): Steering {
  const { store, clock, log, controls, runs, onQueued } = deps;

  const announcePatched = (
    environmentId: string,
    { run_id: runId, step_id: stepId }: rows.SteeredStepRow,
  ): void => deps.onPatched?.({ environmentId, runId, stepId, at: clock.now() });

  async function requireRun(
    reader: Store | Session,
    environmentId: string,
    runId: string,
  ): Promise<rows.SteeredRunRow> {
    const run = await rows.runById(reader, environmentId, runId);
    if (!run) throw missing("run", runId);
    return run;
  }

  async function findStep(
    environmentId: string,
    runId: string | undefined,
    stepId: string,
  ): Promise<rows.SteeredStepRow> {
    const steps = runId === undefined ? [] : await rows.stepsOf(store, environmentId, runId);
    const step = steps.find((one) => rules.isStep(one, stepId));
    if (!step) throw missing("step", stepId);
    return step;
  }

  /** What a person wrote instead of a step's own output; later executions of the run are computed from it. */
  async function write(
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
      if (change.isInjected && execution?.state !== "held") throw notHeld();
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
          // Null is an output too.
          had_output: seen.output !== null,
          output: JSON.parse(output),
          reason,
          actor_id: actorId,
          injected: change.isInjected,
        },
        ...(execution && { sequence: execution.history_count + 1 }),
      });
    });
  }

  /** Where a failed run counts again, by the definition it is pinned to. */
  async function laneOfRun(run: rows.SteeredRunRow): Promise<string | null> {
    if (run.status !== "failed") return null;
    const { environment_id, function_id, function_version } = run;
    const [definition, trigger] = await Promise.all([
      deps.definitionOf(environment_id, function_id, function_version),
      rows.triggerOf(store, run),
    ]);
    return trigger === undefined
      ? null
      : laneOf({ environmentId: environment_id, definition }, JSON.parse(trigger));
  }

  async function shown(environmentId: string, runId: string, stepId: string): Promise<Step> {
    const step = (await runs.steps(environmentId, runId)).find((one) => one.stepId === stepId);
    if (!step) throw missing("step", stepId);
    return step;
  }

  return {
    async cancel(environmentId, runId, reason) {
      const before = await requireRun(store, environmentId, runId);
      if (before.status === "cancelled") return runs.get(environmentId, runId);
      if (before.status !== "active") throw rules.notCancellable(before.status);
      const ended = await store.write(async (session) => {
        const execution = await rows.lockExecution(session, environmentId, runId);
        if (!execution) {
          const now = await requireRun(session, environmentId, runId);
          if (now.status === "cancelled") return undefined;
          throw rules.endedOtherwise(now.status);
        }
        await runs.endHeld(session, [{ runId, status: "cancelled", error: null, cause: "user" }]);
        const message: ControlMessage = {
          messageId: `cancel-${runId}`,
          kind: "cancel",
          environmentId,
          runId,
          workerId: execution.worker_id,
          executionSeq: execution.execution_seq,
          reason: rules.cutReason(reason),
        };
        return { execution, message, keep: await deps.enqueue(session, message) };
      });
      if (ended) {
        const { execution, message } = ended;
        runs.cancelled([runId]);
        if (execution.state === "leased" && execution.lane_id !== null) {
          const { function_id: functionId, lane_id: laneId } = execution;
          onQueued([{ environmentId, functionId, laneId, freed: true, queued: false }]);
        }
        log.info("run.cancelled", { runId, environmentId, reason: message.reason });
        controls.notifyHere(message);
        ended.keep();
      }
      return runs.get(environmentId, runId);
    },

    async pause(environmentId, runId, actorId) {
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
          throw tryAgain("aborted", "the run is just being resumed, try again");
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
      if (paused === "paused") deps.onMoved?.([{ runId, environmentId }]);
      return paused;
    },

    async pausedState(environmentId, runId) {
      const run = await runs.get(environmentId, runId);
      if (run.pauseReason !== "injection") throw notHeld();
      const steps = await runs.steps(environmentId, runId);
      const next = steps.find((step) => step.status === "sleeping" || step.status === "waiting");
      return { steps, nextStepHint: next?.name ?? "", pauseReason: run.pauseReason };
    },

    async inject(environmentId, { runId, stepId, output, reason }, actorId) {
      const run = await runs.get(environmentId, runId);
      if (run.pauseReason !== "injection") throw notHeld();
      const step = await findStep(environmentId, runId, stepId);
      if (step.status !== "completed")
        throw new Fault("failed_precondition", `the step is ${step.status}, not completed`);
      await write(environmentId, step, { output, reason, actorId, isInjected: true });
      announcePatched(environmentId, step);
      return { stepId: stepRowId(runId, step.step_id), previousOutput: step.output ?? "null" };
    },

    async patch(environmentId, { stepId, output, reason }, actorId) {
      const step = await findStep(environmentId, rules.runOfStep(stepId), stepId);
      if (step.status !== "completed" && step.status !== "failed")
        throw new Fault("failed_precondition", `the step is ${step.status}, neither completed nor failed`);
      await write(environmentId, step, { output, reason, actorId, isInjected: false });
      announcePatched(environmentId, step);
      return shown(environmentId, step.run_id, step.step_id);
    },

    async resume(environmentId, runId, fromStep, actorId) {
      const laneId = await laneOfRun(await requireRun(store, environmentId, runId));
      const at = clock.now();
      const begun = await store.write(async (session) => {
        const execution = await rows.lockExecution(session, environmentId, runId);
        const run = await rows.lockRun(session, environmentId, runId);
        if (!run) throw missing("run", runId);
        const last = await rows.resumedAt(session, runId);
        if (last !== undefined && at - last < resumeWindowMs) throw rules.resumedAlready();
        const pausedStates = ["held", "sleeping", "waiting", "invoking"];
        const isPaused = execution !== undefined && pausedStates.includes(execution.state);
        if (!isPaused && run.status !== "failed")
          throw new Fault("failed_precondition", "only a paused or failed run can be resumed");
        const discarded =
          fromStep === undefined ? undefined : await stepsFrom(session, environmentId, runId, fromStep);
        const was = execution?.state === "held" ? execution.held_from : execution?.state;
        const goesOn = discarded ? null : rules.goesOn(execution);
        const plan: ResumePlan = {
          from: execution?.state ?? "failed",
          fromSequence: discarded?.[0]?.sequence ?? null,
          goesOn,
          sleptStepId: was === "sleeping" && !goesOn ? (execution?.waiting_step_id ?? null) : null,
          nextAttempt: was === "retrying",
        };
        if (execution) await rows.beginResume(session, runId, at + resumeHealMs);
        else {
          const span = run.timeout_at === null ? null : run.timeout_at - run.created_at;
          await rows.revive(session, run, {
            at: at + resumeHealMs,
            timeoutAt: span === null ? null : Math.max(run.timeout_at!, at + span),
            historyCount: (await rows.lastSequence(session, runId)) + 1,
            laneId,
          });
        }
        await rows.openWindow(session, {
          runId,
          environmentId,
          at,
          by: actorId,
          plan: JSON.stringify(plan),
        });
        await rows.note(session, {
          runId,
          environmentId,
          type: "run.resumed",
          at,
          detail: {
            from: plan.from,
            from_step: fromStep ?? null,
            actor_id: actorId,
            ...(discarded && { discarded: rules.recordOf(discarded) }),
          },
          ...(execution && { sequence: execution.history_count + 1 }),
        });
        return { execution, run };
      });
      try {
        await controls.publish({
          messageId: `resume-${runId}`,
          kind: "resume",
          environmentId,
          runId,
          workerId: null,
          executionSeq: begun.execution?.execution_seq ?? begun.run.execution_seq,
          reason: "",
        });
      } catch (cause) {
        await undo(environmentId, runId, begun);
        throw new Fault("internal", "the resume could not be published, the run is as it was", { cause });
      }
      const lanes = await store.write(async (session) => {
        await rows.lockExecution(session, environmentId, runId);
        return runs.finishResumes(session, [runId]);
      });
      deps.onResumed?.(environmentId, runId);
      if (lanes.length === 0) deps.onMoved?.([{ runId, environmentId }]);
      if (lanes.length > 0) onQueued(lanes);
      return runs.get(environmentId, runId);
    },

    async forgetOnce(write) {
      const before = clock.now() - resumeWindowMs;
      while (
        (await write((session) => rows.forgetWindows(session, before, purgeSliceMax))) === purgeSliceMax
      );
    },
  };

  /** Unless the wake loop has finished it meanwhile. */
  async function undo(
    environmentId: string,
    runId: string,
    { execution, run }: { execution: rows.ExecutionRow | undefined; run: rows.SteeredRunRow },
  ): Promise<void> {
    await store.write(async (session) => {
      const now = await rows.lockExecution(session, environmentId, runId);
      if (now?.state !== "resuming") return;
      if (execution) await rows.undoResume(session, execution, clock.now());
      else await rows.unrevive(session, run);
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
}

const notHeld = (): Fault =>
  new Fault("failed_precondition", "the run is not paused for injection: pause it first");

/** The step, named by the SDK's id, the row's id or, where one step bears it, the name, and all behind it; never empty. */
async function stepsFrom(
  session: Session,
  environmentId: string,
  runId: string,
  fromStep: string,
): Promise<rows.SteeredStepRow[]> {
  const steps = await rows.stepsOf(session, environmentId, runId);
  const first =
    steps.find((one) => rules.isStep(one, fromStep)) ?? steps.find((one) => one.name === fromStep);
  if (!first) throw missing("step", fromStep);
  return steps.filter((one) => one.sequence >= first.sequence);
}
