import { parsedJson } from "../../lib/api.ts";
import { useFollowed, useLive, useLoaded, usePages } from "../../lib/hooks.ts";
import { go, hrefOf } from "../../lib/router.ts";
import {
  checkTraffic,
  listSchemas,
  refusedOf,
  registerSchema,
  type SchemaHeadView,
  setMode,
} from "../../lib/schemas.ts";
import { may } from "../../lib/session.ts";
import { Button, Failure, Text, When } from "../../ui/basics.tsx";
import { Choice, type DialogEnds, Field, FormDialog, Opener, useFields } from "../../ui/dialog.tsx";
import { ResourceList } from "../../ui/resource.tsx";
import { Bad } from "../../ui/table.tsx";

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

export const modeWords = {
  enforce: "Events that break their schema are refused",
  warn: "Events that break their schema are written and marked",
  off: "Schemas are not enforced",
} as const;

interface SchemasOfEvent {
  event: string;
  latest: SchemaHeadView;
  versions: number;
}

/** Schemas by event: the server lists them by name and version. */
function byEvent(heads: readonly SchemaHeadView[]): SchemasOfEvent[] {
  const found = new Map<string, SchemasOfEvent>();
  for (const head of heads) {
    const versions = (found.get(head.event)?.versions ?? 0) + 1;
    found.set(head.event, { event: head.event, latest: head, versions });
  }
  return [...found.values()];
}

export function SchemasPage() {
  const read = usePages((cursor, signal) => listSchemas(cursor, signal), []);
  const check = useLoaded((signal) => checkTraffic({}, signal), []);
  const reload = () => {
    read.reload();
    check.reload();
  };
  useFollowed(reload, { frames: "system.schema.>" });
  useLive("system.enforcement.updated", { onFrame: check.reload });
  const checksOf = (event: string) =>
    check.value?.schemas.filter(({ event_name }) => event_name === event) ?? [];
  const mode = check.value?.mode;
  return (
    <ResourceList
      title="Schemas"
      about={mode && modeWords[mode]}
      actions={
        <>
          <Button icon="refresh" label="Check the traffic again" onClick={reload} />
          {may("secrets:manage") && mode && (
            <Opener text="Enforcement…" onClosed={reload}>
              {(onClose) => <ModeDialog mode={mode} onClose={onClose} />}
            </Opener>
          )}
          {may("schemas:manage") && (
            <Opener kind="primary" icon="schemas" text="Register…" onClosed={reload}>
              {(onClose) => <RegisterDialog onClose={onClose} />}
            </Opener>
          )}
        </>
      }
      read={{ ...read, value: read.value && byEvent(read.value) }}
      keyOf={({ event }) => event}
      empty="No schemas"
      docs="events#schemas"
      says="Events without a schema may hold anything."
      columns={[
        {
          name: "Event",
          of: ({ event }) => (
            <>
              <Text of={event} href={hrefOf(["schemas", event])} />
              {checksOf(event).some(({ compile_error }) => compile_error !== "") && (
                <span class="under warn">cannot be used</span>
              )}
            </>
          ),
        },
        { name: "For", of: ({ latest }) => <Text of={latest.description} /> },
        { name: "Latest", isNumber: true, of: ({ latest }) => `${latest.version}` },
        { name: "Versions", isNumber: true, of: ({ versions }) => `${versions}` },
        {
          name: "Refused in a day",
          isNumber: true,
          of: ({ event }) => <Bad of={checksOf(event).reduce((sum, one) => sum + refusedOf(one), 0)} />,
        },
        { name: "Changed", isNumber: true, of: ({ latest }) => <When at={latest.createdAt} /> },
      ]}
    >
      {check.error !== undefined && <Failure error={check.error} onRetry={check.reload} />}
    </ResourceList>
  );
}

function ModeDialog({ mode, onClose }: DialogEnds & { mode: string }) {
  const [{ chosen }, field] = useFields({ chosen: mode });
  const submit = async () => {
    await setMode(chosen);
    return modeWords[chosen as keyof typeof modeWords];
  };
  return (
    <FormDialog title="Enforcement of schemas" submit="Set" onSubmit={submit} onClose={onClose}>
      <Choice
        label="An event that breaks its schema"
        {...field("chosen")}
        options={[
          ["enforce", "is refused"],
          ["warn", "is written and marked"],
          ["off", "is written"],
        ]}
      />
      <p class="hint">For all events of this environment that have a schema, from now on.</p>
    </FormDialog>
  );
}
