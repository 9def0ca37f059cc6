import {
  type DescMessage,
  fromJson,
  type JsonObject,
  type JsonValue,
  type MessageInitShape,
  type MessageShape,
} from "@bufbuild/protobuf";
import { type Timestamp, type TimestampSchema, type Value, ValueSchema } from "@bufbuild/protobuf/wkt";
import type { Instant } from "./clock.ts";
import { storedJson, storedLevelsMax } from "./payload-json.ts";

export function timestampOf(at: Instant): MessageInitShape<typeof TimestampSchema> {
  const seconds = Math.floor(at / 1000);
  return { seconds: BigInt(seconds), nanos: (at - seconds * 1000) * 1_000_000 };
}

export const instantOf = (timestamp: Timestamp): Instant =>
  Number(timestamp.seconds) * 1000 + Math.floor(timestamp.nanos / 1_000_000);

/**
 * A 64-bit count of a message. Beyond what a number holds exactly it is the farthest, which nothing ever
 * reaches.
 */
export const safeCount = (value: bigint): number =>
  Number(value > Number.MAX_SAFE_INTEGER ? Number.MAX_SAFE_INTEGER : value);
/**
 * A message for each value, and one for each list or object: without the reader's own limit, so that all that
 * is stored is shown.
 */
const recursionLimit = 2 * storedLevelsMax + 2;

/**
 * A Value as JSON; without any kind it is null, as in a Struct. Numbers that JSON has not are left for
 * `requirePayload` to name.
 */
export function jsonOf({ kind }: Value): unknown {
  switch (kind.case) {
    case "structValue": {
      const fields = Object.entries(kind.value.fields).map(([name, value]) => [name, jsonOf(value)] as const);
      return Object.fromEntries(fields);
    }
    case "listValue":
      return kind.value.values.map(jsonOf);
    case "nullValue":
    case undefined:
      return null;
    default:
      return kind.value;
  }
}

/** How requests carry data: an object in the plain field, anything else in its twin. */
export interface DataMessage {
  data?: JsonObject | undefined;
  dataValue?: Value | undefined;
}

export const dataOf = ({ data, dataValue }: DataMessage): { data?: unknown } => ({
  ...(data !== undefined && { data }),
  ...(dataValue !== undefined && { data: jsonOf(dataValue) }),
});

export const isJsonObject = (value: unknown): value is JsonObject =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/** A stored payload as answers carry it: an object in the plain field, anything else in its `…Value` twin. */
export function payload<Plain extends string, Twin extends string>(
  plain: Plain,
  twin: Twin,
  text: string | null,
) {
  if (text === null) return {};
  const value = storedJson(text);
  if (isJsonObject(value)) return { [plain]: value } as Record<Plain, JsonObject>;
  return { [twin]: fromJson(ValueSchema, value as JsonValue, { recursionLimit }) } as Record<Twin, Value>;
}

/** The JSON of an answer as its message: a field is described once, for both protocols. */
export const messageOf =
  <Desc extends DescMessage>(schema: Desc) =>
  (json: unknown): MessageShape<Desc> =>
    fromJson(schema, json as JsonValue);

/** The objects of a list, each read; what is none, or no list, is left for the schema to refuse. */
export const eachOf = (list: unknown, read: (item: Record<string, unknown>) => unknown): unknown =>
  Array.isArray(list) ? list.map((item) => (isJsonObject(item) ? read(item) : item)) : (list ?? []);
