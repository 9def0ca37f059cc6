import type { Clock } from "../../../kit/clock.ts";
import { Fault, missing } from "../../../kit/fault.ts";
import { runOfStep, stepRowId } from "../../../kit/step-id.ts";
import type { Store } from "../../../store/store.ts";
import type { Step } from "../runs/run.ts";
import type { Runs } from "../runs/service.ts";
import type { StepMove } from "../runs/step-moves.ts";
import { findStep } from "./find.ts";
import * as rows from "./rows.ts";
import * as rules from "./rules.ts";

export interface StepOutputsDeps {
  store: Store;
  clock: Pick<Clock, "now">;
  runs: Pick<Runs, "get" | "steps">;
  /** Called after the commit that gave a step another output; a hint that may be lost. */
  onPatched?: (step: StepMove) => void;
}

/** Replaces the output of a completed step of a held run. */
export async function injectOutput(
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
export async function patchOutput(
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
