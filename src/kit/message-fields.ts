import { type DescField, type DescMessage, type MessageShape, ScalarType } from "@bufbuild/protobuf";
import { TimestampSchema } from "@bufbuild/protobuf/wkt";
import { type CamelCase, camelCase } from "./cases.ts";
import { timestampOf } from "./wkt.ts";
import type { Words } from "./words.ts";

const wide: ReadonlySet<ScalarType> = new Set([ScalarType.INT64, ScalarType.UINT64]);

/** A value as its field takes it: times and 64-bit numbers have forms of their own. */
function cast(field: DescField, value: unknown): unknown {
  if (field.fieldKind === "message" && field.message.typeName === TimestampSchema.typeName)
    return timestampOf(value as number);
  return field.fieldKind === "scalar" && wide.has(field.scalar) ? BigInt(value as number) : value;
}

/** `never` where a word is no field of both. */
type SharedNames<Desc extends DescMessage, Row, Text extends string> = Text &
  (Words<Text> extends keyof Row
    ? CamelCase<Words<Text>> extends keyof MessageShape<Desc>
      ? unknown
      : never
    : never);

/**
 * The fields of a message that a record has under the same names, in either case and apart by a space. What
 * is null is left out, as the zero of its field.
 */
export function fieldsFor<Desc extends DescMessage>(desc: Desc) {
  const fields = new Map(desc.fields.map((field) => [field.localName, field]));
  return <Row extends object, Text extends string>(row: Row, names: SharedNames<Desc, Row, Text>) =>
    Object.fromEntries(
      names.split(" ").flatMap((name) => {
        const value = (row as Record<string, unknown>)[name] ?? undefined;
        const field = camelCase(name);
        return value === undefined ? [] : [[field, cast(fields.get(field)!, value)]];
      }),
    ) as Partial<Pick<MessageShape<Desc>, CamelCase<Words<Text>> & keyof MessageShape<Desc>>>;
}
