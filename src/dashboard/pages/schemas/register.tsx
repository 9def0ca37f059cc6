import { parsedJson } from "../../lib/api.ts";
import { go, hrefOf } from "../../lib/router.ts";
import { registerSchema } from "../../lib/schemas.ts";
import { type DialogEnds, Field, FormDialog, useFields } from "../../ui/dialog.tsx";

const firstSchema = `{
  "type": "object",
  "required": ["order"],
  "properties": {
    "order": { "type": "integer" }
  }
}`;

/** A schema of a new event, or the next version of one that has schemas. */
export function RegisterDialog(
  props: DialogEnds & { next?: { event: string; version: number; schemaText: string } },
) {
  const { next, onClose } = props;
  const [{ event, version, text, description }, field] = useFields({
    ...{ event: next?.event ?? "", version: `${next?.version ?? 1}` },
    ...{ text: next?.schemaText ?? firstSchema, description: "" },
  });
  const submit = async () => {
    parsedJson(text, "schema");
    await registerSchema({ event_name: event, version: Number(version), schema_json: text, description });
    if (!next) go(hrefOf(["schemas", event]));
    return "Schema registered";
  };
  return (
    <FormDialog title="Register a schema" submit="Register" onSubmit={submit} onClose={onClose}>
      {!next && <Field label="Event" isRequired {...field("event")} hint="Such as order.placed" />}
      <Field label="Version" type="number" isRequired {...field("version")} />
      <Field
        label="JSON Schema"
        isCode
        rows={14}
        {...field("text")}
        hint="x-upcast says how data of the version before becomes this one's."
      />
      <Field label="What it is for" {...field("description")} />
    </FormDialog>
  );
}
