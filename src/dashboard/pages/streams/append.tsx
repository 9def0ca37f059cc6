import { useState } from "preact/hooks";
import { parsedJson, rpc } from "../../lib/api.ts";
import { go, hrefOf } from "../../lib/router.ts";
import type { StreamView } from "../../lib/streams.ts";
import { Check, type DialogEnds, Field, FormDialog, useFields } from "../../ui/dialog.tsx";

/** Appends to `stream`, or to an entity that is named: then the stream must be new. */
export function AppendDialog({ stream, onClose }: DialogEnds & { stream?: StreamView }) {
  const [{ entityId, entityType, eventName, text }, field] = useFields({
    ...{ entityId: stream?.id ?? "", entityType: stream?.type ?? "", eventName: "", text: "{}" },
  });
  const [expects, setExpects] = useState(true);
  const submit = async () => {
    const { entityVersion } = await rpc("EntityStreamService", "AppendEvent", {
      ...{ entityId, entityType, eventName, dataValue: parsedJson(text, "data") },
      expectedVersion: expects ? `${stream?.version ?? 0}` : "-1",
    });
    if (!stream) go(hrefOf(["streams", entityId]));
    return `Appended; the stream is at version ${entityVersion}`;
  };
  return (
    <FormDialog title="Append an event" submit="Append" onSubmit={submit} onClose={onClose}>
      {!stream && (
        <>
          <Field label="Entity" isRequired {...field("entityId")} hint="Such as order-17" />
          <Field label="Type" isRequired {...field("entityType")} hint="Such as order" />
        </>
      )}
      <Field
        label="Event"
        isRequired
        {...field("eventName")}
        hint="Such as order.placed. It starts runs as an emitted event does."
      />
      <Field label="Data (JSON)" isCode rows={8} {...field("text")} />
      <Check
        label={
          stream
            ? `Only if the stream is still at version ${stream.version}`
            : "Only if the entity has no stream yet"
        }
        isChecked={expects}
        onChange={setExpects}
      />
    </FormDialog>
  );
}
