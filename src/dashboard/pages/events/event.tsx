import { useEffect, useState } from "preact/hooks";
import { shownBytesMax } from "../../lib/cuts.ts";
import { type EventView, getEvent } from "../../lib/events.ts";
import { dateTime } from "../../lib/format.ts";
import { useLive, useLoaded } from "../../lib/hooks.ts";
import { noteRecent } from "../../lib/prefs.ts";
import { address, hrefOf } from "../../lib/router.ts";
import { listRuns } from "../../lib/runs.ts";
import { may } from "../../lib/session.ts";
import { attempt, copy } from "../../lib/toasts.ts";
import {
  Button,
  Empty,
  Facts,
  Failure,
  Id,
  PageHead,
  Section,
  Text,
  Unread,
  When,
} from "../../ui/basics.tsx";
import { Payload } from "../../ui/payload.tsx";
import { Status } from "../../ui/status.tsx";
import { Causes } from "../run/causes.tsx";
import { curlOf } from "../run/run-actions.tsx";
import { EmitDialog } from "./emit.tsx";

export function EventPage() {
  const id = address.value.rest[0] ?? "";
  const { value: event, error, reload } = useLoaded((signal) => getEvent(id, signal, shownBytesMax), [id]);
  const [emitting, setEmitting] = useState<EventView>();
  useEffect(() => noteRecent("events", id), [id]);
  if (!event) return <Unread error={error} onRetry={reload} one="event" all="events" />;
  const whole = () => (event.cuts.data ? getEvent(id) : Promise.resolve(event));
  const copyCall = async () => {
    const { name, data } = await whole();
    const call = { event: name, dataValue: data };
    await copy(curlOf("SvcService/Emit", call, address.value.environment), "The call");
  };
  const metadata = event.metadata !== undefined || event.cuts.metadata !== undefined;
  return (
    <div class="page">
      <PageHead
        title={<Text of={event.name} />}
        about={<Id of={event.id} what="Event id" />}
        actions={
          <>
            {may("events:emit") && (
              <Button icon="events" onClick={() => void attempt(async () => setEmitting(await whole()))}>
                Emit again…
              </Button>
            )}
            <Button icon="copy" onClick={() => void attempt(copyCall)}>
              Copy as curl
            </Button>
          </>
        }
      />
      <Facts
        of={[
          ["Emitted", event.at === undefined ? "–" : dateTime(event.at)],
          ["Position", event.sequence],
          ["Source", <Text key="source" of={event.source} />],
          ["Schema version", `${event.version}`],
          ...(event.entityId ? ([["Stream", <Text key="stream" of={event.entityId} />]] as const) : []),
          ...(event.runId
            ? ([
                [
                  "By run",
                  <a key="run" href={hrefOf(["runs", event.runId])}>
                    {event.runId}
                  </a>,
                ],
              ] as const)
            : []),
          ...(event.schemaBreach
            ? ([["Breaks", <Text key="breach" of={event.schemaBreach} />]] as const)
            : []),
        ]}
      />
      <div class="columns">
        <div>
          <Section title="Data">
            <Payload
              {...{ value: event.data, cut: event.cuts.data, what: "data" }}
              read={async (signal) => (await getEvent(id, signal)).data}
            />
          </Section>
          {metadata && (
            <Section title="Metadata">
              <Payload
                {...{ value: event.metadata, cut: event.cuts.metadata, what: "metadata" }}
                read={async (signal) => (await getEvent(id, signal)).metadata}
              />
            </Section>
          )}
        </div>
        <div>
          <Section title="Runs it started" aside={<a href={hrefOf(["runs"], { event: event.id })}>All</a>}>
            <Started eventId={event.id} />
          </Section>
          <Causes kind="event" id={event.id} />
        </div>
      </div>
      {emitting && (
        <EmitDialog name={emitting.name} data={emitting.data} onClose={() => setEmitting(undefined)} />
      )}
    </div>
  );
}

const runsShown = 50;

function Started({ eventId }: { eventId: string }) {
  const { value, error, reload } = useLoaded(
    (signal) => listRuns({ eventId }, { limit: runsShown }, signal),
    [eventId],
  );
  useLive("system.run.*.*", { onFrame: ({ data }) => data.eventId === eventId && reload(), onBack: reload });
  if (error !== undefined) return <Failure error={error} onRetry={reload} />;
  if (value?.runs.length === 0) return <Empty title="It started none" />;
  return (
    <ul class="plain-list">
      {value?.runs.map((run) => (
        <li key={run.id}>
          <Status of={run.status} pauseReason={run.pauseReason} phase={run.phase} />
          <Text of={run.functionId} href={hrefOf(["runs", run.id])} class="grows" />
          <span class="faint">
            <When at={run.createdAt} />
          </span>
        </li>
      ))}
    </ul>
  );
}
