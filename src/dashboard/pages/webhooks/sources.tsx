import { useState } from "preact/hooks";
import { count, plain } from "../../lib/format.ts";
import { useFollowed, useLoaded, usePages } from "../../lib/hooks.ts";
import { go, hrefOf } from "../../lib/router.ts";
import { may } from "../../lib/session.ts";
import {
  type ConfigValues,
  changeSource,
  listSources,
  readFlow,
  type SourceView,
} from "../../lib/webhooks.ts";
import { Text, When } from "../../ui/basics.tsx";
import { Choice, type DialogEnds, Field, FormDialog, Opener, useFields } from "../../ui/dialog.tsx";
import { ResourceList } from "../../ui/resource.tsx";
import { Bad } from "../../ui/table.tsx";
import { MadeKey } from "../access/made-key.tsx";

const presets = [
  ["", "None"],
  ["generic-hmac", "HMAC over the body"],
  ["standard-webhooks", "Standard Webhooks"],
  ["github", "GitHub"],
  ["linear", "Linear"],
  ["shopify", "Shopify"],
  ["slack", "Slack"],
  ["stripe", "Stripe"],
  ["twilio", "Twilio"],
] as const;

/** The address that a provider calls; the token opens it. */
export const addressOf = (id: string, token: string): string =>
  `${location.origin}/api/v1/webhooks/${id}?token=${token}`;

/** A source as it was made, with the token that no later answer holds. */
interface MadeSource {
  id: string;
  token: string;
}

function CreateSource({ onMade, onClose }: DialogEnds & { onMade: (made: MadeSource) => void }) {
  const first = { name: "", prefix: "", preset: "generic-hmac", secret: "" };
  const [{ name, prefix, preset, secret }, field] = useFields(first);
  const submit = async () => {
    const { source, token } = await changeSource("CreateWebhookSource", {
      ...{ name, eventPrefix: prefix, preset, verifySecret: secret },
    });
    onMade({ id: source.id, token });
  };
  return (
    <FormDialog title="Add a source" submit="Add" onSubmit={submit} onClose={onClose}>
      <Field label="Name" {...field("name")} hint="For people" />
      <Field
        label="Prefix of its events"
        isRequired
        {...field("prefix")}
        hint="github makes events github.push and so on"
      />
      <Choice label="Provider" {...field("preset")} options={presets} />
      <Field
        label="Secret"
        type="password"
        autoComplete="new-password"
        {...field("secret")}
        hint="The provider signs with it. Without one the token in the address alone lets requests in."
      />
    </FormDialog>
  );
}

/** The address of a source, with its token: no later answer holds it. */
export const Address = ({ id, token, onClose }: MadeSource & DialogEnds) => (
  <MadeKey title="The address for the provider" text={addressOf(id, token)} onClose={onClose} />
);

const fields = [
  ["signatureHeader", "Header of the signature", "x-signature"],
  ["entrySeparator", "Its entries are divided by", ""],
  ["kvDelimiter", "Key and value by", ""],
  ["signatureKey", "Key of the signature", ""],
  ["timestampHeader", "Header of the time", ""],
  ["timestampKey", "Key of the time", ""],
  ["signingTemplate", "What is signed", "{ts}.{body}"],
  ["encoding", "Encoding", "hex or base64"],
  ["algorithm", "Algorithm", "hmac-sha256 or hmac-sha1"],
  ["toleranceSeconds", "Seconds that the time may be off", ""],
  ["eventNamePath", "Where the event's type stands", "header:x-event or body:type"],
  ["dedupIdPath", "Where its id stands", "header:x-id or body:id"],
  ["secretEncoding", "The secret is", "text or base64"],
] as const;

export const configFields: readonly (readonly [string, string])[] = fields.map(([name, word]) => [
  name,
  word,
]);

/** How a source verifies, field by field. */
export function ConfigDialog({ source, onClose }: DialogEnds & { source: SourceView }) {
  const [name, setName] = useState(source.name);
  const [config, setConfig] = useState<ConfigValues>(source.config ?? {});
  const submit = async () => {
    const verifyConfig = { ...config, toleranceSeconds: Number(config.toleranceSeconds ?? 0) };
    await changeSource("UpdateWebhookSource", {
      ...{ id: source.id, name, verifyConfig, metadata: source.metadata ?? {} },
      expectedUpdatedAt: source.updated,
    });
    return "Source changed";
  };
  return (
    <FormDialog
      title={`Change ${plain(source.name || source.id)}`}
      submit="Change"
      onSubmit={submit}
      onClose={onClose}
    >
      <Field label="Name" value={name} onInput={setName} />
      {fields.map(([field, word, hint]) => (
        <Field
          key={field}
          label={word}
          isCode
          {...(field === "toleranceSeconds" && { type: "number" as const })}
          value={`${config[field] ?? ""}`}
          onInput={(value) => setConfig({ ...config, [field]: value })}
          {...(hint && { hint })}
        />
      ))}
    </FormDialog>
  );
}

/** Another secret to verify with. */
export function RotateSecret({ source, onClose }: DialogEnds & { source: SourceView }) {
  const [{ secret, hours }, field] = useFields({ secret: "", hours: "24" });
  const submit = async () => {
    await changeSource("RotateWebhookSecret", {
      ...{ id: source.id, verifySecret: secret, graceSeconds: Math.round(Number(hours) * 3_600) },
      expectedUpdatedAt: source.updated,
    });
    return "The secret was replaced";
  };
  return (
    <FormDialog title="Replace the secret" submit="Replace" onSubmit={submit} onClose={onClose}>
      <Field label="New secret" type="password" autoComplete="new-password" isRequired {...field("secret")} />
      <Field
        label="Hours that the old one stays good"
        type="number"
        isRequired
        {...field("hours")}
        hint="0 ends it at once. At most 168."
      />
    </FormDialog>
  );
}

const readMs = 10_000;

export function SourcesPage() {
  const [made, setMade] = useState<MadeSource>();
  const read = usePages(listSources, []);
  const flow = useLoaded(readFlow, []);
  const reload = () => {
    read.reload();
    flow.reload();
  };
  useFollowed(reload, { frames: "system.webhook_source.>", everyMs: readMs });
  const countOf = (id: string, status: string) => flow.value?.get(id)?.counts[status] ?? 0;
  return (
    <ResourceList
      title="Webhooks in"
      about="What providers send becomes events"
      actions={
        may("webhooks:manage") && (
          <>
            <Opener kind="primary" icon="incoming" text="Add a source…">
              {(onClose) => <CreateSource onMade={setMade} onClose={onClose} />}
            </Opener>
            {made && <Address {...made} onClose={() => go(hrefOf(["webhooks-in", made.id]))} />}
          </>
        )
      }
      read={read}
      keyOf={({ id }) => id}
      empty="No sources"
      docs="webhooks#in-from-a-provider"
      says="A source has an address that a provider calls."
      columns={[
        {
          name: "Source",
          of: ({ id, name }) => <Text of={name || id} href={hrefOf(["webhooks-in", id])} />,
        },
        { name: "Events", of: ({ prefix }) => <Text of={`${prefix}.*`} /> },
        {
          name: "Signature",
          of: ({ verifies }) => (verifies ? "verified" : <span class="warn">not verified</span>),
        },
        { name: "Accepted", isNumber: true, of: ({ id }) => count(countOf(id, "accepted")) },
        {
          name: "Refused",
          isNumber: true,
          of: ({ id }) => <Bad of={countOf(id, "rejected") + countOf(id, "failed")} />,
        },
        { name: "Latest", isNumber: true, of: ({ id }) => <When at={flow.value?.get(id)?.latestAt} /> },
      ]}
    />
  );
}
