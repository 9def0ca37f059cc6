import { rpc } from "../../lib/api.ts";
import { count } from "../../lib/format.ts";
import { useFollowed, useLoaded, usePages } from "../../lib/hooks.ts";
import { address, hrefOf } from "../../lib/router.ts";
import { may } from "../../lib/session.ts";
import { attempt } from "../../lib/toasts.ts";
import { type DeliveryView, listDeliveries, redeliver } from "../../lib/webhooks.ts";
import { Button, Empty, Page, Tabs, Text, When } from "../../ui/basics.tsx";
import { Status } from "../../ui/status.tsx";
import { ReadTable } from "../../ui/table.tsx";
import { EndpointLetters } from "./endpoint-letters.tsx";
import { OutboxLetters } from "./outbox-letters.tsx";

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
