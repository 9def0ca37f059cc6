import { useEffect, useState } from "preact/hooks";
import { dateTime, plain } from "../../lib/format.ts";
import { useLive, useLoaded, useNet } from "../../lib/hooks.ts";
import { noteRecent } from "../../lib/prefs.ts";
import { address, go, hrefOf } from "../../lib/router.ts";
import { may } from "../../lib/session.ts";
import { attempt, toast } from "../../lib/toasts.ts";
import { changeSource, getSource, type SourceView } from "../../lib/webhooks.ts";
import { Button, Facts, Failure, Id, PageHead, Section, Tabs, Text, Unread, When } from "../../ui/basics.tsx";
import { FormDialog } from "../../ui/dialog.tsx";
import { Deliveries } from "./deliveries.tsx";
import { Address, ConfigDialog, configFields, RotateSecret } from "./source-forms.tsx";
import { Trial } from "./trial.tsx";

export function SourcePage() {
  const id = address.value.rest[0] ?? "";
  const { value: source, error, reload } = useLoaded((signal) => getSource(id, signal), [id]);
  useLive(`system.webhook_source.${id}.updated`, { onFrame: reload, onBack: reload });
  useNet(reload);
  useEffect(() => noteRecent("webhooks-in", id), [id]);
  if (!source)
    return <Unread error={error} onRetry={reload} one="source" all="webhooks-in" allName="sources" />;
  const tab = address.value.query.get("tab") ?? "deliveries";
  const to = (name: string) => hrefOf(["webhooks-in", id], { tab: name === "deliveries" ? undefined : name });
  return (
    <div class="page">
      <PageHead
        title={<Text of={source.name || "Unnamed source"} />}
        about={<Id of={source.id} what="Source id" />}
        actions={may("webhooks:manage") && <SourceActions source={source} onDone={reload} />}
      />
      {error !== undefined && <Failure error={error} onRetry={reload} />}
      <Facts
        of={[
          ["Events", <Text key="events" of={`${source.prefix}.*`} />],
          ["Signature", source.verifies ? "verified" : "not verified: the token alone lets requests in"],
          ...(source.previousUntil === undefined
            ? []
            : ([["Old secret good until", dateTime(source.previousUntil)]] as const)),
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
    </div>
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
  const [asked, setAsked] = useState<"change" | "secret" | "token" | "delete">();
  const [token, setToken] = useState("");
  const close = () => {
    setAsked(undefined);
    onDone();
  };
  const replaceToken = async () => {
    const { token: made } = await changeSource("RotateWebhookIngestToken", {
      ...{ id: source.id, expectedUpdatedAt: source.updated },
    });
    setToken(made);
  };
  const remove = async () => {
    await changeSource("DeleteWebhookSource", { id: source.id });
    toast("done", "Source deleted");
    go(hrefOf(["webhooks-in"]));
  };
  const expire = () =>
    attempt(
      () => changeSource("ExpireWebhookSecretPrev", { id: source.id, expectedUpdatedAt: source.updated }),
      "The old secret has ended",
    ).then(onDone);
  return (
    <>
      <Button onClick={() => setAsked("change")}>Change…</Button>
      <Button onClick={() => setAsked("secret")}>
        {source.verifies ? "Replace the secret…" : "Set a secret…"}
      </Button>
      {source.previousUntil !== undefined && (
        <Button onClick={() => void expire()}>End the old secret</Button>
      )}
      <Button onClick={() => setAsked("token")}>Replace the token…</Button>
      <Button onClick={() => setAsked("delete")}>Delete…</Button>
      {asked === "change" && <ConfigDialog source={source} onClose={close} />}
      {asked === "secret" && <RotateSecret source={source} onClose={close} />}
      {asked === "token" && (
        <FormDialog title="Replace the token?" submit="Replace" onSubmit={replaceToken} onClose={close}>
          <p>The address that the provider has now ends at once: give it the new one.</p>
        </FormDialog>
      )}
      {asked === "delete" && (
        <FormDialog
          title={`Delete ${plain(source.name || source.id)}?`}
          submit="Delete"
          isDangerous
          onSubmit={remove}
          onClose={() => setAsked(undefined)}
        >
          <p>Its address ends at once. What it sent stays until its time is over.</p>
        </FormDialog>
      )}
      {token !== "" && <Address id={source.id} token={token} onClose={() => setToken("")} />}
    </>
  );
}
