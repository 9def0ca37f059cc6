import { useState } from "preact/hooks";
import { parsedJson } from "../../lib/api.ts";
import { go, hrefOf } from "../../lib/router.ts";
import { registerSchema } from "../../lib/schemas.ts";
import { toast } from "../../lib/toasts.ts";
import { Field, FormDialog } from "../../ui/dialog.tsx";

const firstSchema = `{
  "type": "object",
  "required": ["order"],
  "properties": {
    "order": { "type": "integer" }
  }
}`;

/** A schema of a new event, or the next version of one that has schemas. */
export function RegisterDialog(props: {
  next?: { event: string; version: number; schemaText: string };
  onClose: () => void;
}) {
  const { next, onClose } = props;
  const [event, setEvent] = useState(next?.event ?? "");
  const [version, setVersion] = useState(`${next?.version ?? 1}`);
  const [text, setText] = useState(next?.schemaText ?? firstSchema);
  const [description, setDescription] = useState("");
  const submit = async () => {
    parsedJson(text, "schema");
    await registerSchema({ event_name: event, version: Number(version), schema_json: text, description });
    toast("done", "Schema registered");
    if (!next) go(hrefOf(["schemas", event]));
  };
  return (
    <FormDialog title="Register a schema" submit="Register" onSubmit={submit} onClose={onClose}>
      {!next && (
        <Field label="Event" isRequired value={event} onInput={setEvent} hint="Such as order.placed" />
      )}
      <Field label="Version" isRequired value={version} onInput={setVersion} />
      <Field
        label="JSON Schema"
        isCode
        rows={14}
        value={text}
        onInput={setText}
        hint="x-upcast says how data of the version before becomes this one's."
      />
      <Field label="What it is for" value={description} onInput={setDescription} />
    </FormDialog>
  );
}
