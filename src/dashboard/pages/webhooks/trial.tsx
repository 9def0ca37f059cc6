import { useState } from "preact/hooks";
import { messageOf, parsedJson } from "../../lib/api.ts";
import { plain, writeJson } from "../../lib/format.ts";
import { type TrialView, tryVerify } from "../../lib/webhooks.ts";
import { Button, Facts, FormError, Text } from "../../ui/basics.tsx";
import { Field, useFields } from "../../ui/dialog.tsx";
import { Status } from "../../ui/status.tsx";

/** A request as the source would take it, and what it would make of it. Nothing is stored. */
export function Trial(props: {
  sourceId: string;
  sample?: { body: string; headers: Record<string, string> };
}) {
  const { sourceId, sample } = props;
  const [{ headers, body, secret }, field] = useFields(() => ({
    headers: writeJson(sample?.headers ?? { "x-signature": "" }),
    ...{ body: sample?.body ?? "{}", secret: "" },
  }));
  const [found, setFound] = useState<TrialView>();
  const [error, setError] = useState("");
  const submit = async () => {
    setError("");
    try {
      const given = parsedJson(headers, "headers") as Record<string, string>;
      const verifySecret = secret === "" ? {} : { verifySecret: secret };
      setFound(await tryVerify({ sourceId, body, headers: given, ...verifySecret }));
    } catch (failure) {
      setFound(undefined);
      setError(messageOf(failure));
    }
  };
  return (
    <form
      class="form trial"
      onSubmit={(submitted) => {
        submitted.preventDefault();
        void submit();
      }}
    >
      <Field label="Headers (JSON)" isCode rows={4} {...field("headers")} />
      <Field label="Body" isCode rows={5} {...field("body")} />
      <Field
        label="Secret"
        type="password"
        autoComplete="off"
        {...field("secret")}
        hint="Empty takes that of the source, and shows what should be signed only where it fits."
      />
      <Button type="submit" kind="primary" text="Try" />
      <FormError of={error} />
      {found && <Found of={found} />}
    </form>
  );
}

const Found = ({ of }: { of: TrialView }) => {
  const code = (text: string) => <code>{plain(text)}</code>;
  return (
    <div role="status" class="found">
      <Status of={of.verified ? "accepted" : "rejected"} />
      {of.error && <Text of={of.error} in="p" class="form-error" />}
      <Facts
        of={[
          ["What is signed", code(of.signingString ?? "")],
          ["Signatures that came", code((of.presentedSignatures ?? []).join(", ") || "none")],
          of.computedSignature && ["It should be", code(of.computedSignature)],
          of.resolvedTimestamp && ["Time", code(of.resolvedTimestamp)],
          of.resolvedEventName && ["Event", code(of.resolvedEventName)],
          of.resolvedDedupId && ["Id", code(of.resolvedDedupId)],
        ]}
      />
    </div>
  );
};
