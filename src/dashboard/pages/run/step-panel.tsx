import { useState } from "preact/hooks";
import { parsedJson, rest, rpc } from "../../lib/api.ts";
import { bytes, type CutView, cut as cutText, dateTime, lasted, plain } from "../../lib/format.ts";
import { useLoaded } from "../../lib/hooks.ts";
import { hrefOf, queryOf, setQuery } from "../../lib/router.ts";
import type { ErrorView, RunView, StepView } from "../../lib/runs.ts";
import { may } from "../../lib/session.ts";
import { attempt, copy } from "../../lib/toasts.ts";
import { Button, Facts, Text } from "../../ui/basics.tsx";
import { type ChangeEnds, Check, Field, FormDialog, useFields } from "../../ui/dialog.tsx";
import { JsonDiff } from "../../ui/diff.tsx";
import { Payload } from "../../ui/json-view.tsx";
import { RunStatus, Status } from "../../ui/status.tsx";
import { Tries } from "./attempts.tsx";
import type { CausalityData } from "./causes.tsx";
import { titleOf } from "./lines.ts";
import { ResumeDialog } from "./run-actions.tsx";

const typeWords: Record<string, string> = {
  invoke: "Step",
  sleep: "Sleep",
  wait_for_event: "Wait for an event",
  compensate: "Compensation",
  invoke_function: "Child function",
};

const errorCharacters = 20_000;

/** `read` gives the whole of an error that the server cut. */
export function ErrorBlock(props: {
  error: ErrorView;
  cut: CutView | undefined;
  read: () => Promise<ErrorView | undefined>;
}) {
  const { error, cut, read } = props;
  const copyAll = async () => {
    const whole = (await read()) ?? error;
    await copy(`${whole.message}\n${whole.stack}`, "The error");
  };
  return (
    <div class="error-block">
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: it scrolls */}
      <p class="error-message" tabIndex={0}>
        {error.code !== "" && <code>{plain(error.code)}</code>}{" "}
        <Text of={cutText(error.message, errorCharacters)} />
      </p>
      {error.stack !== "" && (
        // biome-ignore lint/a11y/noNoninteractiveTabindex: it scrolls
        <pre class="stack" tabIndex={0}>
          {error.stack
            .slice(0, errorCharacters)
            .split("\n")
            .map((line) => `${plain(line)}\n`)}
        </pre>
      )}
      {cut && (
        <p class="hint">
          {`This is its beginning; it has ${bytes(cut.bytes)}. `}
          <Button onClick={() => void attempt(copyAll)}>Copy all of it</Button>
        </p>
      )}
    </div>
  );
}

const timeOf = (at: number | undefined) => (at === undefined ? "–" : dateTime(at));

function Children({ runId, stepId }: { runId: string; stepId: string }) {
  const { value } = useLoaded(
    (signal) => {
      const asked = { kind: "step", id: `${runId}/${stepId}`, direction: "effects", depth: "1" };
      return rest<CausalityData>(`/api/v1/causality${queryOf(asked)}`, { signal });
    },
    [runId, stepId],
  );
  const runs = value?.things.filter(({ kind, depth }) => kind === "run" && depth > 0) ?? [];
  if (runs.length === 0) return null;
  return (
    <p class="children">
      {"Child run: "}
      {runs.map(({ id, status = "" }) => (
        <span key={id}>
          <a href={hrefOf(["runs", id])}>{id}</a> <RunStatus of={status} />
        </span>
      ))}
    </p>
  );
}

type OutputChange = "patch" | "inject";

/** What can be done about a step, by the run's state and the viewer's roles. */
function StepActions({ run, step, onDone }: { run: RunView; step: StepView; onDone: () => void }) {
  const [asked, setAsked] = useState<OutputChange | "resume">();
  const isEnded = step.status === "completed" || step.status === "failed";
  const isHeld = run.status === "paused" && run.pauseReason === "injection";
  const ends = { onDone, onClose: () => setAsked(undefined) };
  return (
    <div class="panel-actions">
      {isEnded && (
        <Button icon="edit" onClick={() => setAsked("patch")}>
          {step.status === "failed" ? "Inject an output…" : "Patch…"}
        </Button>
      )}
      {isHeld && step.status === "completed" && (
        <Button icon="edit" text="Inject…" onClick={() => setAsked("inject")} />
      )}
      {(run.status === "failed" || isHeld) && (
        <Button icon="play" text="Resume from here…" onClick={() => setAsked("resume")} />
      )}
      {asked === "resume" && <ResumeDialog run={run} steps={[step]} from={step.stepId} {...ends} />}
      {(asked === "patch" || asked === "inject") && (
        <OutputDialog change={asked} run={run} step={step} {...ends} />
      )}
    </div>
  );
}

function OutputDialog(props: ChangeEnds & { change: OutputChange; run: RunView; step: StepView }) {
  const { change, run, step, ...ends } = props;
  // What is too large to be shown is not edited here either.
  const cut = step.cuts.output;
  const [{ text, reason }, field] = useFields(() => ({
    ...{ text: cut ? "" : JSON.stringify(step.output ?? null, null, 2), reason: "" },
  }));
  const hasFailed = step.status === "failed";
  const canResume = run.status === "failed" || (run.status === "paused" && run.pauseReason === "injection");
  const [resumes, setResumes] = useState(canResume && hasFailed);
  const verb = change === "patch" && !hasFailed ? "Patch" : "Inject";
  const submit = async () => {
    const output = parsedJson(text, "output");
    if (change === "patch")
      await rpc("SvcService", "PatchStep", { stepId: step.id, outputValue: output, reason });
    else {
      const newOutput = JSON.stringify(output);
      await rpc("SvcService", "InjectStepOutput", { runId: run.id, stepId: step.id, newOutput, reason });
    }
    if (resumes) await rpc("SvcService", "ResumeRun", { runId: run.id });
    return `Output of ${plain(step.name)} ${hasFailed ? "set" : "replaced"}${resumes ? ", run resumed" : ""}`;
  };
  return (
    <FormDialog title={`${verb} the output of ${plain(step.name)}`} submit={verb} onSubmit={submit} {...ends}>
      <p>
        {hasFailed
          ? "The step counts as completed with this output, and is not executed again."
          : "The first output stays readable beside the new one."}
      </p>
      <Field
        {...{ label: "Output (JSON)", rows: 12, isCode: true, ...field("text") }}
        {...(cut && { hint: `In place of the ${bytes(cut.bytes)} that are there.` })}
      />
      <Field label="Reason" hint="Kept in the audit trail." {...field("reason")} />
      {canResume && <Check label="Resume the run with it" isChecked={resumes} onChange={setResumes} />}
    </FormDialog>
  );
}

/** One step in full. In the past nothing can be changed. */
export function StepPanel(props: {
  run: RunView;
  step: StepView;
  isPast: boolean;
  /** The step with its values in full. */
  read: (signal?: AbortSignal) => Promise<StepView>;
  onDone: () => void;
}) {
  const { run, step, isPast, read, onDone } = props;
  const { cuts } = step;
  const lasts =
    step.startedAt === undefined || step.endedAt === undefined ? undefined : step.endedAt - step.startedAt;
  const isPatched = step.originalOutput !== undefined;
  return (
    <aside class="panel" aria-label={`Step ${titleOf(step)}`}>
      <header class="panel-head">
        <div>
          <p class="panel-kind">{typeWords[step.type] ?? step.type}</p>
          <h2>
            <Text of={titleOf(step)} />
          </h2>
        </div>
        <Button
          kind="quiet"
          icon="close"
          label="Close the step"
          onClick={() => setQuery({ step: undefined })}
        />
      </header>
      <Facts
        of={[
          ["Status", <Status key="status" of={step.status === "waiting" ? "waits" : step.status} />],
          ["Duration", lasts === undefined ? "–" : lasted(lasts)],
          ["Started", timeOf(step.startedAt)],
          ["Ended", timeOf(step.endedAt)],
          ["Attempt", `${step.attempt || 1}`],
          step.maxTries > 0 && ["Tries", `${step.tries} of ${step.maxTries}`],
          step.retryAt && ["Tried again", timeOf(step.retryAt)],
          ["Step id", <code key="id">{plain(step.stepId)}</code>],
          step.waitEventName && ["Waits for", <Text key="w" of={step.waitEventName} />],
          step.waitTimeout && ["Until", timeOf(step.waitTimeout)],
          step.sleepUntil && ["Wakes", timeOf(step.sleepUntil)],
          step.compensationFor && ["Undoes", <Text key="u" of={step.compensationFor} />],
          step.patchedBy && ["Patched by", <Text key="p" of={step.patchedBy} />],
        ]}
      />
      {!isPast && <Tries run={run} step={step} />}
      {step.type === "invoke_function" && <Children runId={run.id} stepId={step.stepId} />}
      {!isPast && may("runs:cancel") && <StepActions {...{ run, step, onDone }} />}
      {step.error && (
        <>
          <h3>Error</h3>
          <ErrorBlock error={step.error} cut={cuts.error} read={async () => (await read()).error} />
        </>
      )}
      {(step.input !== undefined || cuts.input) && (
        <>
          <h3>Input</h3>
          <Payload
            {...{ value: step.input, cut: cuts.input, what: "input" }}
            read={async (signal) => (await read(signal)).input}
          />
        </>
      )}
      <h3>Output</h3>
      {step.output === undefined && !cuts.output ? (
        <p class="faint">{step.endedAt === undefined ? "None yet." : "None."}</p>
      ) : (
        <Payload
          {...{ value: step.output, cut: cuts.output, what: "output" }}
          read={async (signal) => (await read(signal)).output}
        />
      )}
      {isPatched && (
        <>
          <h3>Original beside what replaced it</h3>
          {cuts.output || cuts.original_output ? (
            <Payload
              {...{ value: step.originalOutput, cut: cuts.original_output, what: "original output" }}
              read={async (signal) => (await read(signal)).originalOutput}
            />
          ) : (
            <JsonDiff before={step.originalOutput} after={step.output} />
          )}
        </>
      )}
    </aside>
  );
}
