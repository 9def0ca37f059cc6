import { useState } from "preact/hooks";
import { rpc } from "../../lib/api.ts";
import { plain } from "../../lib/format.ts";
import { isOver, type RunView, type StepView } from "../../lib/runs.ts";
import { may } from "../../lib/session.ts";
import { attempt, copy, toast } from "../../lib/toasts.ts";
import { Button } from "../../ui/basics.tsx";
import { Field, FormDialog } from "../../ui/dialog.tsx";

function CancelDialog({ run, onClose, onDone }: { run: RunView; onClose: () => void; onDone: () => void }) {
  const [reason, setReason] = useState("");
  const [isTree, setTree] = useState(false);
  const submit = async () => {
    if (isTree) {
      const { cancelled = [] } = await rpc<{ cancelled?: string[] }>("CausalityService", "CancelSubtree", {
        ...{ runId: run.id, reason },
      });
      toast("done", `${cancelled.length} ${cancelled.length === 1 ? "run" : "runs"} cancelled`);
    } else {
      await rpc("SvcService", "CancelRun", { id: run.id, reason });
      toast("done", "Run cancelled");
    }
    onDone();
  };
  return (
    <FormDialog
      title="Cancel this run?"
      submit="Cancel the run"
      isDangerous
      onSubmit={submit}
      onClose={onClose}
    >
      <p>What it is doing now is given up. Its history stays.</p>
      <Field label="Reason" value={reason} onInput={setReason} hint="Shown in the history." />
      <label class="check">
        <input type="checkbox" checked={isTree} onChange={() => setTree(!isTree)} />
        Cancel the runs that it led to as well
      </label>
    </FormDialog>
  );
}

export function ResumeDialog(props: {
  run: RunView;
  steps: readonly StepView[];
  from?: string;
  onClose: () => void;
  onDone: () => void;
}) {
  const { run, steps, onClose, onDone } = props;
  const [from, setFrom] = useState(props.from ?? "");
  const submit = async () => {
    await rpc("SvcService", "ResumeRun", { runId: run.id, ...(from && { fromStep: from }) });
    toast("done", "Run resumed");
    onDone();
  };
  return (
    <FormDialog title="Resume this run" submit="Resume" onSubmit={submit} onClose={onClose}>
      <div class="field">
        <label for="resume-from">From</label>
        <select id="resume-from" value={from} onChange={({ currentTarget }) => setFrom(currentTarget.value)}>
          <option value="">Where it stopped</option>
          {steps.map(({ stepId, name }) => (
            <option key={stepId} value={stepId}>
              {plain(name)}
            </option>
          ))}
        </select>
        <p class="hint">The chosen step and all later ones are executed again. Earlier results are kept.</p>
      </div>
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

/** What can be done with the run, by its state and the viewer's roles. */
export function RunActions(props: {
  run: RunView;
  steps: readonly StepView[];
  input: unknown;
  environment: string;
  onDone: () => void;
}) {
  const { run, steps, input, environment, onDone } = props;
  const [asked, setAsked] = useState<"cancel" | "resume">();
  const close = () => setAsked(undefined);
  const over = isOver(run.status);
  const isPaused = run.status === "paused";
  const canResume = run.status === "failed" || isPaused;
  const canPause = !over && !(isPaused && run.pauseReason === "injection");
  const pause = async () => {
    const isDone = await attempt(() => rpc("SvcService", "PauseRun", { runId: run.id }), "Pause asked for");
    if (isDone) onDone();
  };
  const again = { event: run.eventName, dataValue: input ?? null };
  return (
    <>
      {may("runs:cancel") && (
        <>
          {canResume && (
            <Button kind="primary" icon="play" onClick={() => setAsked("resume")}>
              Resume…
            </Button>
          )}
          {canPause && (
            <Button icon="pause" onClick={() => void pause()}>
              Pause
            </Button>
          )}
          {!over && (
            <Button icon="stop" onClick={() => setAsked("cancel")}>
              Cancel…
            </Button>
          )}
        </>
      )}
      <Button
        icon="copy"
        onClick={() =>
          void copy(curlOf("SvcService/Emit", again, environment), "The call that starts it again")
        }
      >
        Copy as curl
      </Button>
      {asked === "cancel" && <CancelDialog run={run} onClose={close} onDone={onDone} />}
      {asked === "resume" && <ResumeDialog {...{ run, steps, onDone }} onClose={close} />}
    </>
  );
}
