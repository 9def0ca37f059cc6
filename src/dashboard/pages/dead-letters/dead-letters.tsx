import type { Static } from "@sinclair/typebox";
import { useState } from "preact/hooks";
import type { DeadLetter } from "../../../domain/record/outbox/operations.ts";
import { rest, rpc } from "../../lib/api.ts";
import { count } from "../../lib/format.ts";
import { useFollowed, useLoaded, usePages } from "../../lib/hooks.ts";
import { readValue } from "../../lib/kv.ts";
import { address, hrefOf, queryOf } from "../../lib/router.ts";
import { may } from "../../lib/session.ts";
import { attempt } from "../../lib/toasts.ts";
import { type DeliveryView, listDeliveries, redeliver } from "../../lib/webhooks.ts";
import { Button, Empty, Page, Tabs, Text, When } from "../../ui/basics.tsx";
import { Confirm, Dialog } from "../../ui/dialog.tsx";
import { JsonTextView } from "../../ui/json-view.tsx";
import { Status } from "../../ui/status.tsx";
import { ReadTable } from "../../ui/table.tsx";
import { EndpointLetters } from "./endpoint-letters.tsx";

type LetterData = Static<typeof DeadLetter>;
interface LettersData {
  items: LetterData[];
  limit: number;
  offset: number;
}

const letters = "/api/v1/outbox/dead-letter";
const pageRows = 50;

async function listLetters(cursor: string, signal: AbortSignal) {
  const env = address.value.environment;
  const listPath = `${letters}${queryOf({ env, limit: `${pageRows}`, offset: cursor || "0" })}`;
  const { items, limit, offset } = await rest<LettersData>(listPath, { signal });
  // A page of large payloads has a lower limit than was asked for.
  return { rows: items, next: items.length < limit ? undefined : `${offset + limit}` };
}

/** Messages that the bus refused, and what else was given up. */
function OutboxLetters() {
  const read = usePages(listLetters, []);
  const [shown, setShown] = useState<LetterData>();
  const [discarded, setDiscarded] = useState<LetterData>();
  useFollowed(read.reload, { frames: "system.outbox.>" });
  const requeue = async ({ event_id }: LetterData) => {
    const path = `${letters}/${encodeURIComponent(event_id)}/requeue`;
    if (await attempt(() => rest(path, { method: "POST" }), "It is tried anew")) read.reload();
  };
  return (
    <>
      <ReadTable
        read={read}
        keyOf={({ id }) => id}
        columns={[
          {
            name: "Topic",
            of: (letter) => (
              <>
                <Text of={letter.topic} />
                <span class="under">{letter.kind}</span>
              </>
            ),
          },
          {
            name: "Event",
            of: ({ event_id }) => (
              <a href={hrefOf(["events", event_id])}>
                <Text of={event_id} in="code" />
              </a>
            ),
          },
          { name: "Attempts", isNumber: true, of: ({ attempts }) => count(attempts) },
          { name: "Last error", of: ({ last_error }) => <Text of={last_error.slice(0, 300)} /> },
          { name: "Dead", isNumber: true, of: ({ dead_at }) => <When at={dead_at} /> },
          {
            name: "",
            of: (letter) => (
              <span class="row-actions">
                {letter.kind !== "group" && <Button onClick={() => setShown(letter)}>Payload</Button>}
                {may("outbox:manage") && (
                  <>
                    <Button icon="refresh" text="Try again" onClick={() => void requeue(letter)} />
                    <Button onClick={() => setDiscarded(letter)}>Discard…</Button>
                  </>
                )}
              </span>
            ),
          },
        ]}
        empty="The bus took everything"
        says="A message that still cannot be published after its last attempt is kept here, and a delivery that a group gave up."
      />
      {shown && (
        <Dialog title="Payload" onClose={() => setShown(undefined)}>
          <JsonTextView text={readValue(shown.payload).text ?? ""} what="payload" />
        </Dialog>
      )}
      {discarded && (
        <Confirm
          title="Discard the dead letters of this event?"
          verb="Discard"
          act={() => rest(`${letters}/${encodeURIComponent(discarded.event_id)}`, { method: "DELETE" })}
          done="Dead letters discarded"
          onDone={read.reload}
          onClose={() => setDiscarded(undefined)}
        >
          <p>Who should have got it never does. The event itself stays in the log.</p>
        </Confirm>
      )}
    </>
  );
}

/** Deliveries of providers that failed here: their senders were told so, and most send again. */
function SourceLetters() {
  const filters = { sourceId: "", status: "failed" };
  const read = usePages((cursor, signal) => listDeliveries(filters, cursor, signal), []);
  useFollowed(read.reload, { frames: "system.webhook_source.>" });
  const emit = async ({ id }: DeliveryView) => {
    if (await attempt(() => redeliver(id), "Its event is emitted")) read.reload();
  };
  return (
    <ReadTable
      read={read}
      keyOf={({ id }) => id}
      columns={[
        {
          name: "Delivery",
          of: ({ id, eventName }) => (
            <>
              <code>{id}</code>
              {eventName && <Text of={eventName} in="span" class="under" />}
            </>
          ),
        },
        { name: "Status", of: ({ status }) => <Status of={status} /> },
        { name: "Source", of: ({ sourceId }) => <Text of={sourceId} /> },
        { name: "Error", of: ({ error }) => <Text of={error} /> },
        { name: "Received", isNumber: true, of: ({ createdAt }) => <When at={createdAt} /> },
        {
          name: "",
          of: (delivery) =>
            may("webhooks:manage") && (
              <Button icon="refresh" text="Emit its event" onClick={() => void emit(delivery)} />
            ),
        },
      ]}
      empty={
        <Empty title="No delivery failed">
          <p>
            {"Sources and all their deliveries: "}
            <a href={hrefOf(["webhooks-in"])}>Webhooks in</a>
          </p>
        </Empty>
      }
    />
  );
}

const kinds = [
  ["bus", "Bus", "events:subscribe", OutboxLetters],
  ["endpoints", "Webhooks out", "webhooks:read", EndpointLetters],
  ["sources", "Webhooks in", "webhooks:read", SourceLetters],
  ["groups", "Groups", "events:subscribe", GroupLetters],
] as const;

/** What could not be delivered, wherever it was going. */
export function DeadLettersPage() {
  const offered = kinds.filter(([, , needs]) => may(needs));
  const asked = address.value.query.get("of") ?? "bus";
  const [shown, , , Letters] = offered.find(([kind]) => kind === asked) ?? offered[0]!;
  return (
    <Page title="Dead letters" about="What was tried until its attempts were spent">
      <Tabs
        label="Where it was going"
        tabs={offered.map(([kind, name]) => ({
          ...{ name, isShown: kind === shown },
          href: hrefOf(["dead-letters"], { of: kind === "bus" ? "" : kind }),
        }))}
      />
      <Letters key={shown} />
    </Page>
  );
}

/** What groups gave up and dropped, as counts: the dead letters stand with those of the bus. */
function GroupLetters() {
  const read = useLoaded(async (signal) => {
    const asked = { limit: 500 };
    const answer = await rpc("PubSubService", "ListConsumerGroups", asked, signal);
    return (answer.groups ?? []).filter(
      ({ droppedCount, givenUpCount }) => Number(droppedCount ?? 0) + Number(givenUpCount ?? 0) > 0,
    );
  }, []);
  useFollowed(read.reload, { frames: "system.group.>" });
  return (
    <>
      <p class="lead">
        A group passes over what its members refuse too often: such a delivery is a dead letter of kind group,
        listed <a href={hrefOf(["dead-letters"])}>with those of the bus</a>. What is dropped is counted only.
      </p>
      <ReadTable
        read={read}
        keyOf={({ namespace = "", name = "" }) => `${namespace} ${name}`}
        columns={[
          {
            name: "Group",
            of: ({ namespace, name }) => <Text of={namespace ? `${namespace}:${name}` : name} />,
          },
          { name: "Pattern", of: ({ pattern }) => <Text of={pattern} /> },
          { name: "Given up", isNumber: true, of: ({ givenUpCount }) => count(Number(givenUpCount ?? 0)) },
          { name: "Dropped", isNumber: true, of: ({ droppedCount }) => count(Number(droppedCount ?? 0)) },
          { name: "Held", isNumber: true, of: ({ inflightCount }) => count(inflightCount ?? 0) },
        ]}
        empty="No group gave anything up"
      />
    </>
  );
}
