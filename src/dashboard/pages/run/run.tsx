import { useEffect } from "preact/hooks";
import { isMissing } from "../../lib/api.ts";
import { bytes, clockTime, counted, dateTime, duration, instantOf, lasted, plain } from "../../lib/format.ts";
import { useFollowed, useLoaded, useTick } from "../../lib/hooks.ts";
import { noteRecent } from "../../lib/prefs.ts";
import { address, hrefOf, setQuery } from "../../lib/router.ts";
import {
  getLogs,
  getOutputs,
  getRun,
  getStateAt,
  isOver,
  type Moment,
  type RunView,
  type StepView,
} from "../../lib/runs.ts";
import { Empty, Facts, Failure, Id, Missing, PageHead, Section, Tabs, Text, When } from "../../ui/basics.tsx";
import { Payload } from "../../ui/json-view.tsx";
import { Status } from "../../ui/status.tsx";
import { Attempts } from "./attempts.tsx";
import { Causes } from "./causes.tsx";
import { Audit, History } from "./history.tsx";
import { RunActions, readWhole, type Whole, wholeStep } from "./run-actions.tsx";
import { ReadBeside, Signals } from "./signals.tsx";
import { ErrorBlock, StepPanel } from "./step-panel.tsx";
import { TimeSlider, Waterfall } from "./waterfall.tsx";

/** The ends of what the handler writes to its outputs. */
const Outputs = ({ run }: { run: RunView }) => (
  <ReadBeside run={run} read={getOutputs}>
    {(outputs) =>
      outputs.length === 0 ? (
        <Empty
          title="Its handler wrote to no output"
          says="What a handler writes to an output is shown here."
          docs="outputs"
        />
      ) : (
        outputs.map(({ name, chunks, bytes: size, tail }) => (
          <Section key={name} title={`Output ${name}`}>
            <p class="faint">{`${counted(chunks, "chunk")}, ${bytes(size)}. What was written last:`}</p>
            <Text of={tail} in="p" class="log-text" />
          </Section>
        ))
      )
    }
  </ReadBeside>
);

type LogsView = Awaited<ReturnType<typeof getLogs>>;

/** What the handler wrote. */
const Logs = ({ run }: { run: RunView }) => (
  <ReadBeside run={run} read={getLogs}>
    {(logs) => <Lines of={logs} />}
  </ReadBeside>
);

function Lines({ of: { lines, leftOut } }: { of: LogsView }) {
  if (lines.length === 0)
    return <Empty title="Its handler wrote nothing" says="What a handler writes to its log is kept here." />;
  return (
    <>
      <ol class="log-lines">
        {lines.map(({ at, level, text, fields, step, attempt }, place) => (
          <li key={place} class={`log-line level-${level}`}>
            <time class="number" title={`${dateTime(at)}, attempt ${attempt}`}>
              {clockTime(at)}
            </time>
            <span class="log-level">{level}</span>
            {step !== "" && <Text of={step} in="code" />}
            <Text of={text} in="span" class="log-text" />
            {fields !== undefined && <Text of={JSON.stringify(fields)} in="code" class="log-fields" />}
          </li>
        ))}
      </ol>
      {leftOut > 0 && (
        <p class="hint">{`Left out, beyond what is kept of a run: ${counted(leftOut, "line")}`}</p>
      )}
    </>
  );
}

const drawMs = 250;

export function RunPage() {
  const id = address.value.rest[0] ?? "";
  const whole = useLoaded((signal) => readWhole(id, signal), [id]);
  useFollowed(whole.reload, { frames: `system.run.${id}.>` });
  useEffect(() => noteRecent("runs", id), [id]);
  const { value, error } = whole;
  if (!value && isMissing(error))
    return (
      <Missing title="There is no such run here">
        <p>
          <Text of={id} in="code" />
          {" may be of another environment, or its history has expired."}
        </p>
        <a href={hrefOf(["runs"])}>All runs</a>
      </Missing>
    );
  if (!value)
    return error === undefined ? (
      <p class="page faint">Reading…</p>
    ) : (
      <div class="page">
        <Failure error={error} onRetry={whole.reload} />
      </div>
    );
  return (
    <div class="page">
      {error !== undefined && <Failure error={error} onRetry={whole.reload} />}
      <RunInside whole={value} reload={whole.reload} />
    </div>
  );
}

function RunInside({ whole, reload }: { whole: Whole; reload: () => void }) {
  const { run, moments } = whole;
  const { query, environment } = address.value;
  const at = instantOf(query.get("at") ?? undefined);
  const past = useLoaded(
    (signal) => (at === undefined ? Promise.resolve(undefined) : getStateAt(run.id, at, signal)),
    [run.id, at],
  );
  const isPast = at !== undefined;
  const steps = isPast ? (past.value?.steps ?? []) : whole.steps;
  const status = isPast ? (past.value?.status ?? run.status) : run.status;
  const now = useTick(drawMs, !isOver(run.status) && !isPast);
  const chosen = query.get("step") ?? undefined;
  const step = chosen === undefined ? undefined : steps.find(({ stepId }) => stepId === chosen);
  const tab = query.get("tab") ?? "steps";
  const shown = isPast ? asItWas(run, status, at) : run;
  const kept = { tab: query.get("tab") ?? undefined, at: query.get("at") ?? undefined };
  return (
    <>
      <PageHead
        title={
          <>
            <Text of={run.functionId} />
            <Status
              of={status}
              pauseReason={isPast ? undefined : run.pauseReason}
              phase={isPast ? undefined : run.phase}
            />
          </>
        }
        about={<Id of={run.id} what="Run id" />}
        actions={!isPast && <RunActions {...{ whole, environment }} onDone={reload} />}
      />
      <RunFacts run={shown} now={at ?? now} />
      {!isPast && run.error && (
        <ErrorBlock
          error={run.error}
          cut={whole.cuts.error}
          read={async () => (await getRun(run.id)).run.error}
        />
      )}
      {!isPast && run.status === "failed" && <WhatNow {...{ run, steps }} />}
      <TimeSlider
        {...{ run, moments, at }}
        onMove={(to) => setQuery({ at: to === undefined ? undefined : new Date(to).toISOString() })}
      />
      {past.error !== undefined && <Failure error={past.error} onRetry={past.reload} />}
      <div class={`run-body ${step ? "with-panel" : ""}`}>
        <div class="run-main">
          <Waterfall
            run={shown}
            steps={steps}
            moments={isPast ? moments.filter((moment) => moment.at <= at) : moments}
            now={isPast ? at : (run.endedAt ?? now)}
            chosen={chosen}
            query={kept}
          />
          <RunTabs {...{ run, tab, moments }} attempts={whole.attempts.length} />
          {tab === "steps" && <Payloads whole={whole} />}
          {tab === "logs" && <Logs run={run} />}
          {tab === "outputs" && <Outputs run={run} />}
          {tab === "signals" && <Signals run={run} />}
          {tab === "attempts" && <Attempts run={run} attempts={whole.attempts} />}
          {tab === "history" && <History run={run} moments={moments} />}
          {tab === "causes" && <Causes kind="run" id={run.id} />}
          {tab === "audit" && <Audit runId={run.id} />}
        </div>
        {step && (
          <StepPanel
            key={step.stepId}
            {...{ run, step, isPast }}
            read={(signal) => wholeStep({ runId: run.id, step, at }, signal)}
            onDone={reload}
          />
        )}
      </div>
    </>
  );
}

/** What a failed run needs, for those who see one for the first time. */
function WhatNow({ run, steps }: { run: RunView; steps: readonly StepView[] }) {
  const failed = steps.findLast(({ status }) => status === "failed");
  return (
    <p class="what-now">
      {failed ? (
        <>
          {"Step "}
          <Text of={failed.name} href={hrefOf(["runs", run.id], { step: failed.stepId })} />
          {
            " failed. Open it to see its error, or to give it an output by hand. When the cause is mended, resume the run."
          }
        </>
      ) : (
        "No step failed: the error came from the function itself. When the cause is mended, resume the run."
      )}{" "}
      <a href="/docs/run-failed">A run failed, what now?</a>
    </p>
  );
}

/** The run for the waterfall of an instant before its end. */
const asItWas = (run: RunView, status: string, at: number): RunView => ({
  ...run,
  status,
  pauseReason: "",
  endedAt: run.endedAt !== undefined && run.endedAt <= at ? run.endedAt : undefined,
});

function RunFacts({ run, now }: { run: RunView; now: number }) {
  const lasts = run.startedAt === undefined ? undefined : (run.endedAt ?? now) - run.startedAt;
  return (
    <Facts
      of={[
        ["Created", <When key="created" at={run.createdAt} />],
        ["Waited", run.startedAt === undefined ? "–" : duration(run.startedAt - run.createdAt)],
        ["Duration", lasts === undefined ? "–" : lasted(lasts)],
        ["Attempt", `${run.attempt} of ${run.maxAttempts}`],
        [
          "Event",
          run.eventId ? (
            <Text key="event" of={run.eventName || run.eventId} href={hrefOf(["events", run.eventId])} />
          ) : (
            "–"
          ),
        ],
        [
          "Function",
          <a key="function" href={hrefOf(["functions", run.functionId])}>
            <Text of={run.functionId} />
            {`, version ${run.functionVersion}`}
          </a>,
        ],
        ["Worker", run.workerId ? <Text key="worker" of={run.workerId} /> : "–"],
        run.attributes.length > 0 && [
          "Attributes",
          <span key="attributes" class="triggers">
            {run.attributes.map((one) => (
              <Text key={one} of={one} href={hrefOf(["runs"], { where: one })} />
            ))}
          </span>,
        ],
        run.pinnedTo && ["Pinned to", <Text key="pin" of={run.pinnedTo} />],
        run.movesAt && ["Moves", dateTime(run.movesAt)],
        run.parentRunId && [
          "Parent",
          <a key="parent" href={hrefOf(["runs", run.parentRunId])}>
            {run.parentRunId}
          </a>,
        ],
        run.timeoutAt && run.endedAt === undefined && ["Times out", dateTime(run.timeoutAt)],
        run.redactedAt && ["Redacted", `${dateTime(run.redactedAt)} by ${plain(run.redactedBy)}`],
        run.cancellationCause && ["Cancelled by", <Text key="cause" of={run.cancellationCause} />],
      ]}
    />
  );
}

function RunTabs(props: { run: RunView; tab: string; moments: readonly Moment[]; attempts: number }) {
  const { run, tab, moments, attempts } = props;
  const { query } = address.value;
  const kept = { step: query.get("step") ?? undefined, at: query.get("at") ?? undefined };
  const to = (name: string) =>
    hrefOf(["runs", run.id], { ...kept, tab: name === "steps" ? undefined : name });
  const all = [
    { name: "Input and output", of: "steps", count: undefined },
    { name: "Logs", of: "logs", count: undefined },
    { name: "Outputs", of: "outputs", count: undefined },
    { name: "Signals", of: "signals", count: undefined },
    { name: "Attempts", of: "attempts", count: attempts },
    { name: "History", of: "history", count: moments.length },
    { name: "Causes and effects", of: "causes", count: undefined },
    { name: "Audit", of: "audit", count: undefined },
  ];
  const tabs = all.filter(({ of, count }) => count !== 0 || tab === of);
  return (
    <Tabs
      label="About the run"
      tabs={tabs.map(({ name, of, count }) => ({ name, count, href: to(of), isShown: tab === of }))}
    />
  );
}

function Payloads({ whole: { input, output, run, cuts } }: { whole: Whole }) {
  return (
    <div class="payloads">
      <Section title="Input">
        <Payload
          {...{ value: input ?? null, cut: cuts.input, what: "input" }}
          read={async (signal) => (await getRun(run.id, signal)).input}
        />
      </Section>
      <Section title="Output">
        {output === undefined && !cuts.output ? (
          <p class="faint">{isOver(run.status) ? "None." : "None yet."}</p>
        ) : (
          <Payload
            {...{ value: output, cut: cuts.output, what: "output" }}
            read={async (signal) => (await getRun(run.id, signal)).output}
          />
        )}
      </Section>
    </div>
  );
}
