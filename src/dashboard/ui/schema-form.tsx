import { useEffect, useId, useState } from "preact/hooks";
import { parsedJson } from "../lib/api.ts";
import { plain, writeJson } from "../lib/format.ts";
import { Choice, Field } from "./dialog.tsx";

type Schema = Readonly<Record<string, unknown>>;
type MemberValues = Record<string, unknown>;

const isRecord = (value: unknown): value is MemberValues =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/** Objects inside objects that are shown as fields; what is deeper is JSON. */
const levelsMax = 3;
const fieldsMax = 100;

const membersOf = (schema: unknown): [string, Schema][] =>
  isRecord(schema) && isRecord(schema.properties)
    ? Object.entries(schema.properties)
        .filter((entry): entry is [string, Schema] => isRecord(entry[1]))
        .slice(0, fieldsMax)
    : [];

/** Whether there are fields to show for it. */
export const hasFields = (schema: unknown): boolean => membersOf(schema).length > 0;

const typeOf = ({ type }: Schema): unknown =>
  Array.isArray(type) ? type.find((one) => one !== "null") : type;

interface OneField {
  name: string;
  schema: Schema;
  isRequired: boolean;
  value: unknown;
  level: number;
  /** Undefined takes the member away. */
  onChange: (value: unknown) => void;
}

/** Fields for the members of an object, by its JSON Schema. What they do not know stays as it is. */
export function SchemaForm(props: {
  schema: unknown;
  value: unknown;
  onChange: (value: MemberValues) => void;
  level?: number;
}) {
  const { schema, value, onChange, level = 0 } = props;
  const known = isRecord(value) ? value : {};
  const required = isRecord(schema) && Array.isArray(schema.required) ? schema.required : [];
  return (
    <>
      {membersOf(schema).map(([name, member]) => (
        <MemberField
          key={name}
          {...{ name, level }}
          schema={member}
          isRequired={required.includes(name)}
          value={known[name]}
          onChange={(changed) => {
            const { [name]: _before, ...rest } = known;
            onChange(changed === undefined ? rest : { ...rest, [name]: changed });
          }}
        />
      ))}
    </>
  );
}

function MemberField(props: OneField) {
  const { name, schema, isRequired, value, level, onChange } = props;
  const type = typeOf(schema);
  const label = `${plain(name)}${isRequired ? "" : " (optional)"}`;
  const hint = typeof schema.description === "string" ? { hint: plain(schema.description) } : {};
  if (Array.isArray(schema.enum)) {
    const words = schema.enum.map((one) => [JSON.stringify(one), plain(String(one))] as const);
    return (
      <Choice
        {...{ label, ...hint }}
        value={value === undefined ? "" : JSON.stringify(value)}
        options={[["", "–"], ...words]}
        onInput={(chosen) => onChange(chosen === "" ? undefined : JSON.parse(chosen))}
      />
    );
  }
  if (type === "boolean")
    return (
      <Choice
        {...{ label, ...hint }}
        value={value === undefined ? "" : `${value}`}
        options={[
          ["", "–"],
          ["true", "true"],
          ["false", "false"],
        ]}
        onInput={(chosen) => onChange(chosen === "" ? undefined : chosen === "true")}
      />
    );
  if (type === "string")
    return (
      <Field
        {...{ label, ...hint }}
        value={typeof value === "string" ? value : ""}
        onInput={(typed) => onChange(typed === "" && !isRequired ? undefined : typed)}
      />
    );
  if (type === "object" && level < levelsMax && hasFields(schema))
    return (
      <fieldset class="members">
        <legend>{label}</legend>
        <SchemaForm {...{ schema, value, onChange }} level={level + 1} />
      </fieldset>
    );
  return <TypedField {...props} label={label} isNumber={type === "integer" || type === "number"} />;
}

/** A member whose text is read as JSON. Half a number or half a list stays as typed, and has no value yet. */
function TypedField(props: OneField & { label: string; isNumber: boolean }) {
  const { name, value, label, isNumber, onChange } = props;
  const id = useId();
  const written = value === undefined ? "" : isNumber ? `${value}` : writeJson(value);
  const [typed, setTyped] = useState(written);
  const [error, setError] = useState("");
  useEffect(() => {
    if (error === "") setTyped((before) => (isSame(before, value) ? before : written));
  }, [written]);
  const change = (text: string) => {
    setTyped(text);
    setError("");
    if (text.trim() === "") {
      onChange(undefined);
      return;
    }
    try {
      const read = parsedJson(text, name);
      if (isNumber && typeof read !== "number") throw new Error(`${name} is no number`);
      onChange(read);
    } catch (failure) {
      setError((failure as Error).message);
    }
  };
  return (
    <div class="field" id={id}>
      <Field label={label} isCode value={typed} onInput={change} {...(!isNumber && { rows: 3 })} />
      {error !== "" && <p class="form-error">{plain(error)}</p>}
    </div>
  );
}

/** Whether a text means this value already, in whatever spelling. */
function isSame(text: string, value: unknown): boolean {
  if (text.trim() === "") return value === undefined;
  try {
    return JSON.stringify(JSON.parse(text)) === JSON.stringify(value);
  } catch {
    return false;
  }
}
