import type { Static } from "@sinclair/typebox";
import { useState } from "preact/hooks";
import type { GroupOut } from "../../../domain/engine/errors/operations.ts";
import { parsedJson, rest, rpc } from "../../lib/api.ts";
import { count, counted, dateTime, plain } from "../../lib/format.ts";
import { type FunctionChangeView, type FunctionView, getFunction, listChanges } from "../../lib/functions.ts";
import { useFollowed, useLoaded } from "../../lib/hooks.ts";
import { address, go, hrefOf, queryOf } from "../../lib/router.ts";
import { may } from "../../lib/session.ts";
import { Button, Empty, Facts, Failure, Id, Page, Section, Tabs, Text, When } from "../../ui/basics.tsx";
import { type ChangeEnds, type DialogEnds, Field, FormDialog, useFields } from "../../ui/dialog.tsx";
import { JsonDiff } from "../../ui/diff.tsx";
import { JsonView } from "../../ui/json-view.tsx";
import { useOne } from "../../ui/resource.tsx";
import { Status } from "../../ui/status.tsx";
import { ReplayDialog } from "../repairs/replay-dialog.tsx";
import { NewestRuns } from "../runs/newest-runs.tsx";
import { Triggers } from "./functions.tsx";
import { Serving } from "./serving.tsx";

type ErrorGroupData = Static<typeof GroupOut>;

const troublesShown = 8;
const dayMs = 86_400_000;
const messageChars = 300;

/** Failures that look alike, as the server groups them: those seen in the last day, seen last first. */
export function Troubles({ functionId }: { functionId?: string }) {
  const { value, error, reload } = useLoaded(
    (signal) => {
      const since = new Date(Date.now() - dayMs).toISOString();
      const asked = { function_id: functionId, since, limit: `${troublesShown}` };
      return rest<{ groups: ErrorGroupData[] }>(`/api/v1/errors${queryOf(asked)}`, { signal });
    },
    [functionId],
  );
  useFollowed(reload, { frames: "system.run.*.failed" });
  if (error !== undefined) return <Failure error={error} onRetry={reload} />;
  if (value?.groups.length === 0) return <Empty title="Nothing failed in the last day" />;
  const hasNumbers = value?.groups.some(({ message }) => message.includes("#"));
  return (
    <>
      <ul class="troubles">
        {value?.groups.map((group) => (
          <li key={group.id}>
            <a
              class="trouble-runs number"
              href={hrefOf(["runs"], { error: group.id })}
              title="Failures so far"
            >
              {group.count === 0 ? "…" : count(group.count)}
            </a>
            <div class="trouble-text">
              <Text
                of={group.message.slice(0, messageChars) || group.code || "No message"}
                href={hrefOf(["runs", group.sample_run_id])}
              />
              {group.frame && <Text of={group.frame.slice(0, messageChars)} in="code" class="faint" />}
              <span class="faint">
                <Text of={group.function_id} />
                {", last "}
                <When at={group.last_seen_at} />
              </span>
            </div>
          </li>
        ))}
      </ul>
      {hasNumbers && <p class="hint">A # stands for what differs from run to run, such as a number.</p>}
    </>
  );
}

const runsShown = 15;

async function readFunction(id: string, signal: AbortSignal) {
  const [shown, changes] = await Promise.all([getFunction(id, signal), listChanges(id, signal)]);
  return { shown, changes };
}

export function FunctionPage() {
  const { value, reload, unread } = useOne({ one: "function", all: "functions" }, readFunction);
  useFollowed(reload, { frames: "system.function.>" });
  return value ? <FunctionInside {...value} reload={reload} /> : unread;
}

function FunctionInside(props: { shown: FunctionView; changes: FunctionChangeView[]; reload: () => void }) {
  const { shown, changes, reload } = props;
  const tab = address.value.query.get("tab") ?? "activity";
  const to = (name: string) =>
    hrefOf(["functions", shown.id], { tab: name === "activity" ? undefined : name });
  return (
    <Page
      title={
        <>
          <Text of={shown.name} />
          <Status of={shown.status} />
        </>
      }
      about={<Id of={shown.id} what="Function id" />}
      actions={<FunctionActions shown={shown} onDone={reload} />}
    >
      {shown.description && <Text of={shown.description} in="p" class="lead" />}
      <Facts
        of={[
          ["Started by", <Triggers key="triggers" of={shown} />],
          [
            "Version",
            <a key="version" href={to("versions")}>
              {`${shown.version}`}
            </a>,
          ],
          ["Mode", shown.mode],
          shown.endpointUrl && ["Endpoint", <Text key="url" of={shown.endpointUrl} />],
          ["Changed", <When key="changed" at={shown.updatedAt} />],
        ]}
      />
      <Tabs
        label="About the function"
        tabs={[
          { name: "Activity", href: to("activity"), isShown: tab === "activity" },
          { name: "Serving", href: to("serving"), isShown: tab === "serving" },
          { name: "Versions", href: to("versions"), isShown: tab === "versions", count: changes.length },
          { name: "Definition", href: to("definition"), isShown: tab === "definition" },
        ]}
      />
      {tab === "activity" && (
        <div class="columns">
          <Section
            title="Newest runs"
            aside={<a href={hrefOf(["runs"], { function: shown.id })}>All runs</a>}
          >
            <NewestRuns
              of="functionId"
              id={shown.id}
              limit={runsShown}
              link={({ id }) => (
                <a class="grows" href={hrefOf(["runs", id])}>
                  <code>{id}</code>
                </a>
              )}
              empty={<Empty title="It has not run yet" says="An event of its triggers starts it." />}
            />
          </Section>
          <Section title="Failing in the last day">
            <Troubles functionId={shown.id} />
          </Section>
        </div>
      )}
      {tab === "serving" && <Serving of={shown} />}
      {tab === "versions" && <Versions {...{ shown, changes, reload }} />}
      {tab === "definition" && <JsonView value={shown.definition} what="definition" />}
    </Page>
  );
}

function Versions(props: { shown: FunctionView; changes: FunctionChangeView[]; reload: () => void }) {
  const { shown, changes, reload } = props;
  const [rolled, setRolled] = useState<FunctionChangeView>();
  return (
    <ol class="versions">
      {changes.map((change, index) => {
        const before = changes[index + 1];
        return (
          <li key={change.version}>
            <details open={index === 1}>
              <summary>
                <strong class="number">{`Version ${change.version}`}</strong>
                <span class="number">{change.at === undefined ? "" : dateTime(change.at)}</span>
                <span>{change.type.replace("_", " ")}</span>
                <Text of={change.reason} in="span" class="grows" />
                <Text of={change.actor} in="span" class="faint" />
              </summary>
              {index > 0 && may("functions:register") && (
                <Button icon="undo" text="Roll back to this…" onClick={() => setRolled(change)} />
              )}
              <JsonDiff before={before?.definition ?? {}} after={change.definition} />
            </details>
          </li>
        );
      })}
      {rolled && (
        <RollbackDialog {...{ shown, rolled }} onClose={() => setRolled(undefined)} onDone={reload} />
      )}
    </ol>
  );
}

function RollbackDialog(props: ChangeEnds & { shown: FunctionView; rolled: FunctionChangeView }) {
  const { shown, rolled, ...ends } = props;
  const [{ reason }, field] = useFields({ reason: "" });
  const submit = async () => {
    await rpc("SvcService", "RollbackFunction", {
      ...{ functionId: shown.id, version: `${rolled.version}`, changeReason: reason },
    });
    return `${plain(shown.name)} rolled back`;
  };
  return (
    <FormDialog title={`Roll ${plain(shown.name)} back?`} submit="Roll back" onSubmit={submit} {...ends}>
      <p>New runs begin with that definition. Runs that have begun keep theirs.</p>
      <JsonDiff before={shown.definition} after={rolled.definition} />
      <Field label="Reason" {...field("reason")} hint="Kept in the history of the function." />
    </FormDialog>
  );
}

const moves = {
  paused: {
    verb: "Pause",
    status: "FUNCTION_STATUS_PAUSED",
    about:
      "Events start no runs of it meanwhile: replay them when it is active again. Runs that are queued, and invokes, wait.",
  },
  archived: {
    verb: "Archive",
    status: "FUNCTION_STATUS_ARCHIVED",
    about: "Events start no more runs of it. It comes back when its worker registers it again.",
  },
  active: {
    verb: "Activate",
    status: "FUNCTION_STATUS_ACTIVE",
    about: "Queued runs begin, and events start new ones.",
  },
} as const;

function FunctionActions({ shown, onDone }: { shown: FunctionView; onDone: () => void }) {
  const [asked, setAsked] = useState<keyof typeof moves | "invoke" | "replay">();
  const close = () => setAsked(undefined);
  // An archived one becomes active by being registered again, and by nothing else.
  const offered =
    shown.status === "archived"
      ? []
      : (Object.keys(moves) as (keyof typeof moves)[]).filter((to) => to !== shown.status);
  const move = async (to: keyof typeof moves) => {
    await rpc("SvcService", "UpdateFunctionStatus", { id: shown.id, status: moves[to].status });
    onDone();
    return `${plain(shown.name)} is ${to}`;
  };
  return (
    <>
      {may("functions:invoke") && (
        <Button kind="primary" icon="play" text="Invoke…" onClick={() => setAsked("invoke")} />
      )}
      {may("functions:invoke") && may("events:subscribe") && (
        <Button icon="refresh" text="Replay…" onClick={() => setAsked("replay")} />
      )}
      {may("functions:register") &&
        offered.map((to) => <Button key={to} text={`${moves[to].verb}…`} onClick={() => setAsked(to)} />)}
      {asked === "invoke" && <InvokeDialog shown={shown} onClose={close} />}
      {asked === "replay" && <ReplayDialog functionId={shown.id} onClose={close} />}
      {asked !== undefined && asked !== "invoke" && asked !== "replay" && (
        <FormDialog
          title={`${moves[asked].verb} ${plain(shown.name)}?`}
          submit={moves[asked].verb}
          onSubmit={() => move(asked)}
          onClose={close}
        >
          <p>{moves[asked].about}</p>
        </FormDialog>
      )}
    </>
  );
}

function InvokeDialog({ shown, onClose }: DialogEnds & { shown: FunctionView }) {
  const [{ text }, field] = useFields({ text: "{}" });
  const submit = async () => {
    const dataValue = parsedJson(text, "input");
    const { runId = "" } = await rpc("SvcService", "InvokeFunction", {
      ...{ functionId: shown.id, dataValue },
    });
    go(hrefOf(["runs", runId]));
    return "Run started";
  };
  const hint = counted(text.length, "character");
  return (
    <FormDialog title={`Invoke ${plain(shown.name)}`} submit="Invoke" onSubmit={submit} onClose={onClose}>
      <Field label="Input (JSON)" isCode rows={10} {...field("text")} hint={hint} />
    </FormDialog>
  );
}
