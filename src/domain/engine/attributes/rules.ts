import { type Static, Type } from "@sinclair/typebox";
import { type Instant, parseRfc3339 } from "../../../kit/clock.ts";
import { valueAt } from "../../../kit/data-path.ts";
import { maybe, shape } from "../../../kit/described.ts";
import { invalid } from "../../../kit/fault.ts";
import {
  attributeFiltersMax,
  attributePathBytesMax,
  attributesMax,
  attributeTextBytesMax,
} from "./limits.ts";

export { attributeNamesMax, attributesMax, candidatesMax, fewRunsMax, namesKeptMax } from "./limits.ts";

export const attributeTypes = ["text", "number", "time", "bool"] as const;
export type AttributeType = (typeof attributeTypes)[number];

export type TypedValue =
  | { type: "text"; value: string }
  | { type: "number"; value: number }
  | { type: "time"; value: Instant }
  | { type: "bool"; value: boolean };

/** `stored`: the first letter of its type, and a text that sorts as the values of the type do. */
export interface NewAttribute {
  name: string;
  type: AttributeType;
  stored: string;
}

/** What a report makes of an attribute; null where it takes it away. */
export type AttributeChange = NewAttribute | { name: string; type: null; stored: null };

export const isSet = (change: AttributeChange): change is NewAttribute => change.stored !== null;

export interface RunAttribute {
  name: string;
  value: TypedValue;
}

const namePattern = /^[A-Za-z][A-Za-z0-9_.-]{0,63}$/;

export function requireAttributeName(field: string, name: string): string {
  if (!namePattern.test(name))
    throw invalid(field, "must be a letter and up to 63 letters, digits, dots, hyphens and underscores");
  return name;
}

const sign = 1n << 63n;
const every = (1n << 64n) - 1n;

/** 16 hex digits that sort as the numbers do. */
function sortable(number: number): string {
  const view = new DataView(new ArrayBuffer(8));
  view.setFloat64(0, number === 0 ? 0 : number);
  const bits = view.getBigUint64(0);
  return (bits & sign ? bits ^ every : bits | sign).toString(16).padStart(16, "0");
}

function numberOf(digits: string): number {
  const bits = BigInt(`0x${digits}`);
  const view = new DataView(new ArrayBuffer(8));
  view.setBigUint64(0, bits & sign ? bits ^ sign : bits ^ every);
  return view.getFloat64(0);
}

export function storedValue({ type, value }: TypedValue): string {
  if (type === "text") return `s${value}`;
  if (type === "bool") return value ? "b1" : "b0";
  return (type === "number" ? "n" : "t") + sortable(value);
}

export function readStored(stored: string): TypedValue {
  const rest = stored.slice(1);
  switch (stored[0]) {
    case "n":
      return { type: "number", value: numberOf(rest) };
    case "t":
      return { type: "time", value: numberOf(rest) };
    case "b":
      return { type: "bool", value: rest === "1" };
    default:
      return { type: "text", value: rest };
  }
}

/** Why a text cannot be a value; undefined when it can. */
function whyNoText(text: string): string | undefined {
  if (text.includes("\0")) return "must not contain NUL";
  if (!text.isWellFormed()) return "must not hold half a surrogate";
  if (Buffer.byteLength(text) > attributeTextBytesMax)
    return `must be at most ${attributeTextBytesMax} bytes of text`;
  return undefined;
}

type ReadAttribute = { value: TypedValue } | { why: string };

const notTime = "must be a time in RFC 3339";

/** A JSON value as a value of the type. */
function readAs(type: AttributeType, given: unknown): ReadAttribute {
  if (type === "number" && typeof given === "number" && Number.isFinite(given))
    return { value: { type, value: given } };
  if (type === "bool" && typeof given === "boolean") return { value: { type, value: given } };
  if (typeof given !== "string" || type === "number" || type === "bool")
    return { why: type === "time" ? notTime : `must be a ${type}` };
  if (type === "time") {
    const at = parseRfc3339(given);
    return at === undefined ? { why: notTime } : { value: { type, value: at } };
  }
  const why = whyNoText(given);
  return why === undefined ? { value: { type, value: given } } : { why };
}

function required(field: string, read: ReadAttribute): TypedValue {
  if ("why" in read) throw invalid(field, read.why);
  return read.value;
}

/** As a worker reports them: a time is an object, as JSON has none. */
export const ReportedAttributes = Type.Record(
  Type.String(),
  Type.Union([
    Type.String(),
    Type.Number(),
    Type.Boolean(),
    Type.Object({ time: shape.text("The value of a time, RFC 3339.") }),
    Type.Null(),
  ]),
  {
    description:
      "What the run is found by from here on, by name: at most 32 texts, numbers, bools and times; null takes one away.",
  },
);

const typeOfJson = (given: string | number | boolean | { time: string }): AttributeType => {
  if (typeof given === "object") return "time";
  if (typeof given === "string") return "text";
  return typeof given === "number" ? "number" : "bool";
};

/** Throws the fault that names the attribute and the rule. */
export function readReported(given: Static<typeof ReportedAttributes>): AttributeChange[] {
  const entries = Object.entries(given);
  if (entries.length > attributesMax) throw invalid("attributes", `at most ${attributesMax}`);
  return entries.map(([name, json]) => {
    requireAttributeName("attributes", name);
    if (json === null) return { name, type: null, stored: null };
    const type = typeOfJson(json);
    const read = readAs(type, typeof json === "object" ? json.time : json);
    return { name, type, stored: storedValue(required(`attributes.${name}`, read)) };
  });
}

/** What a function takes from the data of its events. */
export interface DeclaredAttribute {
  name: string;
  /** Where the value stands in the data. */
  path: string;
  type: AttributeType;
}

/** Throws the fault that names the field and the rule. */
export function readDeclared(
  given: readonly { name?: string; path?: string; type?: string }[],
): DeclaredAttribute[] {
  if (given.length > attributesMax) throw invalid("attributes", `at most ${attributesMax}`);
  const names = new Set<string>();
  const list = given.map(({ name = "", path = "", type = "" }, at) => {
    const field = `attributes[${at}]`;
    requireAttributeName(`${field}.name`, name);
    if (names.has(name)) throw invalid(`${field}.name`, "is given twice");
    names.add(name);
    const known = attributeTypes.find((one) => one === (type || "text"));
    if (!known) throw invalid(`${field}.type`, `must be one of ${attributeTypes.join(", ")}`);
    return { name, path: requirePath(`${field}.path`, path || name), type: known };
  });
  return list.sort((a, b) => (a.name < b.name ? -1 : 1));
}

function requirePath(field: string, path: string): string {
  if (Buffer.byteLength(path) > attributePathBytesMax)
    throw invalid(field, `must be at most ${attributePathBytesMax} bytes`);
  if (path.includes("\0") || !path.isWellFormed()) throw invalid(field, "must be well-formed Unicode");
  if (path.split(".").includes("")) throw invalid(field, "must be names with dots between them");
  return path;
}

/** The attributes that event data gives a run, and why others are left out. Missing data is no error. */
export function attributesOfData(
  declared: readonly DeclaredAttribute[],
  data: unknown,
): { found: NewAttribute[]; failed: string[] } {
  const found: NewAttribute[] = [];
  const failed: string[] = [];
  for (const { name, path, type } of declared) {
    const given = valueAt(data, path);
    if (given === undefined) continue;
    const read = readAs(type, given);
    if ("why" in read) failed.push(`attribute ${name}: the value at ${path} ${read.why}`);
    else found.push({ name, type, stored: storedValue(read.value) });
  }
  return { found, failed };
}

/** The same words as `AttributeFilter` of the wire. */
export const AttributeFilterShape = Type.Object({
  name: shape.text("Name of the attribute."),
  op: maybe.text("eq (when left out), lt, lte, gt, gte, prefix or exists."),
  text: maybe.text("The value of a text."),
  number: maybe.number("The value of a number."),
  flag: maybe.flag("The value of a bool."),
  time: maybe.text("The value of a time, RFC 3339."),
});
export type AttributeFilterInput = Static<typeof AttributeFilterShape>;

/** Stored values that a filter finds: one, or from here up to there. */
export interface AttributeRange {
  name: string;
  /** Undefined of `exists`. */
  type: AttributeType | undefined;
  equals?: string;
  from?: { stored: string; isIncluded: boolean };
  to?: { stored: string; isIncluded: boolean };
}

/** The first and the last of them stand at the ends of the alphabet that values begin with. */
const letters: Record<AttributeType, string> = { bool: "b", number: "n", text: "s", time: "t" };

/** The first text after all that begin with this one. */
function behindPrefix(prefix: string): string {
  const points = [...prefix];
  const next = points.pop()!.codePointAt(0)! + 1;
  if (next > 0x10_ffff) return behindPrefix(points.join(""));
  return points.join("") + String.fromCodePoint(next === 0xd800 ? 0xe000 : next);
}

const beginning = (prefix: string): Pick<AttributeRange, "from" | "to"> => ({
  from: { stored: prefix, isIncluded: true },
  to: { stored: behindPrefix(prefix), isIncluded: false },
});

const comparisons = ["lt", "lte", "gt", "gte"] as const;

function rangeOf(op: (typeof comparisons)[number], type: AttributeType, stored: string) {
  const bound = { stored, isIncluded: op.endsWith("e") };
  const whole = beginning(letters[type]);
  return op.startsWith("l") ? { ...whole, to: bound } : { ...whole, from: bound };
}

/** One range a name, but for equal values. Throws the fault that names the filter and the rule. */
export function readFilters(field: string, given: readonly AttributeFilterInput[]): AttributeRange[] {
  if (given.length > attributeFiltersMax) throw invalid(field, `at most ${attributeFiltersMax}`);
  const ranges: AttributeRange[] = [];
  for (const [at, filter] of given.entries()) {
    const range = readFilter(`${field}[${at}]`, filter);
    const same = ranges.findIndex(
      ({ name, type, from }) => from && name === range.name && type === range.type,
    );
    if (same >= 0 && range.from) ranges[same] = narrowed(ranges[same]!, range);
    else ranges.push(range);
  }
  return ranges;
}

type RangeEnd = NonNullable<AttributeRange["from"]>;

/** Texts sort by their bytes, as in the store. Of two bounds at one place the exclusive one is narrower. */
function inner(one: RangeEnd, other: RangeEnd, way: 1 | -1): RangeEnd {
  const order = way * Buffer.compare(Buffer.from(one.stored), Buffer.from(other.stored));
  return order > 0 || (order === 0 && !one.isIncluded) ? one : other;
}

/** What is in both ranges. */
const narrowed = (one: AttributeRange, other: AttributeRange): AttributeRange => ({
  ...one,
  from: inner(one.from!, other.from!, 1),
  to: inner(one.to!, other.to!, -1),
});

function readFilter(field: string, { name, op = "", ...values }: AttributeFilterInput): AttributeRange {
  requireAttributeName(`${field}.name`, name);
  const given = Object.entries(values).filter(([, value]) => value !== undefined);
  if (op === "exists") {
    if (given.length > 0) throw invalid(field, "exists takes no value");
    return { name, type: undefined, from: beginning(letters.bool).from!, to: beginning(letters.time).to! };
  }
  if (given.length !== 1) throw invalid(field, "must have one of text, number, flag and time");
  const [key, json] = given[0]!;
  const type = key === "flag" ? "bool" : (key as AttributeType);
  const stored = storedValue(required(`${field}.${key}`, readAs(type, json)));
  if (op === "" || op === "eq") return { name, type, equals: stored };
  if (op === "prefix") {
    if (type !== "text") throw invalid(`${field}.op`, "prefix is for texts");
    return { name, type, ...beginning(stored) };
  }
  const comparison = comparisons.find((one) => one === op);
  if (!comparison) throw invalid(`${field}.op`, "must be eq, lt, lte, gt, gte, prefix or exists");
  if (type === "bool") throw invalid(`${field}.op`, "a bool takes eq and exists");
  return { name, type, ...rangeOf(comparison, type, stored) };
}

export const otherType = (name: string, known: AttributeType, given: AttributeType): string =>
  `attribute ${name} is a ${known} in this environment, not a ${given}`;
