import { useState } from "preact/hooks";
import { messageOf, parsedJson } from "../../lib/api.ts";
import { cut, plain, writeJson } from "../../lib/format.ts";
import { useFollowed, useLoaded, usePages } from "../../lib/hooks.ts";
import { address, hrefOf, setQuery } from "../../lib/router.ts";
import { may } from "../../lib/session.ts";
import { attempt } from "../../lib/toasts.ts";
import {
  getDelivery,
  listDeliveries,
  redeliver,
  type SourceView,
  type TrialView,
  tryVerify,
} from "../../lib/webhooks.ts";
import { Button, Facts, Failure, FormError, Id, Text, When } from "../../ui/basics.tsx";
import { Field, useFields } from "../../ui/dialog.tsx";
import { JsonTextView, JsonView } from "../../ui/json-view.tsx";
import { Status } from "../../ui/status.tsx";
import { ReadTable } from "../../ui/table.tsx";

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

const statuses = ["accepted", "rejected", "failed"] as const;
const errorCharacters = 200;

/** What a source was sent, newest first, and the one that is chosen. */
export function Deliveries({ source }: { source: SourceView }) {
  const { query } = address.value;
  const status = query.get("status") ?? "";
  const chosen = query.get("delivery") ?? "";
  const read = usePages(
    (cursor, signal) => listDeliveries({ sourceId: source.id, status }, cursor, signal),
    [source.id, status],
  );
  useFollowed(read.reload, { frames: `system.webhook_source.${source.id}.received` });
  return (
    <>
      <fieldset class="chips" aria-label="Status">
        {statuses.map((one) => (
          <button
            key={one}
            type="button"
            class="chip"
            aria-pressed={status === one}
            onClick={() => setQuery({ status: status === one ? undefined : one, delivery: undefined })}
          >
            <Status of={one} />
          </button>
        ))}
      </fieldset>
      <div class={`run-body deliveries ${chosen === "" ? "" : "with-panel"}`}>
        <div>
          <ReadTable
            read={read}
            keyOf={({ id }) => id}
            empty={status === "" ? "Nothing was sent yet" : "None of this status"}
            columns={[
              {
                name: "What came",
                of: (one) => (
                  <>
                    <a
                      aria-current={one.id === chosen || undefined}
                      href={hrefOf(["webhooks-in", source.id], { status, delivery: one.id })}
                    >
                      <Text of={one.eventName || cut(one.error, errorCharacters) || one.id} />
                    </a>
                    {one.isRepeat && <span class="tag">repeat</span>}
                    {one.redeliveredFrom !== "" && <span class="tag">again</span>}
                  </>
                ),
              },
              { name: "Status", of: (one) => <Status of={one.status} /> },
              { name: "Came", isNumber: true, of: ({ createdAt }) => <When at={createdAt} /> },
            ]}
          />
        </div>
        {chosen !== "" && <Delivery key={chosen} id={chosen} source={source} onDone={read.reload} />}
      </div>
    </>
  );
}

const keys: Record<string, string> = {
  current: "fits the secret",
  prev: "fits the old secret",
  none: "not looked at: there is no secret",
  invalid: "fits no secret",
};

/** One delivery in full: what came, and what became of it or why nothing did. */
function Delivery({ id, source, onDone }: { id: string; source: SourceView; onDone: () => void }) {
  const { value, error, reload } = useLoaded((signal) => getDelivery(id, signal), [id]);
  const [isTrying, setTrying] = useState(false);
  const close = () => setQuery({ delivery: undefined });
  const again = async () => {
    if (await attempt(() => redeliver(id), "Delivered again")) onDone();
  };
  const canTry = may("webhooks:manage");
  return (
    <aside class="panel" aria-label="Delivery">
      <header class="panel-head">
        <Id of={id} what="Delivery id" />
        <Button kind="quiet" icon="close" label="Close" onClick={close} />
      </header>
      {error !== undefined && <Failure error={error} onRetry={reload} />}
      {!value && error === undefined && <p class="faint">Reading…</p>}
      {value && (
        <>
          {value.error !== "" && <Text of={value.error} in="p" class="form-error" />}
          <Facts
            of={[
              ["Status", <Status key="status" of={value.status} />],
              ["Signature", keys[value.signatureKey] ?? plain(value.signatureKey)],
              value.eventId && [
                "Event",
                <Text
                  key="event"
                  of={value.eventName || value.eventId}
                  href={hrefOf(["events", value.eventId])}
                />,
              ],
              value.externalId && ["Provider's id", <Text key="external" of={value.externalId} />],
              ["Came", <When key="came" at={value.createdAt} />],
            ]}
          />
          <div class="panel-actions">
            {canTry && value.status !== "rejected" && (
              <Button icon="refresh" text="Deliver again" onClick={() => void again()} />
            )}
            {canTry && source.config && (
              <Button text="Try its signature" isPressed={isTrying} onClick={() => setTrying(!isTrying)} />
            )}
          </div>
          {isTrying && <Trial sourceId={source.id} sample={{ body: value.body, headers: value.headers }} />}
          <h3>Body</h3>
          <JsonTextView text={value.body} what="body" />
          {value.isBodyCut && <p class="hint">It was longer than what is kept.</p>}
          <h3>Headers</h3>
          <JsonView value={value.headers} what="headers" />
        </>
      )}
    </aside>
  );
}
