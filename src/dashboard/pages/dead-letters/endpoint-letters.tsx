import { useState } from "preact/hooks";
import type { WebhookDeadLetter } from "../../../gen/svc/v1/webhook_pb.ts";
import { rpc } from "../../lib/api.ts";
import { count, counted } from "../../lib/format.ts";
import { useFollowed, useLoaded, usePages } from "../../lib/hooks.ts";
import type { InJson } from "../../lib/messages.ts";
import { hrefOf } from "../../lib/router.ts";
import { may } from "../../lib/session.ts";
import { attempt } from "../../lib/toasts.ts";
import { Button, Empty, Failure, Section, Text, When } from "../../ui/basics.tsx";
import { Confirm } from "../../ui/dialog.tsx";
import { Status } from "../../ui/status.tsx";
import { ReadTable } from "../../ui/table.tsx";

type LetterMessage = InJson<WebhookDeadLetter>;

const service = "WebhookEndpointService";
const pageRows = 50;

/** Events that receivers of webhooks did not take, by receiver. */
export function EndpointLetters() {
  const { value, error, reload } = useLoaded(async (signal) => {
    const asked = { limit: 200 };
    const { endpoints = [] } = await rpc(service, "ListWebhookEndpoints", asked, signal);
    return endpoints.filter(({ deadLetters = 0 }) => deadLetters > 0);
  }, []);
  useFollowed(reload, { frames: "system.webhook_endpoint.>" });
  if (error !== undefined) return <Failure error={error} onRetry={reload} />;
  if (!value) return <p class="faint">Reading…</p>;
  if (value.length === 0) return <Empty title="Every receiver took its events" />;
  return (
    <>
      {value.map((endpoint) => (
        <Section
          key={endpoint.id}
          title={endpoint.name || endpoint.id || ""}
          aside={<span class="faint">{counted(endpoint.deadLetters ?? 0, "dead letter")}</span>}
        >
          <Text of={endpoint.url} in="p" class="lead" />
          <Letters endpoint={endpoint} onDone={reload} />
        </Section>
      ))}
    </>
  );
}

export function Letters(props: { endpoint: { id?: string; deadLetters?: number }; onDone: () => void }) {
  const { endpoint, onDone } = props;
  const endpointId = endpoint.id;
  const [discarded, setDiscarded] = useState<LetterMessage>();
  const read = usePages(
    async (cursor, signal) => {
      const offset = Number(cursor || "0");
      const asked = { endpointId, limit: pageRows, offset };
      const { deadLetters = [] } = await rpc(service, "ListWebhookDeadLetters", asked, signal);
      const next = deadLetters.length < pageRows ? undefined : `${offset + pageRows}`;
      return { rows: deadLetters, next };
    },
    [endpointId, endpoint.deadLetters],
  );
  const redeliver = async ({ eventId }: LetterMessage) => {
    const call = () => rpc(service, "RedeliverWebhookDeadLetter", { endpointId, eventId });
    if (await attempt(call, "It is sent again")) read.reload();
  };
  const done = () => {
    read.reload();
    onDone();
  };
  return (
    <>
      <ReadTable
        read={read}
        label="Dead letters"
        keyOf={({ eventId = "" }) => eventId}
        columns={[
          {
            name: "Event",
            of: ({ eventId = "", eventName }) => (
              <>
                <Text of={eventName} href={hrefOf(["events", eventId])} />
                <Text of={eventId} in="code" class="under" />
              </>
            ),
          },
          { name: "Attempts", isNumber: true, of: ({ attempts }) => count(attempts ?? 0) },
          { name: "Last error", of: ({ lastError = "" }) => <Text of={lastError.slice(0, 300)} /> },
          { name: "Dead", isNumber: true, of: ({ deadAt }) => <When at={deadAt} /> },
          {
            name: "",
            of: (letter) =>
              letter.redelivering ? (
                <Status of="pending" />
              ) : (
                may("webhooks:manage") && (
                  <span class="row-actions">
                    <Button icon="refresh" text="Send again" onClick={() => void redeliver(letter)} />
                    <Button onClick={() => setDiscarded(letter)}>Discard…</Button>
                  </span>
                )
              ),
          },
        ]}
        empty="No dead letters"
      />
      {discarded && (
        <Confirm
          title="Discard this dead letter?"
          verb="Discard"
          act={() => rpc(service, "DiscardWebhookDeadLetter", { endpointId, eventId: discarded.eventId })}
          done="Dead letter discarded"
          onDone={done}
          onClose={() => setDiscarded(undefined)}
        >
          <p>The receiver never gets the event, which stays in the log.</p>
        </Confirm>
      )}
    </>
  );
}
