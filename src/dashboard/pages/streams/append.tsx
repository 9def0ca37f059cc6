import { useState } from "preact/hooks";
import { parsedJson, rpc } from "../../lib/api.ts";
import { go, hrefOf } from "../../lib/router.ts";
import type { StreamView } from "../../lib/streams.ts";
import { toast } from "../../lib/toasts.ts";
import { Field, FormDialog } from "../../ui/dialog.tsx";

/** Appends to `stream`, or to an entity that is named: then the stream must be new. */
export function AppendDialog({ stream, onClose }: { stream?: StreamView; onClose: () => void }) {
  const [entityId, setEntityId] = useState(stream?.id ?? "");
  const [entityType, setEntityType] = useState(stream?.type ?? "");
  const [eventName, setEventName] = useState("");
  const [text, setText] = useState("{}");
  const [expects, setExpects] = useState(true);
  const submit = async () => {
    const { entityVersion } = await rpc("EntityStreamService", "AppendEvent", {
      ...{ entityId, entityType, eventName, dataValue: parsedJson(text, "data") },
      expectedVersion: expects ? `${stream?.version ?? 0}` : "-1",
    });
    toast("done", `Appended; the stream is at version ${entityVersion}`);
    if (!stream) go(hrefOf(["streams", entityId]));
  };
  return (
    <FormDialog title="Append an event" submit="Append" onSubmit={submit} onClose={onClose}>
      {!stream && (
        <>
          <Field label="Entity" isRequired value={entityId} onInput={setEntityId} hint="Such as order-17" />
          <Field label="Type" isRequired value={entityType} onInput={setEntityType} hint="Such as order" />
        </>
      )}
      <Field
        label="Event"
        isRequired
        value={eventName}
        onInput={setEventName}
        hint="Such as order.placed. It starts runs as an emitted event does."
      />
      <Field label="Data (JSON)" isCode rows={8} value={text} onInput={setText} />
      <label class="check">
        <input type="checkbox" checked={expects} onChange={() => setExpects(!expects)} />
        <span>
          {stream
            ? `Only if the stream is still at version ${stream.version}`
            : "Only if the entity has no stream yet"}
        </span>
      </label>
    </FormDialog>
  );
}
