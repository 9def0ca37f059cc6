import {
  create,
  type DescField,
  type DescMessage,
  fromJson,
  type JsonValue,
  type Message,
  type MessageInitShape,
  ScalarType,
  toJson,
} from "@bufbuild/protobuf";
import { type Fault, invalid } from "../kit/fault.ts";
import { fillOf, inBothSpellings, type JsonObject, spellBoth } from "./always-present.ts";

interface FieldRule {
  jsonName: string;
  repeated: boolean;
  /** A message of ours, to look into. */
  inner: DescMessage | undefined;
  /** Every accepted spelling of an enum's value, in upper case, and its constant. */
  words: Map<string, string> | undefined;
  isStruct: boolean;
  /** `dataValue` beside a Struct `data`: takes what is not an object. */
  valueSibling: string | undefined;
  keepsNull: boolean;
  /** An integer: a number, or its text. */
  isCount: boolean;
  /** A field mask: the joined string of the protobuf mapping, or its list. */
  isMask: boolean;
}

/** `RUN_STATUS_RUNNING`, `RUNNING` and, as the caller's text is raised, `running`. */
function wordsOf(field: DescField): Map<string, string> | undefined {
  if (field.enum === undefined) return undefined;
  const words = new Map<string, string>();
  const prefix = field.enum.sharedPrefix?.toUpperCase() ?? "";
  for (const { name } of field.enum.values) {
    words.set(name, name);
    if (prefix && name.startsWith(prefix)) words.set(name.slice(prefix.length), name);
  }
  return words;
}

/** Read from JSON itself. A bound that is null is refused, as over REST: without it more is selected. */
const bounds: ReadonlySet<string> = new Set(["DeleteRunsRequest", "RepairFilter", "ReplayEvents"]);

const integers: ReadonlySet<ScalarType> = new Set([
  ...[ScalarType.INT32, ScalarType.SINT32, ScalarType.UINT32, ScalarType.FIXED32, ScalarType.SFIXED32],
  ...[ScalarType.INT64, ScalarType.SINT64, ScalarType.UINT64, ScalarType.FIXED64, ScalarType.SFIXED64],
]);
const isWholeText = /^-?\d{1,15}$/;

function ruleOf(field: DescField, message: DescMessage): FieldRule {
  const type = field.message?.typeName;
  const sibling = message.fields.find((other) => other.name === `${field.name}_value`);
  return {
    jsonName: field.jsonName,
    repeated: field.fieldKind === "list" || field.fieldKind === "map",
    inner: type?.startsWith("google.protobuf.") ? undefined : field.message,
    words: wordsOf(field),
    isStruct: type === "google.protobuf.Struct" && field.fieldKind === "message",
    valueSibling: sibling?.message?.typeName === "google.protobuf.Value" ? sibling.jsonName : undefined,
    keepsNull: type === "google.protobuf.Value" || bounds.has(message.name),
    isCount: field.fieldKind === "scalar" && integers.has(field.scalar),
    isMask: type === "google.protobuf.FieldMask",
  };
}

const rulesOf = new Map<string, Map<string, FieldRule>>();

function rules(message: DescMessage): Map<string, FieldRule> {
  let known = rulesOf.get(message.typeName);
  if (!known) {
    known = new Map();
    for (const field of message.fields) {
      const rule = ruleOf(field, message);
      known.set(field.jsonName, rule).set(field.name, rule);
    }
    rulesOf.set(message.typeName, known);
  }
  return known;
}

const isObject = (value: unknown): value is JsonObject =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/** `max_inflight,pattern` or `{ paths }`, in either spelling, as protobuf's own reader wants it. */
function maskText(value: unknown): unknown {
  const paths = isObject(value) ? value.paths : value;
  const text = Array.isArray(paths) ? paths.join(",") : paths;
  if (typeof text !== "string") return value;
  return text.replace(/_([a-z0-9])/g, (_, letter: string) => letter.toUpperCase());
}

/** Called with the path of each field that the message does not have; throws where it is refused. */
export type OnUnknown = (path: string) => void;

interface Translating {
  /** For protobuf's own reader, which wants constants of enums and twins. */
  whole: boolean;
  onUnknown: OnUnknown;
}

function translate(message: DescMessage, body: JsonObject, path: string, how: Translating): void {
  const { whole, onUnknown } = how;
  const known = rules(message);
  for (const sent in body) {
    const rule = known.get(sent);
    const value = body[sent];
    if (!rule) {
      onUnknown(path + sent);
      delete body[sent];
      continue;
    }
    const name = rule.jsonName;
    if (sent !== name) {
      if (body[name] !== undefined) throw invalid(path + name, "set twice, in both spellings");
      delete body[sent];
      body[name] = value;
    }
    if (value === null && rule.isStruct && rule.valueSibling) {
      // A payload that is null, which is not one that was left out.
      if (whole) {
        delete body[name];
        const twins = [...known].filter(([, twin]) => twin.jsonName === rule.valueSibling);
        if (twins.every(([twin]) => body[twin] === undefined)) body[rule.valueSibling] = null;
      }
    } else if (value === null && (!rule.keepsNull || rule.isCount)) {
      delete body[name];
    } else if (rule.inner && typeof value === "object" && value !== null) {
      if (rule.repeated) {
        for (const [key, item] of Object.entries(value)) {
          if (isObject(item)) translate(rule.inner, item, `${path}${name}[${key}].`, how);
        }
      } else if (isObject(value)) translate(rule.inner, value, `${path}${name}.`, how);
    } else if (!whole) {
      if (rule.isCount && typeof value === "string" && isWholeText.test(value)) body[name] = Number(value);
    } else if (rule.isMask) {
      body[name] = maskText(value);
    } else if (rule.words) {
      const { words } = rule;
      const constant = (word: unknown) => {
        if (typeof word !== "string") return word;
        const known = words.get(word.toUpperCase());
        if (!known) throw invalid(path + name, `must be one of ${[...new Set(words.values())].join(", ")}`);
        return known;
      };
      body[name] = Array.isArray(value) ? value.map(constant) : constant(value);
    } else if (rule.isStruct && !isObject(value)) {
      if (!rule.valueSibling) throw invalid(path + name, "must be an object");
      delete body[name];
      body[rule.valueSibling] = value;
    }
  }
}

/** What a JSON request body must be at the least. An empty body is an empty message. */
export function bodyObject(body: unknown): JsonObject {
  if (body === undefined) return {};
  if (!isObject(body)) throw invalid("body", "must be an object");
  return body;
}

/**
 * For bindings that read JSON themselves: takes unknown fields away, drops nulls that are no payload and
 * turns every name into camelCase and texts of integers into numbers, so that a binding sees what protobuf's
 * own reader would see. Other values are left for the schema to refuse.
 */
export function checkNames(message: DescMessage, body: JsonObject, onUnknown: OnUnknown): JsonObject {
  translate(message, body, "", { whole: false, onUnknown });
  return body;
}

const fieldError = /^cannot decode field [\w.]+\.(\w+) from JSON: (.*)$/s;

function explained(error: unknown, message: DescMessage): Fault {
  const text = error instanceof Error ? error.message : String(error);
  const [, protoName, why] = fieldError.exec(text) ?? [];
  if (protoName === undefined || why === undefined) {
    return invalid("body", text.replace(/^cannot decode message [\w.]+ from JSON: /, ""));
  }
  const field = message.fields.find((candidate) => candidate.name === protoName);
  return invalid(field?.jsonName ?? protoName, why);
}

/**
 * A message from its JSON form. Besides the protobuf mapping: enum words without their prefix in either case,
 * and anything but an object in a Struct field that has a `…Value` sibling.
 */
export function readMessage(message: DescMessage, body: JsonObject, onUnknown: OnUnknown): Message {
  translate(message, body, "", { whole: true, onUnknown });
  try {
    return fromJson(message, body as JsonValue);
  } catch (error) {
    throw explained(error, message);
  }
}

/** The JSON of an answer, with the fields that must appear even when zero. */
export function writeMessage(message: DescMessage, init: object): unknown {
  const json = toJson(message, create(message, init as MessageInitShape<DescMessage>));
  fillOf(message)?.(json as JsonObject);
  if (inBothSpellings.has(message.typeName)) spellBoth(message, json as JsonObject);
  return json;
}
