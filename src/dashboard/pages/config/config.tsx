import { useMemo, useState } from "preact/hooks";
import { parsedJson, unlessMissing } from "../../lib/api.ts";
import { bytes, count, dateTime, instantOf, plain } from "../../lib/format.ts";
import { useFollowed, useLoaded } from "../../lib/hooks.ts";
import { go, hrefOf } from "../../lib/router.ts";
import { may } from "../../lib/session.ts";
import { Button, Facts, Failure, Page, Section, Text, When } from "../../ui/basics.tsx";
import {
  type ChangeEnds,
  Confirm,
  ConfirmOpener,
  Field,
  FormDialog,
  Opener,
  useFields,
} from "../../ui/dialog.tsx";
import { JsonDiff } from "../../ui/diff.tsx";
import { JsonView } from "../../ui/json-view.tsx";
import { useOne } from "../../ui/resource.tsx";
import {
  type ConfigChangeData,
  type ConfigData,
  deleteConfig,
  getConfig,
  listConfigChanges,
  putConfig,
  rollbackConfig,
} from "./configs.tsx";

async function readConfig(name: string, signal: AbortSignal) {
  const [found, changes] = await Promise.all([
    unlessMissing(getConfig(name, "", signal)),
    listConfigChanges(name, signal),
  ]);
  return { found, changes };
}

export function ConfigPage() {
  const {
    id: name,
    value,
    reload,
    unread,
  } = useOne({ one: "document", all: "config", allName: "documents" }, readConfig);
  useFollowed(reload, { frames: `system.config.${name}.updated` });
  return value ? <ConfigInside name={name} {...value} onDone={reload} /> : unread;
}

function ConfigInside(props: {
  name: string;
  /** Undefined of a document that is deleted. */
  found: ConfigData | undefined;
  changes: readonly ConfigChangeData[];
  onDone: () => void;
}) {
  const { name, found, changes, onDone } = props;
  return (
    <Page
      title={<Text of={name} />}
      actions={
        may("secrets:manage") &&
        found && (
          <>
            <Opener kind="primary" icon="edit" text="Edit…">
              {(onClose) => <EditDialog {...{ found, onDone, onClose }} />}
            </Opener>
            <ConfirmOpener
              text="Delete…"
              icon="trash"
              title={`Delete ${plain(name)}?`}
              verb="Delete the document"
              act={() => deleteConfig(name, found.revision)}
              done="Document deleted"
              onDone={() => go(hrefOf(["config"]))}
            >
              <p>Functions that read it find none. Its history can bring it back as long as it is kept.</p>
            </ConfirmOpener>
          </>
        )
      }
    >
      <Facts
        of={
          found
            ? [
                ["Revision", count(found.revision)],
                ["Changed", <When key="changed" at={found.updatedAt} />],
              ]
            : [["State", "deleted"]]
        }
      />
      <div class="columns spaced">
        <Section title="Document">
          {found ? <JsonView value={found.data} what="document" /> : <p class="faint">It is deleted.</p>}
        </Section>
        <Section title="History">
          <ol class="versions">
            {changes.map((change, index) => (
              <Change
                key={change.revision}
                {...{ name, change, isNewest: index === 0, onDone }}
                before={changes[index + 1]}
              />
            ))}
          </ol>
        </Section>
      </div>
    </Page>
  );
}

function Change(props: {
  name: string;
  change: ConfigChangeData;
  before: ConfigChangeData | undefined;
  isNewest: boolean;
  onDone: () => void;
}) {
  const { name, change, before, isNewest, onDone } = props;
  const [isOpen, setOpen] = useState(isNewest);
  const [isRolling, setRolling] = useState(false);
  const at = instantOf(change.updatedAt);
  return (
    <li>
      <details open={isNewest} onToggle={({ currentTarget: { open } }) => setOpen(open)}>
        <summary>
          <strong class="number">{count(change.revision)}</strong>
          <span class="grows">{change.operation === "put" ? bytes(change.bytes) : "deleted"}</span>
          <span class="faint number">{at === undefined ? "" : dateTime(at)}</span>
        </summary>
        {isOpen && <ChangeDiff {...{ name, change, before }} />}
        {!isNewest && change.operation === "put" && may("secrets:manage") && (
          <Button icon="undo" text="Roll back to this…" onClick={() => setRolling(true)} />
        )}
      </details>
      {isRolling && (
        <Confirm
          title={`Roll ${plain(name)} back to revision ${count(change.revision)}?`}
          verb="Roll back"
          isDangerous={false}
          act={() => rollbackConfig(name, change.revision)}
          done={`${plain(name)} rolled back`}
          onDone={onDone}
          onClose={() => setRolling(false)}
        >
          <p>The document becomes what it was then, as its next revision.</p>
        </Confirm>
      )}
    </li>
  );
}

/** What the change did: the document of its revision beside the one before. */
function ChangeDiff(props: { name: string; change: ConfigChangeData; before: ConfigChangeData | undefined }) {
  const { name, change, before } = props;
  const dataOf = async (one: ConfigChangeData | undefined, signal: AbortSignal) =>
    one?.operation === "put" ? (await getConfig(name, `${one.revision}`, signal)).data : {};
  const { value, error, reload } = useLoaded(
    async (signal) => Promise.all([dataOf(before, signal), dataOf(change, signal)]),
    [name, change.revision],
  );
  if (error !== undefined) return <Failure error={error} onRetry={reload} />;
  if (!value) return <p class="faint indented">Reading…</p>;
  return <JsonDiff before={value[0]} after={value[1]} />;
}

function EditDialog({ found, ...ends }: ChangeEnds & { found: ConfigData }) {
  // What was read when the form opened: a change of another meanwhile refuses this one.
  const [read] = useState(found);
  const [{ text }, field] = useFields(() => ({ text: JSON.stringify(found.data, null, 2) }));
  const parsed = useMemo(() => {
    try {
      return { data: JSON.parse(text) as unknown };
    } catch {
      return undefined;
    }
  }, [text]);
  const submit = async () => {
    const { revision } = await putConfig(read.name, parsedJson(text, "document"), read.revision);
    return `${plain(read.name)} is at revision ${count(revision)}`;
  };
  return (
    <FormDialog title={`Edit ${plain(read.name)}`} submit="Save" onSubmit={submit} {...ends}>
      {found.revision !== read.revision && (
        <p class="form-error" role="status">
          {`Another has changed it since you opened it: it is at revision ${count(found.revision)}.`}
        </p>
      )}
      <Field label="Document (JSON)" isCode rows={14} {...field("text")} />
      {parsed && (
        <>
          <h3>What changes</h3>
          <JsonDiff before={read.data} after={parsed.data} />
        </>
      )}
    </FormDialog>
  );
}
