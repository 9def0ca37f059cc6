import { useState } from "preact/hooks";
import { CallError, messageOf, parsedJson } from "../../lib/api.ts";
import { listEvents } from "../../lib/events.ts";
import { count, writeJson } from "../../lib/format.ts";
import { useFollowed, useLoaded } from "../../lib/hooks.ts";
import { go, hrefOf } from "../../lib/router.ts";
import {
  checkTraffic,
  deleteSchema,
  getSchema,
  listSchemas,
  refusedOf,
  type SchemaView,
  tryUpcast,
  type UpcastData,
} from "../../lib/schemas.ts";
import { may } from "../../lib/session.ts";
import { Button, Empty, Failure, FormError, Page, Section, Text, When } from "../../ui/basics.tsx";
import { Choice, Field, FormDialog, Opener, useFields } from "../../ui/dialog.tsx";
import { JsonDiff } from "../../ui/diff.tsx";
import { JsonView } from "../../ui/json-view.tsx";
import { useOne } from "../../ui/resource.tsx";
import { modeWords, RegisterDialog } from "./schemas.tsx";

/** Versions whose texts are read, the newest ones. */
const versionsShown = 20;

async function readVersions(event: string, signal: AbortSignal): Promise<SchemaView[]> {
  const { rows } = await listSchemas("", signal, event);
  if (rows.length === 0) throw new CallError("schema not found", { status: 404, code: "not_found" });
  const newest = rows.slice(-versionsShown).toReversed();
  return Promise.all(newest.map(({ version }) => getSchema(event, version, signal)));
}

export function SchemaPage() {
  const { id: event, value, reload, unread } = useOne({ one: "schema", all: "schemas" }, readVersions);
  useFollowed(reload, { frames: `system.schema.${event}.>` });
  if (!value) return unread;
  const latest = value[0]!;
  const next = { event, version: latest.version + 1, schemaText: writeJson(latest.schema) };
  return (
    <Page
      title={<Text of={event} />}
      about={latest.description && <Text of={latest.description} />}
      actions={
        may("schemas:manage") && (
          <Opener kind="primary" icon="schemas" text="Register the next version…" onClosed={reload}>
            {(onClose) => <RegisterDialog next={next} onClose={onClose} />}
          </Opener>
        )
      }
    >
      <div class="columns">
        <div>
          <Section title="Versions">
            <Versions versions={value} onDone={reload} />
          </Section>
        </div>
        <div>
          <Section title="What it says to recent events">
            <Traffic event={event} />
          </Section>
          <Section title="Try an upcast">
            <Upcasting key={`${event} ${latest.version}`} event={event} versions={value} />
          </Section>
        </div>
      </div>
    </Page>
  );
}

function Versions({ versions, onDone }: { versions: readonly SchemaView[]; onDone: () => void }) {
  const [deleted, setDeleted] = useState<SchemaView>();
  const remove = async ({ event, version }: SchemaView) => {
    await deleteSchema(event, version);
    if (versions.length === 1) go(hrefOf(["schemas"]));
    else onDone();
    return `Version ${version} deleted`;
  };
  return (
    <ol class="versions">
      {versions.map((one, index) => {
        const before = versions[index + 1];
        return (
          <li key={one.version}>
            <details open={index === 0}>
              <summary>
                <strong>{`Version ${one.version}`}</strong>
                <Text of={one.description} in="span" class="grows" />
                <span class="faint">
                  <When at={one.createdAt} />
                </span>
              </summary>
              <div class="indented">
                {before ? (
                  <JsonDiff before={before.schema} after={one.schema} />
                ) : (
                  <JsonView value={one.schema} what="schema" />
                )}
                {may("schemas:manage") && (
                  <p class="more">
                    <Button onClick={() => setDeleted(one)}>Delete…</Button>
                  </p>
                )}
              </div>
            </details>
          </li>
        );
      })}
      {deleted && (
        <FormDialog
          title={`Delete version ${deleted.version}?`}
          submit="Delete"
          isDangerous
          onSubmit={() => remove(deleted)}
          onClose={() => setDeleted(undefined)}
        >
          <p>
            {versions.length === 1
              ? "The event has no schema then, and may hold anything."
              : "Events of this version are no longer checked by it."}
          </p>
        </FormDialog>
      )}
    </ol>
  );
}

const windows = [
  ["1", "the last hour"],
  ["24", "the last day"],
  ["168", "the last week"],
] as const;

function Traffic({ event }: { event: string }) {
  const [hours, setHours] = useState("24");
  const { value, error, reload } = useLoaded(
    (signal) => checkTraffic({ event_name: event, traffic_window_hours: hours }, signal),
    [event, hours],
  );
  return (
    <>
      <div class="sql-tools">
        <label class="sql-most">
          {"Events of "}
          <select value={hours} onChange={({ currentTarget }) => setHours(currentTarget.value)}>
            {windows.map(([hoursOf, word]) => (
              <option key={hoursOf} value={hoursOf}>
                {word}
              </option>
            ))}
          </select>
        </label>
        <Button icon="refresh" label="Check again" onClick={reload} />
      </div>
      {error !== undefined && <Failure error={error} onRetry={reload} />}
      {!value && error === undefined && <p class="faint">Reading…</p>}
      {value && (
        <>
          <ul class="plain-list">
            {value.schemas.map((check) => (
              <li key={check.version}>
                <span>{`Version ${check.version}`}</span>
                <span class="grows">
                  {check.compile_error !== "" && <Text of={check.compile_error} in="span" class="warn" />}
                  {check.compile_error === "" && !check.asserts && (
                    <span class="faint">refuses nothing at all</span>
                  )}
                </span>
                <span class={refusedOf(check) > 0 ? "bad-text" : "faint"}>
                  {refusedOf(check) === 0 ? "none refused" : `${count(refusedOf(check))} would be refused`}
                  {check.traffic_truncated && ", of the newest alone"}
                </span>
              </li>
            ))}
          </ul>
          <p class="hint">{`${modeWords[value.mode]}.`}</p>
        </>
      )}
    </>
  );
}

/** Data of one version, and what becomes of it in another. */
function Upcasting({ event, versions }: { event: string; versions: readonly SchemaView[] }) {
  const words = versions.map(({ version }) => [`${version}`, `version ${version}`] as const);
  const [{ from, to, text }, field] = useFields({ from: words.at(-1)![0], to: words[0]![0], text: "{}" });
  const [result, setResult] = useState<{ asked: unknown; upcast: UpcastData }>();
  const [error, setError] = useState("");
  if (versions.length < 2) return <Empty title="There is one version only" />;
  const takeNewest = async () => {
    const { events } = await listEvents({ limit: "1", search: event });
    if (events[0]?.name === event) field("text").onInput(writeJson(events[0].data));
  };
  const submit = async () => {
    setError("");
    setResult(undefined);
    try {
      const data = parsedJson(text, "data");
      const upcast = await tryUpcast({
        ...{ eventName: event, fromVersion: Number(from), toVersion: Number(to), data },
      });
      setResult({ asked: data, upcast });
    } catch (failure) {
      setError(messageOf(failure));
    }
  };
  return (
    <form
      class="form"
      onSubmit={(submitted) => {
        submitted.preventDefault();
        void submit();
      }}
    >
      <div class="form form-pairs">
        <Choice label="Data of" {...field("from")} options={words} />
        <Choice label="becomes" {...field("to")} options={words} />
      </div>
      <Field label="Data (JSON)" isCode rows={6} {...field("text")} />
      <div class="row-actions">
        <Button type="submit" kind="primary" text="Try" />
        {may("events:subscribe") && <Button onClick={() => void takeNewest()}>Take the newest event</Button>}
      </div>
      <FormError of={error} />
      {result && (
        <div role="status">
          <ul class="plain-list">
            {result.upcast.steps_applied.map((step) => (
              <li key={step.to_version}>
                <span>{`${step.from_version} → ${step.to_version}`}</span>
                <Text of={step.description} in="span" class="grows" />
              </li>
            ))}
          </ul>
          <JsonDiff before={result.asked} after={result.upcast.data} />
        </div>
      )}
    </form>
  );
}
