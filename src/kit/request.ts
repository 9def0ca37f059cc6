import {
  type DescField,
  type DescMessage,
  type DescMethodUnary,
  isMessage,
  type Message,
  type MessageInitShape,
  type MessageShape,
} from "@bufbuild/protobuf";
import {
  FeatureSet_FieldPresence as Presence,
  type Timestamp,
  TimestampSchema,
} from "@bufbuild/protobuf/wkt";
import { type Static, type TObject, type TSchema, type TUnsafe, Type } from "@sinclair/typebox";
import { type InSnakeCase, inSnakeCase } from "./cases.ts";
import { rfc3339 } from "./clock.ts";
import { scalarShape } from "./message-shape.ts";
import { type RpcBinding, rpc } from "./operation.ts";
import { instantOf, safeCount } from "./wkt.ts";

/** The fields of a message without what protobuf adds, and 64-bit numbers as numbers; inside it, too. */
type AsSent<Sent> = {
  [Name in keyof Sent as Exclude<Name, "$typeName" | "$unknown">]: PlainValue<Exclude<Sent[Name], undefined>>;
};
type PlainValue<Held> = Held extends bigint
  ? number
  : Held extends Message<`google.protobuf.${string}`>
    ? Held
    : Held extends Message
      ? AsSent<Held>
      : Held extends readonly (infer Item extends Message)[]
        ? PlainValue<Item>[]
        : Held;

function plainValue(value: unknown): unknown {
  if (typeof value === "bigint") return safeCount(value);
  if (Array.isArray(value)) return value.map(plainValue);
  return isMessage(value) && !value.$typeName.startsWith("google.protobuf.") ? asSent(value) : value;
}

/** A request of an RPC whose operation takes the same fields under the same names. */
export function asSent<Sent extends object>(message: Sent): AsSent<Sent> {
  const { $typeName: _type, $unknown: _unknown, ...fields } = message as Sent & Record<string, unknown>;
  return Object.fromEntries(
    Object.entries(fields).flatMap(([name, value]) =>
      value === undefined ? [] : [[name, plainValue(value)]],
    ),
  ) as AsSent<Sent>;
}

type AsGiven<Sent> = { [Name in keyof AsSent<Sent>]?: Timed<Exclude<AsSent<Sent>[Name], undefined>> };
type Timed<Value> = Value extends Timestamp ? string : Value;

const isEmpty = (value: unknown): boolean => !value || (Array.isArray(value) && value.length === 0);

/** The same without what is empty, and with times as text: as a request in JSON has it. */
export const asGiven = <Sent extends object>(message: Sent): AsGiven<Sent> =>
  Object.fromEntries(
    Object.entries(asSent(message)).flatMap(([name, value]) => {
      if (isEmpty(value)) return [];
      return [[name, isMessage(value, TimestampSchema) ? rfc3339(instantOf(value)) : value]];
    }),
  ) as AsGiven<Sent>;

/** The same by REST's names, for an operation that has these. */
export const asRest = <Sent extends Message>(message: Sent): InSnakeCase<AsSent<Sent>> =>
  inSnakeCase(asSent(message) as object) as InSnakeCase<AsSent<Sent>>;

/** Messages inside the message are as protobuf has checked them. */
function valueShape({ scalar, message }: Pick<DescField, "scalar" | "message">) {
  if (message?.typeName.startsWith("google.protobuf.")) return Type.Unknown();
  return message ? Type.Object({}, { additionalProperties: true }) : scalarShape(scalar);
}

function fieldShape(field: DescField): TSchema {
  const value = valueShape(field);
  if (field.fieldKind === "map") return Type.Record(Type.String(), value);
  if (field.fieldKind === "list") return Type.Array(value);
  return field.presence === Presence.EXPLICIT ? Type.Optional(value) : value;
}

type SentInput<Desc extends DescMessage, Own extends Record<string, TSchema>> = Omit<
  AsSent<MessageShape<Desc>>,
  keyof Own
> &
  Static<TObject<Own>>;

/** What `asSent` makes of a message. `own`: fields with bounds, which are checked. */
export const sentShape = <
  Desc extends DescMessage,
  Own extends Record<string, TSchema> = Record<never, TSchema>,
>(
  desc: Desc,
  own?: Own,
): TUnsafe<SentInput<Desc, Own>> =>
  Type.Object({
    ...Object.fromEntries(desc.fields.map((field) => [field.localName, fieldShape(field)])),
    ...own,
  }) as unknown as TUnsafe<SentInput<Desc, Own>>;

/** Of an operation that takes the request of its method as it is: the input, and how it comes. */
export const requestOf = <
  In extends DescMessage,
  Out extends DescMessage,
  Output,
  Own extends Record<string, TSchema> = Record<never, TSchema>,
>(
  method: DescMethodUnary<In, Out>,
  encode: (output: Output) => MessageInitShape<Out>,
  own?: Own,
): { input: TUnsafe<SentInput<In, Own>>; rpc: RpcBinding<SentInput<In, Own>, Output> } => ({
  input: sentShape(method.input, own),
  rpc: rpc(method, asSent as (message: MessageShape<In>) => SentInput<In, Own>, encode),
});
