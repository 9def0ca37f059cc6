import { useEffect, useState } from "preact/hooks";
import { parsedJson, rpc } from "../../lib/api.ts";
import { count, dateTime, plain } from "../../lib/format.ts";
import { type FunctionChangeView, type FunctionView, getFunction, listChanges } from "../../lib/functions.ts";
import { useLive, useLoaded, useNet } from "../../lib/hooks.ts";
import { noteRecent } from "../../lib/prefs.ts";
import { address, go, hrefOf } from "../../lib/router.ts";
import { listRuns } from "../../lib/runs.ts";
import { may } from "../../lib/session.ts";
import { toast } from "../../lib/toasts.ts";
import {
  Button,
  Empty,
  Facts,
  Failure,
  Id,
  PageHead,
  Section,
  Tabs,
  Text,
  Unread,
  When,
} from "../../ui/basics.tsx";
import { Field, FormDialog } from "../../ui/dialog.tsx";
import { JsonDiff } from "../../ui/diff.tsx";
import { JsonView } from "../../ui/json-view.tsx";
import { Status } from "../../ui/status.tsx";
import { ReplayDialog } from "../repairs/replay-dialog.tsx";
import { Triggers } from "./functions.tsx";
import { Serving } from "./serving.tsx";
import { Troubles } from "./troubles.tsx";

const runsShown = 15;

export function FunctionPage() {
  const id = address.value.rest[0] ?? "";
  const read = useLoaded(
    async (signal) => {
      const [shown, changes] = await Promise.all([getFunction(id, signal), listChanges(id, signal)]);
      return { shown, changes };
    },
    [id],
  );
  useLive("system.function.>", { onFrame: read.reload, onBack: read.reload });
  useNet(read.reload);
  useEffect(() => noteRecent("functions", id), [id]);
  const { value, error } = read;
  if (!value) return <Unread error={error} onRetry={read.reload} one="function" all="functions" />;
  return <FunctionInside {...value} reload={read.reload} />;
}

function FunctionInside(props: { shown: FunctionView; changes: FunctionChangeView[]; reload: () => void }) {
  const { shown, changes, reload } = props;
  const tab = address.value.query.get("tab") ?? "activity";
  const to = (name: string) =>
    hrefOf(["functions", shown.id], { tab: name === "activity" ? undefined : name });
  return (
    <div class="page">
      <PageHead
        title={
          <>
            <Text of={shown.name} />
            <Status of={shown.status} />
          </>
        }
        about={<Id of={shown.id} what="Function id" />}
        actions={<FunctionActions shown={shown} onDone={reload} />}
      />
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
          ...(shown.endpointUrl ? ([["Endpoint", <Text key="url" of={shown.endpointUrl} />]] as const) : []),
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
            <NewestRuns functionId={shown.id} />
          </Section>
          <Section title="Failing in the last day">
            <Troubles functionId={shown.id} />
          </Section>
        </div>
      )}
      {tab === "serving" && <Serving of={shown} />}
      {tab === "versions" && <Versions {...{ shown, changes, reload }} />}
      {tab === "definition" && <JsonView value={shown.definition} what="definition" />}
    </div>
  );
}

function NewestRuns({ functionId }: { functionId: string }) {
  const { value, error, reload } = useLoaded(
    (signal) => listRuns({ functionId }, { limit: runsShown }, signal),
    [functionId],
  );
  useLive("system.run.*.*", {
    onFrame: ({ data }) => data.functionId === functionId && reload(),
    onBack: reload,
  });
  if (error !== undefined) return <Failure error={error} onRetry={reload} />;
  if (value?.runs.length === 0)
    return <Empty title="It has not run yet" says="An event of its triggers starts it." />;
  return (
    <ul class="plain-list">
      {value?.runs.map((run) => (
        <li key={run.id}>
          <Status of={run.status} pauseReason={run.pauseReason} phase={run.phase} />
          <a class="grows" href={hrefOf(["runs", run.id])}>
            <code>{run.id}</code>
          </a>
          <span class="faint">
            <When at={run.createdAt} />
          </span>
        </li>
      ))}
    </ul>
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
                <Button icon="undo" onClick={() => setRolled(change)}>
                  Roll back to this…
                </Button>
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

function RollbackDialog(props: {
  shown: FunctionView;
  rolled: FunctionChangeView;
  onClose: () => void;
  onDone: () => void;
}) {
  const { shown, rolled, onClose, onDone } = props;
  const [reason, setReason] = useState("");
  const submit = async () => {
    await rpc("SvcService", "RollbackFunction", {
      ...{ functionId: shown.id, version: `${rolled.version}`, changeReason: reason },
    });
    toast("done", `${plain(shown.name)} rolled back`);
    onDone();
  };
  return (
    <FormDialog
      title={`Roll ${plain(shown.name)} back?`}
      submit="Roll back"
      onSubmit={submit}
      onClose={onClose}
    >
      <p>New runs begin with that definition. Runs that have begun keep theirs.</p>
      <JsonDiff before={shown.definition} after={rolled.definition} />
      <Field label="Reason" value={reason} onInput={setReason} hint="Kept in the history of the function." />
    </FormDialog>
  );
}

const moves = {
  paused: {
    verb: "Pause",
    status: "FUNCTION_STATUS_PAUSED",
    about: "Its runs queue until it is activated again.",
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
    toast("done", `${plain(shown.name)} is ${to}`);
    onDone();
  };
  return (
    <>
      {may("functions:invoke") && (
        <Button kind="primary" icon="play" onClick={() => setAsked("invoke")}>
          Invoke…
        </Button>
      )}
      {may("functions:invoke") && may("events:subscribe") && (
        <Button icon="refresh" onClick={() => setAsked("replay")}>
          Replay…
        </Button>
      )}
      {may("functions:register") &&
        offered.map((to) => (
          <Button key={to} onClick={() => setAsked(to)}>
            {`${moves[to].verb}…`}
          </Button>
        ))}
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

function InvokeDialog({ shown, onClose }: { shown: FunctionView; onClose: () => void }) {
  const [text, setText] = useState("{}");
  const submit = async () => {
    const dataValue = parsedJson(text, "input");
    const { runId = "" } = await rpc("SvcService", "InvokeFunction", {
      ...{ functionId: shown.id, dataValue },
    });
    toast("done", "Run started");
    go(hrefOf(["runs", runId]));
  };
  return (
    <FormDialog title={`Invoke ${plain(shown.name)}`} submit="Invoke" onSubmit={submit} onClose={onClose}>
      <Field
        label="Input (JSON)"
        isCode
        rows={10}
        value={text}
        onInput={setText}
        hint={`${count(text.length)} characters`}
      />
    </FormDialog>
  );
}
