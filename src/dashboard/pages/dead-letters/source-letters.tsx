import { useFollowed, usePages } from "../../lib/hooks.ts";
import { hrefOf } from "../../lib/router.ts";
import { may } from "../../lib/session.ts";
import { attempt } from "../../lib/toasts.ts";
import { type DeliveryView, listDeliveries, redeliver } from "../../lib/webhooks.ts";
import { Button, Empty, Text, When } from "../../ui/basics.tsx";
import { Status } from "../../ui/status.tsx";
import { ReadTable } from "../../ui/table.tsx";

/** Deliveries of providers that failed here: their senders were told so, and most send again. */
export function SourceLetters() {
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
