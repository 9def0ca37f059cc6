import { useState } from "preact/hooks";
import { dateTime, plain } from "../../lib/format.ts";
import { useFollowed } from "../../lib/hooks.ts";
import { address, go, hrefOf } from "../../lib/router.ts";
import { may } from "../../lib/session.ts";
import { attempt } from "../../lib/toasts.ts";
import { changeSource, getSource, type SourceView } from "../../lib/webhooks.ts";
import { Button, Facts, Failure, Id, Page, Section, Tabs, Text, When } from "../../ui/basics.tsx";
import { ConfirmOpener, FormDialog, Opener } from "../../ui/dialog.tsx";
import { useOne } from "../../ui/resource.tsx";
import { Deliveries, Trial } from "./deliveries.tsx";
import { Address, ConfigDialog, configFields, RotateSecret } from "./sources.tsx";

export function SourcePage() {
  const {
    id,
    value: source,
    error,
    reload,
    unread,
  } = useOne({ one: "source", all: "webhooks-in", allName: "sources" }, getSource);
  useFollowed(reload, { frames: `system.webhook_source.${id}.updated` });
  if (!source) return unread;
  const tab = address.value.query.get("tab") ?? "deliveries";
  const to = (name: string) => hrefOf(["webhooks-in", id], { tab: name === "deliveries" ? undefined : name });
  return (
    <Page
      title={<Text of={source.name || "Unnamed source"} />}
      about={<Id of={source.id} what="Source id" />}
      actions={may("webhooks:manage") && <SourceActions source={source} onDone={reload} />}
    >
      {error !== undefined && <Failure error={error} onRetry={reload} />}
      <Facts
        of={[
          ["Events", <Text key="events" of={`${source.prefix}.*`} />],
          ["Signature", source.verifies ? "verified" : "not verified: the token alone lets requests in"],
          source.previousUntil !== undefined && ["Old secret good until", dateTime(source.previousUntil)],
          ["Token", <code key="token">{plain(`${source.tokenPrefix}…`)}</code>],
          ["Changed", <When key="changed" at={source.updatedAt} />],
        ]}
      />
      <Tabs
        label="About the source"
        tabs={[
          { name: "Deliveries", href: to("deliveries"), isShown: tab === "deliveries" },
          { name: "Verification", href: to("verification"), isShown: tab === "verification" },
        ]}
      />
      {tab === "verification" ? <Verification source={source} /> : <Deliveries source={source} />}
    </Page>
  );
}

const Verification = ({ source }: { source: SourceView }) => (
  <div class="columns">
    <Section title="How requests are verified and named">
      {source.config ? (
        <Facts
          of={configFields
            .filter(([name]) => source.config?.[name])
            .map(([name, word]) => [word, <code key={name}>{plain(`${source.config?.[name]}`)}</code>])}
        />
      ) : (
        <p class="faint">Nothing is verified, and the events are named by the prefix alone.</p>
      )}
    </Section>
    {may("webhooks:manage") && (
      <Section title="Try a request">
        <Trial sourceId={source.id} />
      </Section>
    )}
  </div>
);

function SourceActions({ source, onDone }: { source: SourceView; onDone: () => void }) {
  const [token, setToken] = useState("");
  const replaceToken = async () => {
    const { token: made } = await changeSource("RotateWebhookIngestToken", {
      ...{ id: source.id, expectedUpdatedAt: source.updated },
    });
    setToken(made);
  };
  const expire = () =>
    attempt(
      () => changeSource("ExpireWebhookSecretPrev", { id: source.id, expectedUpdatedAt: source.updated }),
      "The old secret has ended",
    ).then(onDone);
  return (
    <>
      <Opener text="Change…" onClosed={onDone}>
        {(onClose) => <ConfigDialog source={source} onClose={onClose} />}
      </Opener>
      <Opener text={source.verifies ? "Replace the secret…" : "Set a secret…"} onClosed={onDone}>
        {(onClose) => <RotateSecret source={source} onClose={onClose} />}
      </Opener>
      {source.previousUntil !== undefined && (
        <Button onClick={() => void expire()}>End the old secret</Button>
      )}
      <Opener text="Replace the token…" onClosed={onDone}>
        {(onClose) => (
          <FormDialog title="Replace the token?" submit="Replace" onSubmit={replaceToken} onClose={onClose}>
            <p>The address that the provider has now ends at once: give it the new one.</p>
          </FormDialog>
        )}
      </Opener>
      <ConfirmOpener
        text="Delete…"
        title={`Delete ${plain(source.name || source.id)}?`}
        verb="Delete"
        act={() => changeSource("DeleteWebhookSource", { id: source.id })}
        done="Source deleted"
        onDone={() => go(hrefOf(["webhooks-in"]))}
      >
        <p>Its address ends at once. What it sent stays until its time is over.</p>
      </ConfirmOpener>
      {token !== "" && <Address id={source.id} token={token} onClose={() => setToken("")} />}
    </>
  );
}
