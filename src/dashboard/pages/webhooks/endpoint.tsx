import { useState } from "preact/hooks";
import { count, counted, dateTime, plain } from "../../lib/format.ts";
import { useFollowed } from "../../lib/hooks.ts";
import { go, hrefOf } from "../../lib/router.ts";
import { may } from "../../lib/session.ts";
import { attempt } from "../../lib/toasts.ts";
import { changeEndpoint, deleteEndpoint, type EndpointView, getEndpoint } from "../../lib/webhooks.ts";
import { Button, Facts, Failure, Id, Page, Section, Text, When } from "../../ui/basics.tsx";
import { ConfirmOpener, Field, FormDialog, Opener, useFields } from "../../ui/dialog.tsx";
import { useOne } from "../../ui/resource.tsx";
import { Status } from "../../ui/status.tsx";
import { MadeKey } from "../access/made-key.tsx";
import { BreakersOf } from "../breakers.tsx";
import { Letters } from "../dead-letters/endpoint-letters.tsx";
import { EndpointDialog, readMs, standingOf } from "./endpoints.tsx";

export function EndpointPage() {
  const {
    id,
    value: endpoint,
    error,
    reload,
    unread,
  } = useOne({ one: "endpoint", all: "webhooks-out", allName: "endpoints" }, getEndpoint);
  useFollowed(reload, { frames: `system.webhook_endpoint.${id}.>`, everyMs: readMs });
  if (!endpoint) return unread;
  return (
    <Page
      title={
        <>
          <Text of={endpoint.name || "Unnamed endpoint"} />
          <Status of={standingOf(endpoint)} />
        </>
      }
      about={<Id of={endpoint.id} what="Endpoint id" />}
      actions={may("webhooks:manage") && <EndpointActions endpoint={endpoint} onDone={reload} />}
    >
      {error !== undefined && <Failure error={error} onRetry={reload} />}
      <Facts
        of={[
          ["URL", <Text key="url" of={endpoint.url} />],
          ["Gets", <code key="gets">{plain(endpoint.pattern)}</code>],
          endpoint.filter && ["Filter", <code key="filter">{plain(endpoint.filter)}</code>],
          ["Behind", counted(endpoint.behind, "position")],
          ["Delivered", <When key="delivered" at={endpoint.lastDeliveredAt} />],
          endpoint.previousUntil !== undefined && [
            "Signed by both secrets until",
            dateTime(endpoint.previousUntil),
          ],
        ]}
      />
      <Trouble endpoint={endpoint} onDone={reload} />
      {may("functions:list") && <BreakersOf id={endpoint.id} title="Its breaker" />}
      <Section title="Dead letters">
        <Letters endpoint={endpoint} onDone={reload} />
      </Section>
    </Page>
  );
}

/** Why nothing is delivered: the event that fails, or what ended the endpoint. */
function Trouble({ endpoint, onDone }: { endpoint: EndpointView; onDone: () => void }) {
  const { id, failingEventId, attempts, disabledReason } = endpoint;
  const [isSkipping, setSkipping] = useState(false);
  if (attempts === 0 && disabledReason === "") return null;
  const skip = async () => {
    await changeEndpoint("ResumeWebhookEndpoint", { id, skipEventId: failingEventId });
    onDone();
    return "Skipped; the event is a dead letter";
  };
  return (
    <section class="error-block" aria-label="What is wrong">
      <Text
        of={disabledReason || endpoint.lastError || "It did not take the event"}
        in="p"
        class="error-message"
      />
      <div class="indented">
        <Facts
          of={[
            failingEventId && [
              "Event",
              <a key="event" href={hrefOf(["events", failingEventId])}>
                {plain(failingEventId)}
              </a>,
            ],
            ["Tries", count(attempts)],
            ["Failing", <When key="since" at={endpoint.failingSince} />],
            endpoint.nextAttemptAt !== undefined && ["Next try", dateTime(endpoint.nextAttemptAt)],
          ]}
        />
        {failingEventId && may("webhooks:manage") && (
          <p class="more">
            <Button onClick={() => setSkipping(true)}>Skip the event…</Button>
          </p>
        )}
      </div>
      {isSkipping && (
        <FormDialog title="Skip the event?" submit="Skip" onSubmit={skip} onClose={() => setSkipping(false)}>
          <p>It becomes a dead letter, and the endpoint goes on behind it.</p>
        </FormDialog>
      )}
    </section>
  );
}

function EndpointActions({ endpoint, onDone }: { endpoint: EndpointView; onDone: () => void }) {
  const { id, status } = endpoint;
  const [secret, setSecret] = useState("");
  const [{ hours }, field] = useFields({ hours: "24" });
  const move = async () => {
    const [method, done] =
      status === "active"
        ? (["PauseWebhookEndpoint", "Nothing is sent until it goes on"] as const)
        : (["ResumeWebhookEndpoint", "The endpoint goes on"] as const);
    if (await attempt(() => changeEndpoint(method, { id }), done)) onDone();
  };
  const rotate = async () => {
    const graceSeconds = Math.round(Number(hours) * 3_600);
    setSecret((await changeEndpoint("RotateWebhookEndpointSecret", { id, graceSeconds })).secret);
  };
  return (
    <>
      <Button icon={status === "active" ? "pause" : "play"} onClick={() => void move()}>
        {status === "active" ? "Pause" : "Continue"}
      </Button>
      <Opener text="Change…" onClosed={onDone}>
        {(onClose) => <EndpointDialog of={endpoint} onClose={onClose} />}
      </Opener>
      <Opener text="Replace the secret…" onClosed={onDone}>
        {(onClose) => (
          <FormDialog title="Replace the secret?" submit="Replace" onSubmit={rotate} onClose={onClose}>
            <p>Until then calls are signed with both, so that the receiver can change over.</p>
            <Field label="Hours that the old one signs too" type="number" isRequired {...field("hours")} />
          </FormDialog>
        )}
      </Opener>
      <ConfirmOpener
        text="Delete…"
        title={`Delete ${plain(endpoint.name || endpoint.url)}?`}
        verb="Delete"
        act={() => deleteEndpoint(id)}
        done="Endpoint deleted"
        onDone={() => go(hrefOf(["webhooks-out"]))}
      >
        <p>Nothing more is sent there, and its dead letters go with it.</p>
      </ConfirmOpener>
      {secret !== "" && <MadeKey title="The secret that signs" text={secret} onClose={() => setSecret("")} />}
    </>
  );
}
