import { rpc } from "../../lib/api.ts";
import { useFollowed, usePages } from "../../lib/hooks.ts";
import { hrefOf } from "../../lib/router.ts";
import { may } from "../../lib/session.ts";
import { attempt } from "../../lib/toasts.ts";
import { Button, Empty, Text, When } from "../../ui/basics.tsx";
import { Status } from "../../ui/status.tsx";
import { ReadTable } from "../../ui/table.tsx";

const service = "WebhookService";
const pageRows = 50;

/** Deliveries of providers that failed here: their senders were told so, and most send again. */
export function SourceLetters() {
  const read = usePages(async (cursor, signal) => {
    const offset = Number(cursor || "0");
    const asked = { status: "failed", limit: pageRows, offset };
    const { deliveries = [] } = await rpc(service, "ListWebhookDeliveries", asked, signal);
    const next = deliveries.length < pageRows ? undefined : `${offset + pageRows}`;
    return { rows: deliveries, next };
  }, []);
  useFollowed(read.reload, { frames: "system.webhook_source.>" });
  const redeliver = async ({ id }: { id?: string }) => {
    const call = () => rpc(service, "RedeliverWebhook", { id });
    if (await attempt(call, "Its event is emitted")) read.reload();
  };
  return (
    <ReadTable
      read={read}
      keyOf={({ id = "" }) => id}
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
        { name: "Status", of: ({ status = "" }) => <Status of={status} /> },
        { name: "Source", of: ({ sourceId }) => <Text of={sourceId} /> },
        { name: "Error", of: ({ error = "" }) => <Text of={error} /> },
        { name: "Received", isNumber: true, of: ({ createdAt }) => <When at={createdAt} /> },
        {
          name: "",
          of: (delivery) =>
            may("webhooks:manage") && (
              <Button icon="refresh" text="Emit its event" onClick={() => void redeliver(delivery)} />
            ),
        },
      ]}
      empty={
        <Empty title="No delivery failed">
          <p>
            {"Sources and all their deliveries: "}
            <a href={hrefOf(["webhooks"])}>Webhooks</a>
          </p>
        </Empty>
      }
    />
  );
}
