import { useEffect, useState } from "preact/hooks";
import { parsedJson, rpc } from "../../lib/api.ts";
import { writeJson } from "../../lib/format.ts";
import { go, hrefOf } from "../../lib/router.ts";
import { getSchema, type SchemaView } from "../../lib/schemas.ts";
import { may } from "../../lib/session.ts";
import { Button } from "../../ui/basics.tsx";
import { type DialogEnds, Field, FormDialog, useFields } from "../../ui/dialog.tsx";
import { hasFields, SchemaForm } from "../../ui/schema-form.tsx";

/** A name is looked up once nothing more is typed for so long. */
const typedMs = 400;

/** The latest schema of an event; undefined where it has none, or none that the viewer may read. */
function useSchemaOf(name: string): SchemaView | undefined {
  const [found, setFound] = useState<SchemaView>();
  useEffect(() => {
    setFound(undefined);
    if (name === "" || !may("schemas:read")) return;
    const over = new AbortController();
    const timer = setTimeout(() => {
      getSchema(name, undefined, over.signal).then(setFound, () => {});
    }, typedMs);
    return () => {
      clearTimeout(timer);
      over.abort();
    };
  }, [name]);
  return found;
}

/** Emits an event, by the fields of its schema where it has one. */
export function EmitDialog(props: DialogEnds & { name?: string; data?: unknown }) {
  const first = () => ({ name: props.name ?? "", text: writeJson(props.data ?? {}) });
  const [{ name, text }, field] = useFields(first);
  const [wantsText, setWantsText] = useState(false);
  const found = useSchemaOf(name.trim());
  const schema = found?.event === name.trim() ? found : undefined;
  const data = dataOf(text);
  const hasForm = schema !== undefined && hasFields(schema.schema) && data !== undefined;
  const submit = async () => {
    const { eventId = "", runIds = [] } = await rpc("SvcService", "Emit", {
      ...{ event: name.trim(), dataValue: parsedJson(text, "data") },
      ...(schema && { version: schema.version }),
    });
    go(hrefOf(["events", eventId]));
    return `Emitted; ${runIds.length} ${runIds.length === 1 ? "run" : "runs"} started`;
  };
  return (
    <FormDialog title="Emit an event" submit="Emit" onSubmit={submit} onClose={props.onClose}>
      <Field label="Name" isRequired {...field("name")} hint="Such as order.placed" />
      {schema && <p class="hint">{`By version ${schema.version} of its schema`}</p>}
      {hasForm && !wantsText ? (
        <SchemaForm
          schema={schema.schema}
          value={data}
          onChange={(changed) => field("text").onInput(writeJson(changed))}
        />
      ) : (
        <Field label="Data (JSON)" isCode rows={10} {...field("text")} />
      )}
      {hasForm && (
        <p>
          <Button kind="quiet" isPressed={wantsText} onClick={() => setWantsText(!wantsText)}>
            As JSON
          </Button>
        </p>
      )}
    </FormDialog>
  );
}

/** An object that fields can show; undefined for any other text. */
function dataOf(text: string): object | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null && !Array.isArray(value) ? value : undefined;
  } catch {
    return undefined;
  }
}
