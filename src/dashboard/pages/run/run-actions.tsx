import { useState } from "preact/hooks";
import type { PreviewedStep } from "../../../gen/svc/v1/svc_pb.ts";
import { CallError, rest, rpc } from "../../lib/api.ts";
import { bytes, plain, shownBytesMax } from "../../lib/format.ts";
import { useLoaded } from "../../lib/hooks.ts";
import type { InJson } from "../../lib/messages.ts";
import { go, hrefOf } from "../../lib/router.ts";
import {
  getOutputsAt,
  getRun,
  getSteps,
  getTimeline,
  isOver,
  type Moment,
  type RunInFull,
  type RunView,
  type StepView,
} from "../../lib/runs.ts";
import { may } from "../../lib/session.ts";
import { attempt, copy } from "../../lib/toasts.ts";
import { Button } from "../../ui/basics.tsx";
import { type ChangeEnds, Field, FormDialog, Select, useFields } from "../../ui/dialog.tsx";
import type { CausalityData } from "./causes.tsx";
import { sdkTestOf } from "./sdk-test.ts";

/** A run with all that its page shows. */
export interface Whole extends RunInFull {
  steps: StepView[];
  moments: Moment[];
}

export async function readWhole(id: string, signal: AbortSignal): Promise<Whole> {
  const [run, steps, moments] = await Promise.all([
    getRun(id, signal, shownBytesMax),
    getSteps(id, signal, { maxValueBytes: shownBytesMax }),
    // A function without recording has no timeline; the run is shown without it.
    getTimeline(id, signal).catch((error) => {
      if (signal.aborted || !(error instanceof CallError)) throw error;
      return [];
    }),
  ]);
  return { ...run, steps, moments };
}

/** The step with its values in full, as it is now or was then. */
export async function wholeStep(
  { runId, step, at }: { runId: string; step: StepView; at: number | undefined },
  signal?: AbortSignal,
): Promise<StepView> {
  const { stepId } = step;
  if (at !== undefined) return { ...step, ...(await getOutputsAt({ runId, stepId, at }, signal)) };
  const [found] = await getSteps(runId, signal, { stepId });
  return found ?? step;
}

function CancelDialog({ run, ...ends }: ChangeEnds & { run: RunView }) {
  const [{ reason }, field] = useFields({ reason: "" });
  const [isTree, setTree] = useState(false);
  const submit = async () => {
    if (isTree) {
      const { cancelled = [] } = await rpc("CausalityService", "CancelSubtree", {
        ...{ runId: run.id, reason },
      });
      return `${cancelled.length} ${cancelled.length === 1 ? "run" : "runs"} cancelled`;
    }
    await rpc("SvcService", "CancelRun", { id: run.id, reason });
    return "Run cancelled";
  };
  return (
    <FormDialog title="Cancel this run?" submit="Cancel the run" isDangerous onSubmit={submit} {...ends}>
      <p>What it is doing now is given up. Its history stays.</p>
      <Field label="Reason" {...field("reason")} hint="Shown in the history." />
      <label class="check">
        <input type="checkbox" checked={isTree} onChange={() => setTree(!isTree)} />
        Cancel the runs that it led to as well
      </label>
    </FormDialog>
  );
}

type Flag = "runsAgain" | "patchLost" | "notUndone" | "builtOnAgain";

/** What is not plain from the choice alone. */
function Preview({ steps }: { steps: readonly InJson<PreviewedStep>[] }) {
  const names = (flag: Flag) => steps.filter((step) => step[flag]).map(({ name = "" }) => plain(name));
  const lines = [
    ["Run again", names("runsAgain")],
    ["Lose the output that a person set, because they were undone later", names("patchLost")],
    ["Stay, though their compensation failed", names("notUndone")],
    ["Stay, with what they made of a step that runs again", names("builtOnAgain")],
  ] as const;
  return (
    <ul class="hint">
      {lines.map(([title, of]) => of.length > 0 && <li key={title}>{`${title}: ${of.join(", ")}`}</li>)}
    </ul>
  );
}

export function ResumeDialog(
  props: ChangeEnds & { run: RunView; steps: readonly StepView[]; from?: string },
) {
  const { run, steps, from: first = "", ...ends } = props;
  const [from, setFrom] = useState(first);
  const { value: preview } = useLoaded(async () => {
    const asked = { runId: run.id, ...(from && { fromStep: from }) };
    return (await rpc("SvcService", "PreviewResume", asked)).steps ?? [];
  }, [run.id, from]);
  const submit = async () => {
    await rpc("SvcService", "ResumeRun", { runId: run.id, ...(from && { fromStep: from }) });
    return "Run resumed";
  };
  return (
    <FormDialog title="Resume this run" submit="Resume" onSubmit={submit} {...ends}>
      <div class="field">
        <label for="resume-from">From</label>
        <Select
          id="resume-from"
          value={from}
          options={[["", "Where it stopped"], ...steps.map(({ stepId, name }) => [stepId, name] as const)]}
          onInput={setFrom}
        />
        <p class="hint">The chosen step and all later ones are executed again. Earlier results are kept.</p>
      </div>
      {preview && <Preview steps={preview} />}
    </FormDialog>
  );
}

const quoted = (text: string): string => `'${text.replaceAll("'", "'\\''")}'`;

/** A call as a shell takes it; the key stays a variable. */
export function curlOf(method: string, body: object, environment: string): string {
  return [
    `curl -sS ${quoted(`${location.origin}/svc.v1.${method}`)}`,
    `  -H "Authorization: Bearer $SVC_API_KEY"`,
    `  -H ${quoted(`X-Svc-Environment: ${environment}`)}`,
    `  -H 'Content-Type: application/json'`,
    `  -d ${quoted(JSON.stringify(body))}`,
  ].join(" \\\n");
}

/** Values of a test that somebody reads. */
const testBytesMax = 4 * 1_024 * 1_024;

/** The function of each child, by the step that started it. */
async function childrenOf(runId: string, steps: readonly StepView[]): Promise<Map<string, string>> {
  const found = new Map<string, string>();
  for (const { type, stepId } of steps) {
    if (type !== "invoke_function") continue;
    const query = { kind: "step", id: `${runId}/${stepId}`, direction: "effects", depth: "1" };
    const { things } = await rest<CausalityData>(`/api/v1/causality?${new URLSearchParams(query)}`);
    const child = things.find(({ kind, depth }) => kind === "run" && depth > 0);
    if (child) found.set(stepId, child.name);
  }
  return found;
}

/** The run as a test of its function, with all values in full. */
async function readSdkTest(shown: Whole): Promise<string> {
  const { id } = shown.run;
  const cut = [shown.cuts, ...shown.steps.map(({ cuts }) => cuts)].flatMap((cuts) => Object.values(cuts));
  const size = cut.reduce((sum, one) => sum + one.bytes, 0);
  if (size > testBytesMax) throw new Error(`The values of the run are too large for a test: ${bytes(size)}`);
  const [whole, steps] = await Promise.all([getRun(id), getSteps(id)]);
  return sdkTestOf(whole, steps, await childrenOf(id, steps));
}

/** With a reason, which the audit keeps. */
function EraseDialog({ run, how, ...ends }: ChangeEnds & { run: RunView; how: "delete" | "redact" }) {
  const [{ reason }, field] = useFields({ reason: "" });
  const [isEventToo, setEventToo] = useState(false);
  const isDelete = how === "delete";
  const submit = async () => {
    if (isDelete) {
      await rpc("SvcService", "DeleteRun", { runId: run.id, reason });
      go(hrefOf(["runs"]));
      return "Run deleted";
    }
    const { unredactedEventIds: left = [] } = await rpc("SvcService", "RedactRun", { runId: run.id, reason });
    if (isEventToo) for (const eventId of left) await rpc("SvcService", "RedactEvent", { eventId, reason });
    return isEventToo || left.length === 0 ? "Run and event redacted" : "Run redacted; its event is not";
  };
  return (
    <FormDialog
      title={isDelete ? "Delete this run?" : "Redact this run?"}
      submit={isDelete ? "Delete the run" : "Redact the run"}
      isDangerous
      onSubmit={submit}
      {...ends}
    >
      <p>
        {isDelete
          ? "Its steps, history, logs and attributes go with it, for good. Its event stays."
          : "What it was given, made and wrote is overwritten, for good. Ids, names and times stay."}
      </p>
      <Field label="Reason" {...field("reason")} hint="Kept in the audit." />
      {!isDelete && may("events:redact") && (
        <label class="check">
          <input type="checkbox" checked={isEventToo} onChange={() => setEventToo(!isEventToo)} />
          Redact the event that started it as well
        </label>
      )}
    </FormDialog>
  );
}

/** What can be done with the run, by its state and the viewer's roles. */
export function RunActions(props: { whole: Whole; environment: string; onDone: () => void }) {
  const { whole, environment, onDone } = props;
  const { run, steps } = whole;
  const [asked, setAsked] = useState<"cancel" | "resume" | "delete" | "redact">();
  const ends = { onDone, onClose: () => setAsked(undefined) };
  const over = isOver(run.status);
  const isPaused = run.status === "paused";
  const isRedacted = run.redactedAt !== undefined;
  const isGone = isPaused && run.pauseReason === "deployment_gone";
  const canResume = (run.status === "failed" && !isRedacted) || (isPaused && !isGone);
  const canPause = !over && !(isPaused && run.pauseReason === "injection");
  const pause = async () => {
    const isDone = await attempt(() => rpc("SvcService", "PauseRun", { runId: run.id }), "Pause asked for");
    if (isDone) onDone();
  };
  const move = async () => {
    const isDone = await attempt(() => rpc("SvcService", "MoveRun", { runId: run.id }), "Moved");
    if (isDone) onDone();
  };
  const copyCall = async () => {
    const { input } = whole.cuts.input ? await getRun(run.id) : whole;
    const again = { event: run.eventName, dataValue: input ?? null };
    await copy(curlOf("SvcService/Emit", again, environment), "The call that starts it again");
  };
  const copyTest = async () => copy(await readSdkTest(whole), "The test");
  return (
    <>
      {may("runs:cancel") && (
        <>
          {canResume && (
            <Button kind="primary" icon="play" text="Resume…" onClick={() => setAsked("resume")} />
          )}
          {isGone && (
            <Button
              kind="primary"
              icon="play"
              text="Move to the newest deployment"
              onClick={() => void move()}
            />
          )}
          {canPause && <Button icon="pause" text="Pause" onClick={() => void pause()} />}
          {!over && <Button icon="stop" text="Cancel…" onClick={() => setAsked("cancel")} />}
        </>
      )}
      {!isRedacted && <Button icon="copy" text="Copy as curl" onClick={() => void attempt(copyCall)} />}
      {!isRedacted && (run.status === "completed" || run.status === "failed") && (
        <Button icon="copy" text="Copy as SDK test" onClick={() => void attempt(copyTest)} />
      )}
      {over && !isRedacted && may("runs:redact") && (
        <Button icon="edit" text="Redact…" onClick={() => setAsked("redact")} />
      )}
      {over && may("runs:delete") && (
        <Button icon="trash" text="Delete…" onClick={() => setAsked("delete")} />
      )}
      {(asked === "delete" || asked === "redact") && <EraseDialog run={run} how={asked} {...ends} />}
      {asked === "cancel" && <CancelDialog run={run} {...ends} />}
      {asked === "resume" && <ResumeDialog run={run} steps={steps} {...ends} />}
    </>
  );
}
