import { useEffect, useState } from "preact/hooks";
import { getEvent } from "../../lib/events.ts";
import { dateTime } from "../../lib/format.ts";
import { useLive, useLoaded } from "../../lib/hooks.ts";
import { noteRecent } from "../../lib/prefs.ts";
import { address, hrefOf } from "../../lib/router.ts";
import { listRuns } from "../../lib/runs.ts";
import { may } from "../../lib/session.ts";
import { copy } from "../../lib/toasts.ts";
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
import { JsonView } from "../../ui/json-view.tsx";
import { Status } from "../../ui/status.tsx";
import { Causes } from "../run/causes.tsx";
import { curlOf } from "../run/run-actions.tsx";
import { EmitDialog } from "./emit.tsx";

export function EventPage() {
  const id = address.value.rest[0] ?? "";
  const { value: event, error, reload } = useLoaded((signal) => getEvent(id, signal), [id]);
  const [isEmitting, setEmitting] = useState(false);
  useEffect(() => noteRecent("events", id), [id]);
  if (!event) return <Unread error={error} onRetry={reload} one="event" all="events" />;
  const call = { event: event.name, dataValue: event.data };
  return (
    <div class="page">
      <PageHead
        title={<Text of={event.name} />}
        about={<Id of={event.id} what="Event id" />}
        actions={
          <>
            {may("events:emit") && (
              <Button icon="events" onClick={() => setEmitting(true)}>
                Emit again…
              </Button>
            )}
            <Button
              icon="copy"
              onClick={() =>
                void copy(curlOf("SvcService/Emit", call, address.value.environment), "The call")
              }
            >
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
            <JsonView value={event.data} what="data" />
          </Section>
          {event.metadata !== undefined && (
            <Section title="Metadata">
              <JsonView value={event.metadata} what="metadata" />
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
      {isEmitting && <EmitDialog name={event.name} data={event.data} onClose={() => setEmitting(false)} />}
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
          <a class="grows" href={hrefOf(["runs", run.id])}>
            <Text of={run.functionId} />
          </a>
          <span class="faint">
            <When at={run.createdAt} />
          </span>
        </li>
      ))}
    </ul>
  );
}
