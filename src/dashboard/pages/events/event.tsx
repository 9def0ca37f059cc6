import { useState } from "preact/hooks";
import { type EventView, getEvent } from "../../lib/events.ts";
import { dateTime, shownBytesMax } from "../../lib/format.ts";
import { address, hrefOf } from "../../lib/router.ts";
import { may } from "../../lib/session.ts";
import { attempt, copy } from "../../lib/toasts.ts";
import { Button, Empty, Facts, Id, Page, Section, Text } from "../../ui/basics.tsx";
import { Payload } from "../../ui/json-view.tsx";
import { useOne } from "../../ui/resource.tsx";
import { Causes } from "../run/causes.tsx";
import { curlOf } from "../run/run-actions.tsx";
import { NewestRuns } from "../runs/newest-runs.tsx";
import { EmitDialog } from "./events.tsx";

const runsShown = 50;

export function EventPage() {
  const {
    id,
    value: event,
    unread,
  } = useOne({ one: "event", all: "events" }, (of, signal) => getEvent(of, signal, shownBytesMax));
  const [emitting, setEmitting] = useState<EventView>();
  if (!event) return unread;
  const whole = () => (event.cuts.data ? getEvent(id) : Promise.resolve(event));
  const copyCall = async () => {
    const { name, data } = await whole();
    const call = { event: name, dataValue: data };
    await copy(curlOf("SvcService/Emit", call, address.value.environment), "The call");
  };
  const metadata = event.metadata !== undefined || event.cuts.metadata !== undefined;
  return (
    <Page
      title={<Text of={event.name} />}
      about={<Id of={event.id} what="Event id" />}
      actions={
        <>
          {may("events:emit") && (
            <Button icon="events" onClick={() => void attempt(async () => setEmitting(await whole()))}>
              Emit again…
            </Button>
          )}
          <Button icon="copy" text="Copy as curl" onClick={() => void attempt(copyCall)} />
        </>
      }
    >
      <Facts
        of={[
          ["Emitted", event.at === undefined ? "–" : dateTime(event.at)],
          ["Position", event.sequence],
          ["Source", <Text key="source" of={event.source} />],
          ["Schema version", `${event.version}`],
          event.entityId && ["Stream", <Text key="stream" of={event.entityId} />],
          event.runId && [
            "By run",
            <a key="run" href={hrefOf(["runs", event.runId])}>
              {event.runId}
            </a>,
          ],
          event.schemaBreach && ["Breaks", <Text key="breach" of={event.schemaBreach} />],
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
            <NewestRuns
              of="eventId"
              id={event.id}
              limit={runsShown}
              link={(run) => <Text of={run.functionId} href={hrefOf(["runs", run.id])} class="grows" />}
              empty={<Empty title="It started none" />}
            />
          </Section>
          <Causes kind="event" id={event.id} />
        </div>
      </div>
      {emitting && (
        <EmitDialog name={emitting.name} data={emitting.data} onClose={() => setEmitting(undefined)} />
      )}
    </Page>
  );
}
