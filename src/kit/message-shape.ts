import {
  type DescField,
  type DescMessage,
  type Message,
  type MessageShape,
  ScalarType,
} from "@bufbuild/protobuf";
import {
  StructSchema,
  type Timestamp,
  TimestampSchema,
  type Value,
  ValueSchema,
} from "@bufbuild/protobuf/wkt";
import { type Static, type TObject, type TSchema, type TUnsafe, Type } from "@sinclair/typebox";
import { type CamelCase, camelCase, type FieldNames, type SnakeCase, type Words } from "./cases.ts";
import { timestampOf } from "./wkt.ts";

/** Of a schema: the message whose comments in `proto/` are the words of its fields in the document. */
export const describedBy = "$comment";

/** A value of a message as REST has it: times as text, 64-bit numbers as numbers. */
type RestValue<Held> = Held extends Timestamp
  ? string
  : Held extends Value
    ? unknown
    : Held extends bigint
      ? number
      : Held extends readonly (infer Item)[]
        ? RestValue<Item>[]
        : Held extends Message
          ? RestFields<Held>
          : Held extends { [name: string]: bigint }
            ? Record<string, number>
            : Held extends { [name: string]: string }
              ? Record<string, string>
              : Held extends object
                ? Record<string, unknown>
                : Held;

type RestFields<Sent> = {
  [Name in keyof Sent as SnakeCase<Exclude<Name, "$typeName" | "$unknown"> & string>]-?: RestValue<
    Exclude<Sent[Name], undefined>
  >;
};

type FieldsOf<Desc extends DescMessage> = RestFields<MessageShape<Desc>>;

type Own = Record<string, TSchema>;

type RestShape<
  Desc extends DescMessage,
  Absent extends string,
  Omitted extends string,
  Fields extends Own,
> = Omit<FieldsOf<Desc>, Words<Absent> | Words<Omitted> | keyof Fields> &
  Partial<Pick<FieldsOf<Desc>, Words<Absent> & keyof FieldsOf<Desc>>> &
  Static<TObject<Fields>>;

const schemaOfMessage: Record<string, () => TSchema> = {
  [TimestampSchema.typeName]: () => Type.String({ format: "date-time" }),
  [StructSchema.typeName]: () => Type.Record(Type.String(), Type.Unknown()),
  [ValueSchema.typeName]: () => Type.Unknown(),
};

/** Integers have no bounds beyond those of their field. */
export function scalarShape(scalar: ScalarType | undefined) {
  switch (scalar) {
    case ScalarType.BOOL:
      return Type.Boolean();
    case ScalarType.DOUBLE:
      return Type.Number();
    case ScalarType.STRING:
      return Type.String();
    default:
      return Type.Integer();
  }
}

const valueShape = ({ scalar, message }: Pick<DescField, "scalar" | "message">): TSchema =>
  message ? (schemaOfMessage[message.typeName]?.() ?? shapeOf(message)) : scalarShape(scalar);

function fieldShape(field: DescField): TSchema {
  const value = valueShape(field);
  if (field.fieldKind === "map") return Type.Record(Type.String(), value);
  return field.fieldKind === "list" ? Type.Array(value) : value;
}

/**
 * What REST answers of a message that both protocols have. Said are only fields that are omitted, those that
 * may be absent, where the message has them empty, and REST's own; names in snake_case, apart by a space.
 */
export function shapeOf<
  Desc extends DescMessage,
  Absent extends string = never,
  Omitted extends string = never,
  Fields extends Own = Record<never, TSchema>,
>(
  desc: Desc,
  differs: {
    omit?: FieldNames<FieldsOf<Desc>, Omitted>;
    absent?: FieldNames<FieldsOf<Desc>, Absent>;
    own?: Fields;
  } = {},
): TUnsafe<RestShape<Desc, Absent, Omitted, Fields>> {
  const named = (names = "") => new Set(names.split(" "));
  const [omitted, absent] = [named(differs.omit), named(differs.absent)] as const;
  const fields = desc.fields
    .filter(({ name }) => !omitted.has(name))
    .map((field) => {
      const shape = fieldShape(field);
      return [field.name, absent.has(field.name) ? Type.Optional(shape) : shape];
    });
  return Type.Object(
    { ...Object.fromEntries(fields), ...differs.own },
    { [describedBy]: desc.typeName },
  ) as unknown as TUnsafe<RestShape<Desc, Absent, Omitted, Fields>>;
}

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
