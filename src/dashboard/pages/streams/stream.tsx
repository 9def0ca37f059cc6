import { useState } from "preact/hooks";
import { isMissing, parsedJson, rpc } from "../../lib/api.ts";
import { count, cut, dateTime, plain, writeJson } from "../../lib/format.ts";
import { useLive, useLoaded } from "../../lib/hooks.ts";
import { lastSaid } from "../../lib/last-said.ts";
import { address, go, hrefOf, setQuery } from "../../lib/router.ts";
import { may } from "../../lib/session.ts";
import {
  getSnapshot,
  getStream,
  readNewest,
  type StreamEventView,
  type StreamView,
} from "../../lib/streams.ts";
import { Button, Empty, Facts, Failure, Page, Section, Text, When } from "../../ui/basics.tsx";
import { type DialogEnds, Field, FormDialog, Opener, useFields } from "../../ui/dialog.tsx";
import { JsonView } from "../../ui/json-view.tsx";
import { useOne } from "../../ui/resource.tsx";
import { AppendDialog } from "./streams.tsx";

/** Events that are read at first, and by each wish for more. */
const readAtOnce = 200;
const shownCharacters = 300;

export function StreamPage() {
  const [limit, setLimit] = useState(readAtOnce);
  const { id, value, error, reload, unread } = useOne(
    { one: "stream", all: "streams" },
    async (entity, signal) => {
      const [stream, events] = await Promise.all([
        getStream(entity, signal),
        readNewest(entity, limit, signal),
      ]);
      return { stream, events };
    },
    [limit],
  );
  useLive(`system.stream.${id}.*`, { onFrame: reload, onBack: reload });
  if (!value) return unread;
  const { stream, events } = value;
  const asked = address.value.query.get("at");
  const shown = asked === null ? stream.version : Math.min(Number(asked) || 1, stream.version);
  const first = events.at(-1)?.at ?? 1;
  return (
    <Page
      title={<Text of={id} />}
      actions={may("entities:append") && <StreamActions {...{ stream, shown, events }} onDone={reload} />}
    >
      {error !== undefined && <Failure error={error} onRetry={reload} />}
      <Facts
        of={[
          ["Type", <Text key="type" of={stream.type} />],
          ["Version", count(stream.version)],
          ["Began", <When key="began" at={stream.createdAt} />],
          ["Changed", <When key="changed" at={stream.updatedAt} />],
        ]}
      />
      <Versions {...{ first, shown }} last={stream.version} isNow={asked === null} events={events} />
      <div class="columns">
        <Section title="Events">
          <StreamEvents {...{ events, shown }} />
          {first > 1 && <Button onClick={() => setLimit(limit + readAtOnce)}>Show earlier ones</Button>}
        </Section>
        <div>
          <Section title={`Fields at version ${shown}`}>
            <p class="hint">
              {first > 1
                ? `What the events from version ${first} on said last of each field.`
                : "What the events up to here said last of each field."}
            </p>
            <JsonView value={lastSaid(events, shown)} what="fields" />
          </Section>
          <Snapshot id={id} version={shown} />
        </div>
      </div>
    </Page>
  );
}

/** The version that is shown: all below is as it was then. */
function Versions(props: {
  first: number;
  last: number;
  shown: number;
  isNow: boolean;
  events: readonly StreamEventView[];
}) {
  const { first, last, shown, isNow, events } = props;
  const time = events.find(({ at }) => at === shown)?.time;
  if (last <= first) return null;
  return (
    <div class={`time ${isNow ? "" : "past"}`}>
      <label class="time-label" for="version">
        Version
      </label>
      <input
        id="version"
        type="range"
        min={first}
        max={last}
        value={shown}
        aria-valuetext={`Version ${shown} of ${last}`}
        onInput={({ currentTarget: { value } }) =>
          setQuery({ at: Number(value) === last ? undefined : value })
        }
      />
      <span class="time-shown number">
        {`${count(shown)} of ${count(last)}`}
        {time !== undefined && <span class="faint">{dateTime(time)}</span>}
      </span>
      {!isNow && <Button onClick={() => setQuery({ at: undefined })}>Back to now</Button>}
    </div>
  );
}

const StreamEvents = ({ events, shown }: { events: readonly StreamEventView[]; shown: number }) => (
  <ol class="versions">
    {events.map((event) => (
      <li key={event.id} class={event.at > shown ? "ahead" : undefined} data-version={event.at}>
        <details>
          <summary>
            <span class="number version-number">{event.at}</span>
            <span class="version-text">
              <Text of={event.name} in="strong" />
              <code>
                <bdi>
                  {event.isRedacted
                    ? "overwritten"
                    : plain(cut(JSON.stringify(event.data) ?? "", shownCharacters))}
                </bdi>
              </code>
            </span>
            <span class="faint">
              <When at={event.time} />
            </span>
          </summary>
          <div class="indented">
            <p class="links">
              <a href={hrefOf(["events", event.id])}>The event and what it started</a>
              {event.runId !== "" && <a href={hrefOf(["runs", event.runId])}>Appended by a run</a>}
            </p>
            {!event.isRedacted && <JsonView value={event.data} what="data" />}
          </div>
        </details>
      </li>
    ))}
  </ol>
);

function Snapshot({ id, version }: { id: string; version: number }) {
  const { value, error, reload } = useLoaded((signal) => getSnapshot(id, version, signal), [id, version]);
  useLive(`system.stream.${id}.snapshotted`, { onFrame: reload, onBack: reload });
  const isNone = isMissing(error);
  return (
    <Section title="Snapshot">
      {isNone && <Empty title="None at or before this version" />}
      {error !== undefined && !isNone && <Failure error={error} onRetry={reload} />}
      {value && !isNone && (
        <>
          <p class="hint">
            {`State at version ${value.at}, as its program stored it `}
            <When at={value.createdAt} />
          </p>
          <JsonView key={value.at} value={value.state} what="state" />
        </>
      )}
    </Section>
  );
}

interface StreamShown {
  stream: StreamView;
  shown: number;
  events: readonly StreamEventView[];
}

function StreamActions({ onDone, ...state }: StreamShown & { onDone: () => void }) {
  return (
    <>
      <Opener kind="primary" icon="streams" text="Append…" onClosed={onDone}>
        {(onClose) => <AppendDialog stream={state.stream} onClose={onClose} />}
      </Opener>
      <Opener text="Store a snapshot…" onClosed={onDone}>
        {(onClose) => <SnapshotDialog {...state} onClose={onClose} />}
      </Opener>
      <Opener text="Delete…">{(onClose) => <DeleteDialog stream={state.stream} onClose={onClose} />}</Opener>
    </>
  );
}

function SnapshotDialog({ stream, shown, events, onClose }: StreamShown & DialogEnds) {
  const [{ text }, field] = useFields(() => ({ text: writeJson(lastSaid(events, shown)) }));
  const submit = async () => {
    await rpc("EntityStreamService", "CreateSnapshot", {
      ...{ entityId: stream.id, entityType: stream.type, entityVersion: `${shown}` },
      stateValue: parsedJson(text, "state"),
    });
    return `Snapshot stored at version ${shown}`;
  };
  return (
    <FormDialog title={`Snapshot at version ${shown}`} submit="Store" onSubmit={submit} onClose={onClose}>
      <p>
        Programs that load the entity begin with the state that is stored, so it must be what they expect.
      </p>
      <Field label="State (JSON)" isCode rows={12} {...field("text")} />
    </FormDialog>
  );
}

function DeleteDialog({ stream, onClose }: DialogEnds & { stream: StreamView }) {
  const [purge, setPurge] = useState(false);
  const [{ typed }, field] = useFields({ typed: "" });
  const submit = async () => {
    await rpc("EntityStreamService", "DeleteStream", { entityId: stream.id, purge });
    go(hrefOf(["streams"]));
    return `${plain(stream.id)} deleted`;
  };
  return (
    <FormDialog
      title={`Delete ${plain(stream.id)}?`}
      submit="Delete"
      isDangerous
      isDisabled={typed !== stream.id}
      onSubmit={submit}
      onClose={onClose}
    >
      <p>The entity takes no more events, and its id is not free again. This cannot be undone.</p>
      <label class="check">
        <input type="checkbox" checked={purge} onChange={() => setPurge(!purge)} />
        Overwrite what its events hold
      </label>
      <Field label="Type the entity's id" {...field("typed")} />
    </FormDialog>
  );
}
