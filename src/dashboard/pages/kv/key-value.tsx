import { useState } from "preact/hooks";
import { isMissing, unlessMissing } from "../../lib/api.ts";
import { bytes, bytes as bytesText, count, dateTime, instantOf, plain } from "../../lib/format.ts";
import { useLoaded } from "../../lib/hooks.ts";
import {
  type BucketData,
  deleteKey,
  getKey,
  listRevisions,
  putKey,
  type RevisionData,
  readValue,
  type SeenChange,
  type ValueData,
} from "../../lib/kv.ts";
import { address, go, hrefOf, setQuery } from "../../lib/router.ts";
import { may } from "../../lib/session.ts";
import { Button, Empty, Facts, Failure, Section, When } from "../../ui/basics.tsx";
import { type ChangeEnds, Check, Confirm, Field, FormDialog, useFields } from "../../ui/dialog.tsx";
import { JsonDiff } from "../../ui/diff.tsx";
import { JsonTextView } from "../../ui/json-view.tsx";
import { ReadTable } from "../../ui/table.tsx";

interface ComparedRevisions {
  newer: number;
  older: number;
}

/** What is kept of a key, newest first, and what a revision changed; read again at each `newest`. */
function Revisions(props: { bucket: string; name: string; newest: number }) {
  const { bucket, name, newest } = props;
  const [compared, setCompared] = useState<ComparedRevisions>();
  const read = useLoaded(
    async (signal) => (await unlessMissing(listRevisions(bucket, name, signal))) ?? [],
    [bucket, name, newest],
  );
  const shown = address.value.query.get("revision") ?? "";
  const olderOf = ({ revision }: RevisionData) =>
    read.value?.find((one) => one.operation === "put" && one.revision < revision)?.revision;
  return (
    <Section title="Revisions">
      <ReadTable
        read={read}
        label="Revisions"
        keyOf={({ revision }) => `${revision}`}
        columns={[
          {
            name: "Revision",
            of: (one) =>
              one.operation === "delete" ? (
                <span class="number">{count(one.revision)}</span>
              ) : (
                <a
                  class="number"
                  aria-current={shown === `${one.revision}` ? "true" : undefined}
                  href={hrefOf(["kv", bucket], { key: name, revision: `${one.revision}` })}
                >
                  {count(one.revision)}
                </a>
              ),
          },
          { name: "Value", of: (one) => (one.operation === "delete" ? "deleted" : bytes(one.bytes)) },
          { name: "Written", isNumber: true, of: (one) => <When at={one.created_at} /> },
          {
            name: "",
            of: (one) => {
              const older = olderOf(one);
              return (
                one.operation === "put" &&
                older !== undefined && (
                  <span class="row-actions">
                    <Button
                      label={`Compare revision ${count(one.revision)} with the one before`}
                      isPressed={compared?.newer === one.revision}
                      onClick={() =>
                        setCompared(
                          compared?.newer === one.revision ? undefined : { newer: one.revision, older },
                        )
                      }
                    >
                      Compare
                    </Button>
                  </span>
                )
              );
            },
          },
        ]}
        empty="None is kept"
      />
      {compared && <Difference bucket={bucket} name={name} {...compared} />}
    </Section>
  );
}

function Difference({ bucket, name, newer, older }: { bucket: string; name: string } & ComparedRevisions) {
  const { value, error, reload } = useLoaded(
    (signal) => Promise.all([older, newer].map((one) => getKey(bucket, name, `${one}`, signal))),
    [bucket, name, newer, older],
  );
  if (error !== undefined) return <Failure error={error} onRetry={reload} />;
  if (!value) return <p class="faint">Reading…</p>;
  const [before, after] = value.map(({ value: stored }) => readable(stored));
  if (before === undefined || after === undefined) return <p class="hint">Its bytes are no text.</p>;
  return (
    <>
      <p class="hint">{`From revision ${count(older)} to ${count(newer)}`}</p>
      <JsonDiff before={before} after={after} />
    </>
  );
}

/** JSON where the text is JSON; undefined for bytes that are no text. */
function readable(stored: string): unknown {
  const { text } = readValue(stored);
  if (text === undefined) return undefined;
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

/** Bytes of a value that is no text, as far as they are shown. */
const hexBytesShown = 512;

export function KeyValue(props: {
  bucket: BucketData;
  name: string;
  changes: readonly SeenChange[];
  onDone: () => void;
}) {
  const { bucket, name, changes, onDone } = props;
  const revision = address.value.query.get("revision") ?? "";
  const [asked, setAsked] = useState<"put" | "delete">();
  const newest = changes.find(({ key }) => key === name)?.revision ?? 0;
  const { value, error, reload } = useLoaded(
    (signal) => getKey(bucket.name, name, revision, signal),
    [bucket.name, name, revision, revision === "" ? newest : 0],
  );
  const done = () => {
    reload();
    onDone();
  };
  const ends = { onDone: done, onClose: () => setAsked(undefined) };
  const isGone = isMissing(error);
  return (
    <Section
      title={plain(name)}
      aside={
        value &&
        revision === "" &&
        may("secrets:manage") && (
          <span class="row-actions">
            <Button icon="edit" text="Put…" onClick={() => setAsked("put")} />
            <Button icon="trash" text="Delete…" onClick={() => setAsked("delete")} />
          </span>
        )
      }
    >
      {isGone ? (
        <Empty title={revision === "" ? "The key is not there" : `Revision ${plain(revision)} is not kept`} />
      ) : (
        error !== undefined && <Failure error={error} onRetry={reload} />
      )}
      {value && !isGone && <Value value={value} />}
      {bucket.history > 1 && (
        <>
          <Revision key={revision} asked={revision} />
          <Revisions
            key={name}
            bucket={bucket.name}
            name={name}
            newest={Math.max(newest, value?.revision ?? 0)}
          />
        </>
      )}
      {asked === "put" && value && <PutDialog bucket={bucket.name} found={value} {...ends} />}
      {asked === "delete" && value && <DeleteKey bucket={bucket.name} found={value} {...ends} />}
    </Section>
  );
}

function Value({ value }: { value: ValueData }) {
  const { text, bytes } = readValue(value.value);
  const expires = instantOf(value.expires_at);
  return (
    <>
      <Facts
        of={[
          ["Revision", count(value.revision)],
          ["Written", dateTime(instantOf(value.created_at) ?? 0)],
          ["Size", bytesText(bytes.length)],
          expires !== undefined && ["Expires", dateTime(expires)],
        ]}
      />
      {text === undefined ? (
        <pre class="hex">
          {[...bytes.slice(0, hexBytesShown)].map((one) => one.toString(16).padStart(2, "0")).join(" ")}
          {bytes.length > hexBytesShown && ` … ${count(bytes.length - hexBytesShown)} more bytes`}
        </pre>
      ) : (
        <JsonTextView text={text} what="value" />
      )}
    </>
  );
}

/** The value as it was: revisions are of the bucket, so that the one before is not one less. */
function Revision({ asked }: { asked: string }) {
  const [typed, setTyped] = useState(asked);
  return (
    <form
      class="inline-form"
      onSubmit={(event) => {
        event.preventDefault();
        setQuery({ revision: typed }, {});
      }}
    >
      <Field label="As of revision" type="number" value={typed} onInput={setTyped} />
      <Button type="submit">Show</Button>
      {asked !== "" && <Button onClick={() => setQuery({ revision: "" }, {})}>The newest</Button>}
    </form>
  );
}

export function PutDialog(props: ChangeEnds & { bucket: string; found?: ValueData }) {
  const { bucket, onDone, onClose } = props;
  // What was read when the form opened: a change of another meanwhile refuses this one.
  const [found] = useState(props.found);
  const old = found && readValue(found.value);
  const isBytes = old !== undefined && old.text === undefined;
  const [{ key, text, ttlSeconds }, field] = useFields(() => ({
    ...{ key: found?.key ?? "", text: old?.text ?? "", ttlSeconds: "" },
  }));
  const [isChecked, setChecked] = useState(true);
  const submit = async () => {
    const at = isChecked ? (found?.revision ?? 0) : undefined;
    const { revision } = await putKey(bucket, key, { text, ttlSeconds, onlyAt: at });
    onDone();
    if (!found) go(hrefOf(["kv", bucket], { key }));
    return `${plain(key)} is at revision ${count(revision)}`;
  };
  return (
    <FormDialog
      title={found ? `Put ${plain(found.key)}` : "Put a key"}
      submit="Put"
      onSubmit={submit}
      onClose={onClose}
    >
      {!found && <Field label="Key" isRequired {...field("key")} hint="Such as users/17" />}
      <Field
        label="Value"
        isCode
        rows={10}
        isRequired={isBytes}
        {...(isBytes && { hint: "It is no text now: what you type takes the place of its bytes." })}
        {...field("text")}
      />
      <Field
        label="Seconds that it is kept"
        type="number"
        {...field("ttlSeconds")}
        hint="Empty: as the bucket says."
      />
      <Check
        label={
          found
            ? `Only while the key is at revision ${count(found.revision)}`
            : "Only if there is no such key"
        }
        isChecked={isChecked}
        onChange={setChecked}
      />
    </FormDialog>
  );
}

function DeleteKey(props: ChangeEnds & { bucket: string; found: ValueData }) {
  const { bucket, onDone, onClose } = props;
  const [found] = useState(props.found);
  const [purge, setPurge] = useState(false);
  return (
    <Confirm
      title={`Delete ${plain(found.key)}?`}
      verb="Delete the key"
      act={() => deleteKey(bucket, found.key, { purge, onlyAt: found.revision })}
      done="Key deleted"
      {...{ onDone, onClose }}
    >
      <p>{`Only while it is at revision ${count(found.revision)}: a newer value stays.`}</p>
      <Check label="The values before it, too" isChecked={purge} onChange={setPurge} />
    </Confirm>
  );
}
