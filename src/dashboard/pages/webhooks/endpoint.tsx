import { useEffect, useState } from "preact/hooks";
import { changeEndpoint, deleteEndpoint, type EndpointView, getEndpoint } from "../../lib/endpoints.ts";
import { count, dateTime, plain } from "../../lib/format.ts";
import { useLive, useLoaded, useNet } from "../../lib/hooks.ts";
import { noteRecent } from "../../lib/prefs.ts";
import { address, go, hrefOf } from "../../lib/router.ts";
import { may } from "../../lib/session.ts";
import { attempt, toast } from "../../lib/toasts.ts";
import { Button, Facts, Failure, Id, PageHead, Section, Text, Unread, When } from "../../ui/basics.tsx";
import { Field, FormDialog } from "../../ui/dialog.tsx";
import { Status } from "../../ui/status.tsx";
import { MadeKey } from "../access/made-key.tsx";
import { BreakersOf } from "../breakers.tsx";
import { Letters } from "../dead-letters/endpoint-letters.tsx";
import { EndpointDialog, readMs, standingOf } from "./endpoints.tsx";

export function EndpointPage() {
  const id = address.value.rest[0] ?? "";
  const { value: endpoint, error, reload } = useLoaded((signal) => getEndpoint(id, signal), [id]);
  useLive(`system.webhook_endpoint.${id}.>`, { onFrame: reload, onBack: reload });
  useNet(reload, readMs);
  useEffect(() => noteRecent("webhooks-out", id), [id]);
  if (!endpoint)
    return <Unread error={error} onRetry={reload} one="endpoint" all="webhooks-out" allName="endpoints" />;
  return (
    <div class="page">
      <PageHead
        title={
          <>
            <Text of={endpoint.name || "Unnamed endpoint"} />
            <Status of={standingOf(endpoint)} />
          </>
        }
        about={<Id of={endpoint.id} what="Endpoint id" />}
        actions={may("webhooks:manage") && <EndpointActions endpoint={endpoint} onDone={reload} />}
      />
      {error !== undefined && <Failure error={error} onRetry={reload} />}
      <Facts
        of={[
          ["URL", <Text key="url" of={endpoint.url} />],
          ["Gets", <code key="gets">{plain(endpoint.pattern)}</code>],
          ...(endpoint.filter
            ? ([["Filter", <code key="filter">{plain(endpoint.filter)}</code>]] as const)
            : []),
          ["Behind", `${count(endpoint.behind)} ${endpoint.behind === 1 ? "position" : "positions"}`],
          ["Delivered", <When key="delivered" at={endpoint.lastDeliveredAt} />],
          ...(endpoint.previousUntil === undefined
            ? []
            : ([["Signed by both secrets until", dateTime(endpoint.previousUntil)]] as const)),
        ]}
      />
      <Trouble endpoint={endpoint} onDone={reload} />
      {may("functions:list") && <BreakersOf id={endpoint.id} title="Its breaker" />}
      <Section title="Dead letters">
        <Letters endpoint={endpoint} onDone={reload} />
      </Section>
    </div>
  );
}

/** Why nothing is delivered: the event that fails, or what ended the endpoint. */
function Trouble({ endpoint, onDone }: { endpoint: EndpointView; onDone: () => void }) {
  const { id, failingEventId, attempts, disabledReason } = endpoint;
  const [isSkipping, setSkipping] = useState(false);
  if (attempts === 0 && disabledReason === "") return null;
  const skip = async () => {
    await changeEndpoint("ResumeWebhookEndpoint", { id, skipEventId: failingEventId });
    toast("done", "Skipped; the event is a dead letter");
    onDone();
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
            ...(failingEventId
              ? ([
                  [
                    "Event",
                    <a key="event" href={hrefOf(["events", failingEventId])}>
                      {plain(failingEventId)}
                    </a>,
                  ],
                ] as const)
              : []),
            ["Tries", count(attempts)],
            ["Failing", <When key="since" at={endpoint.failingSince} />],
            ...(endpoint.nextAttemptAt === undefined
              ? []
              : ([["Next try", dateTime(endpoint.nextAttemptAt)]] as const)),
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
  const [asked, setAsked] = useState<"change" | "secret" | "delete">();
  const [secret, setSecret] = useState("");
  const [hours, setHours] = useState("24");
  const close = () => {
    setAsked(undefined);
    onDone();
  };
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
  const remove = async () => {
    await deleteEndpoint(id);
    toast("done", "Endpoint deleted");
    go(hrefOf(["webhooks-out"]));
  };
  return (
    <>
      <Button icon={status === "active" ? "pause" : "play"} onClick={() => void move()}>
        {status === "active" ? "Pause" : "Continue"}
      </Button>
      <Button onClick={() => setAsked("change")}>Change…</Button>
      <Button onClick={() => setAsked("secret")}>Replace the secret…</Button>
      <Button onClick={() => setAsked("delete")}>Delete…</Button>
      {asked === "change" && <EndpointDialog of={endpoint} onClose={close} />}
      {asked === "secret" && (
        <FormDialog title="Replace the secret?" submit="Replace" onSubmit={rotate} onClose={close}>
          <p>Until then calls are signed with both, so that the receiver can change over.</p>
          <Field label="Hours that the old one signs too" value={hours} onInput={setHours} />
        </FormDialog>
      )}
      {asked === "delete" && (
        <FormDialog
          title={`Delete ${plain(endpoint.name || endpoint.url)}?`}
          submit="Delete"
          isDangerous
          onSubmit={remove}
          onClose={() => setAsked(undefined)}
        >
          <p>Nothing more is sent there, and its dead letters go with it.</p>
        </FormDialog>
      )}
      {secret !== "" && <MadeKey title="The secret that signs" text={secret} onClose={() => setSecret("")} />}
    </>
  );
}
