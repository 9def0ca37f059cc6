import { useState } from "preact/hooks";
import { plain } from "../../lib/format.ts";
import { type ConfigValues, changeSource, type SourceView } from "../../lib/webhooks.ts";
import { Choice, type DialogEnds, Field, FormDialog, useFields } from "../../ui/dialog.tsx";
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
export interface MadeSource {
  id: string;
  token: string;
}

export function CreateSource({ onMade, onClose }: DialogEnds & { onMade: (made: MadeSource) => void }) {
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
