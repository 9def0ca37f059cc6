import { useState } from "preact/hooks";
import { rpc } from "../../lib/api.ts";
import { count, counted, plain } from "../../lib/format.ts";
import { useFollowed, useLive, useLoaded, usePages } from "../../lib/hooks.ts";
import type { MethodName } from "../../lib/messages.ts";
import {
  type FoldView,
  getFold,
  getJob,
  getState,
  type JobView,
  listChanges,
  listPartitions,
  tableOf,
} from "../../lib/projections.ts";
import { address, hrefOf, setQuery } from "../../lib/router.ts";
import { may } from "../../lib/session.ts";
import { attempt } from "../../lib/toasts.ts";
import { Button, Empty, Facts, Failure, Page, Section, Text, When } from "../../ui/basics.tsx";
import { type ChangeEnds, FormDialog } from "../../ui/dialog.tsx";
import { JsonView } from "../../ui/json-view.tsx";
import { useOne } from "../../ui/resource.tsx";
import { Status } from "../../ui/status.tsx";
import { ReadTable } from "../../ui/table.tsx";
import { LagSection } from "../../ui/time-chart.tsx";

const readMs = 5_000;

async function readProjection(name: string, signal: AbortSignal) {
  const [fold, job] = await Promise.all([getFold(name, signal), getJob(name, signal).catch(() => undefined)]);
  return { fold, job };
}

export function ProjectionPage() {
  const {
    id: name,
    value,
    reload,
    unread,
  } = useOne({ one: "projection", all: "projections" }, readProjection);
  useFollowed(reload, { list: "projections", frames: "system.projection_health.*", everyMs: readMs });
  if (!value) return unread;
  const { fold, job } = value;
  return (
    <Page
      title={
        <>
          <Text of={name} />
          <Status of={fold.status} />
        </>
      }
      actions={may("projections:manage") && <ProjectionActions {...{ name, fold, job }} onDone={reload} />}
    >
      <Facts
        of={[
          ["Mode", fold.mode],
          ["Position", count(fold.lastSequence)],
          ["Behind", counted(fold.lag, "event")],
          ["Version", `${fold.version}`],
          ["Generation", `${fold.generation}`],
          ["Moved", <When key="moved" at={fold.updatedAt} />],
        ]}
      />
      {fold.error !== "" && <FoldError fold={fold} />}
      <LagSection key={name} title="Events behind" read={fold} lag={fold.lag} />
      {job && <Rebuild job={job} />}
      {fold.mode === "sql" ? <Rows name={name} /> : <States name={name} />}
      <Changes name={name} fold={fold} />
    </Page>
  );
}

/** What a projection in SQL has made stands in a table of its own. */
const Rows = ({ name }: { name: string }) => (
  <Section title="Rows">
    <p>
      <a href={hrefOf(["sql"], { query: `SELECT * FROM ${tableOf(name)} LIMIT 100` })}>Query them in SQL</a>
    </p>
  </Section>
);

const FoldError = ({ fold }: { fold: FoldView }) => (
  <div class="failure" role="alert">
    <p>
      <Text of={fold.error} />
      {fold.errorPartition && (
        <>
          {", partition "}
          <Text of={fold.errorPartition} />
        </>
      )}
    </p>
    {fold.errorEventId && <a href={hrefOf(["events", fold.errorEventId])}>The event</a>}
  </div>
);

const changeWords: Readonly<Record<string, string>> = {
  update: "Registered",
  status_change: "Status",
  delete: "Deleted",
};

/** Read again when its head shows that something changed. */
function Changes({ name, fold: { status, version } }: { name: string; fold: FoldView }) {
  const read = usePages((cursor, signal) => listChanges(name, cursor, signal), [name, status, version]);
  return (
    <Section title="Changes">
      <ReadTable
        read={read}
        label="Changes"
        keyOf={(change) => `${change.version}`}
        empty="Nobody has changed it since version 0.41"
        columns={[
          { name: "Change", of: ({ change }) => changeWords[change] ?? change },
          { name: "Status after it", of: ({ after }) => <Status of={after.status} /> },
          { name: "Version", isNumber: true, of: ({ after }) => `${after.version}` },
          { name: "By", of: ({ by }) => <Text of={by} /> },
          { name: "When", of: ({ at }) => <When at={at} /> },
        ]}
      />
    </Section>
  );
}

const Rebuild = ({ job }: { job: JobView }) => (
  <Section title="Last rebuild">
    <Facts
      of={[
        ["Status", <Status key="status" of={job.status} />],
        ["Way", job.strategy === "side_by_side" ? "side by side" : "in place"],
        ["Events", `${count(job.processed)} of ${count(job.total)}`],
        ["Began", <When key="began" at={job.startedAt} />],
        job.error && ["Error", <Text key="error" of={job.error} />],
      ]}
    />
    <progress
      class="rebuild"
      max={1}
      value={job.status === "completed" ? 1 : job.progress}
      aria-label="Progress"
    />
  </Section>
);

function ProjectionActions(props: {
  name: string;
  fold: FoldView;
  job: JobView | undefined;
  onDone: () => void;
}) {
  const { name, fold, job, onDone } = props;
  const [isAsking, setAsking] = useState(false);
  const call = (method: MethodName<"ProjectionService">, done: string) => async () => {
    if (await attempt(() => rpc("ProjectionService", method, { name }), done)) onDone();
  };
  const isRebuilt = job?.status === "running";
  return (
    <>
      {fold.status === "running" && (
        <Button icon="pause" onClick={() => void call("PauseProjection", "Projection paused")()}>
          Pause
        </Button>
      )}
      {(fold.status === "paused" || fold.status === "error") && (
        <Button
          kind="primary"
          icon="play"
          onClick={() => void call("ResumeProjection", "Projection goes on")()}
        >
          Resume
        </Button>
      )}
      {isRebuilt ? (
        <Button icon="stop" onClick={() => void call("CancelRebuild", "Rebuild cancelled")()}>
          Cancel the rebuild
        </Button>
      ) : (
        <Button icon="refresh" text="Rebuild…" onClick={() => setAsking(true)} />
      )}
      {isAsking && <RebuildDialog name={name} onClose={() => setAsking(false)} onDone={onDone} />}
    </>
  );
}

const ways = [
  ["side_by_side", "Side by side", "Readers keep the state of now until the new one has caught up."],
  ["in_place", "In place", "The state is deleted first; readers see it grow again."],
] as const;

function RebuildDialog({ name, ...ends }: ChangeEnds & { name: string }) {
  const [strategy, setStrategy] = useState<string>("side_by_side");
  const submit = async () => {
    await rpc("ProjectionService", "RebuildProjection", { name, strategy });
    return `${plain(name)} is rebuilt`;
  };
  return (
    <FormDialog title={`Rebuild ${plain(name)}`} submit="Rebuild" onSubmit={submit} {...ends}>
      <fieldset class="form">
        <legend class="visually-hidden">How</legend>
        {ways.map(([value, word, about]) => (
          <label key={value} class="check">
            <input
              type="radio"
              name="strategy"
              checked={strategy === value}
              onChange={() => setStrategy(value)}
            />
            <span>
              <strong>{word}</strong>
              <span class="hint">{` ${about}`}</span>
            </span>
          </label>
        ))}
      </fieldset>
    </FormDialog>
  );
}

/** The partitions by key, and the state of the one that is chosen. */
function States({ name }: { name: string }) {
  const { query } = address.value;
  const begins = query.get("q") ?? "";
  const chosen = query.get("partition") ?? undefined;
  const { value, error, reload } = useLoaded(
    (signal) => listPartitions(name, begins, signal),
    [name, begins],
  );
  useLive(`system.projection.${name}.>`, { onFrame: reload, onBack: reload });
  return (
    <Section title="State by partition">
      <search class="filters">
        <input
          type="search"
          aria-label="Partitions whose key contains"
          placeholder="Key contains…"
          value={begins}
          onInput={({ currentTarget: { value: typed } }) => setQuery({ q: typed })}
        />
      </search>
      {error !== undefined && <Failure error={error} onRetry={reload} />}
      {value?.partitions.length === 0 && <Empty title="No partition has a state" />}
      <div class="columns">
        <ul class="plain-list">
          {value?.partitions.map((partition) => (
            <li key={partition}>
              <a
                class="grows"
                href={hrefOf(["projections", name], { q: begins, partition })}
                aria-current={partition === chosen || undefined}
              >
                <Text of={partition} />
              </a>
            </li>
          ))}
        </ul>
        {chosen !== undefined && <State name={name} partition={chosen} />}
      </div>
    </Section>
  );
}

function State({ name, partition }: { name: string; partition: string }) {
  const { value, error, reload } = useLoaded(
    (signal) => getState(name, partition, signal),
    [name, partition],
  );
  useLive(`system.projection.${name}.>`, { onFrame: reload, onBack: reload });
  if (error !== undefined) return <Failure error={error} onRetry={reload} />;
  if (!value) return <p class="faint">Reading…</p>;
  return (
    <div>
      <p class="hint">{`Folded up to position ${count(value.sequence)}`}</p>
      <JsonView value={value.state} what="state" />
    </div>
  );
}
