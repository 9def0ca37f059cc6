import type { JsonObject } from "@bufbuild/protobuf";
import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { type Value, ValueSchema } from "@bufbuild/protobuf/wkt";
import { payloadLevelsMax } from "../../src/kit/payload-json.ts";

/** One JSON value at a limit, or just beyond it. */
export interface Probe {
  name: string;
  /** As a client writes it. */
  text: string;
  /** Whether every door must take it; else every door must refuse it. */
  fits: boolean;
  levels: number;
  /** Protobuf's text cannot hold it, so that no client of a binary door can send it. */
  textOnly: boolean;
  /** Protobuf's JSON cannot hold it. */
  finite: boolean;
}

const lists = (levels: number) => "[".repeat(levels) + "]".repeat(levels);
const objects = (levels: number) => `${'{"a":'.repeat(levels)}1${"}".repeat(levels)}`;
const mixed = (levels: number) =>
  Array.from({ length: levels }).reduce<string>(
    (inner, _, at) => (at % 2 === 0 ? `[${inner}]` : `{"b":${inner}}`),
    "true",
  );

const shapes = { lists, objects, mixed };

interface Seen {
  levels: number;
  finite: boolean;
  isWhole: boolean;
}

function seen(value: unknown, into: Seen = { levels: 0, finite: true, isWhole: true }, level = 0): Seen {
  if (typeof value === "number") into.finite &&= Number.isFinite(value);
  if (typeof value === "string") into.isWhole &&= value.isWellFormed();
  if (typeof value !== "object" || value === null) return into;
  into.levels = Math.max(into.levels, level + 1);
  // Deeper is not walked: that it is too deep is all that is asked.
  if (level >= 2_000) return into;
  for (const [key, inner] of Object.entries(value)) {
    into.isWhole &&= key.isWellFormed();
    seen(inner, into, level + 1);
  }
  return into;
}

function probe(name: string, text: string): Probe {
  const { levels, finite, isWhole } = seen(JSON.parse(text));
  const fits = levels <= payloadLevelsMax && finite && isWhole;
  return { name, text, fits, levels, textOnly: !isWhole, finite };
}

const manyKeys = (count: number) =>
  JSON.stringify(Object.fromEntries(Array.from({ length: count }, (_, at) => [`key ${at}`, at])));

/** `pick` chooses among the made-up ones. */
export function probesOf(pick: () => number, long: boolean): Probe[] {
  const numbers = ["1e308", "-1e308", "1e309", "-1e400", "-0", "9007199254740993", "1e-400", "5e-324", "0.1"];
  const texts = [
    "\\u0000",
    "a\\u0000b",
    "\\ud800",
    "x\\udfffy",
    "\\udc00\\ud800",
    "\\ud83d\\ude00",
    "\\uffff",
    "\\u2028",
  ];
  const keys = [
    "__proto__",
    "constructor",
    "prototype",
    "toString",
    "",
    " ",
    "0",
    "a.b",
    "\\u0000",
    "\\ud800",
    "\\ud83d\\ude00",
  ];
  const depths = long ? [1, 31, 32, 33, 34, 39, 40, 41, 60, 99, 200] : [31, 32, 33, 41, 200];
  const all = [
    ...["null", "true", "false", "0", '""', "[]", "{}", "[null]", '{"a":null}', '"__proto__"'].map((text) =>
      probe(text, text),
    ),
    ...numbers.flatMap((text) => [probe(text, text), probe(`[{"n":${text}}]`, `[{"n":${text}}]`)]),
    ...texts.flatMap((text) => [
      probe(`"${text}"`, `"${text}"`),
      probe(`{"t":["${text}"]}`, `{"t":["${text}"]}`),
    ]),
    ...keys.flatMap((key) => [
      probe(`key ${key}`, `{"${key}":{"name":"x"}}`),
      probe(`inner key ${key}`, `{"in":[{"${key}":1}]}`),
    ]),
    ...depths.flatMap((levels) =>
      Object.entries(shapes).map(([shape, of]) => probe(`${levels} levels of ${shape}`, of(levels))),
    ),
    probe("one key twice", '{"a":1,"a":{"b":2}}'),
    probe("__proto__ twice", '{"__proto__":1,"a":2,"__proto__":{"b":3}}'),
    probe("a text of 100,000 letters", JSON.stringify("x".repeat(100_000))),
    probe("a key of 10,000 letters", `{"${"k".repeat(10_000)}":1}`),
    probe("10,000 keys", manyKeys(10_000)),
  ];
  if (long)
    for (let made = 0; made < 60; made++) {
      const levels = 1 + Math.floor(pick() * 40);
      const key = keys[Math.floor(pick() * keys.length)]!;
      const leaf =
        pick() < 0.5
          ? numbers[Math.floor(pick() * numbers.length)]!
          : `"${texts[Math.floor(pick() * texts.length)]}"`;
      let text = leaf;
      for (let level = 0; level < levels; level++) text = pick() < 0.5 ? `[${text},0]` : `{"${key}":${text}}`;
      all.push(probe(`made up ${made}`, text));
    }
  return all;
}

/** Equal values have equal texts, whatever the order of their keys; -0 is 0, as JSON's writers have it. */
export const canonical = (value: unknown): string =>
  JSON.stringify(value, (_, inner: unknown) =>
    typeof inner === "object" && inner !== null && !Array.isArray(inner)
      ? Object.fromEntries(Object.entries(inner).sort(([one], [other]) => (one < other ? -1 : 1)))
      : inner,
  );

export const isObject = (value: unknown): value is JsonObject =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/** A Value of any depth, with what JSON has not. */
export function messageOf(json: unknown): Value {
  return create(ValueSchema, { kind: kindOf(json) } as MessageInitShape<typeof ValueSchema>);
}

function kindOf(json: unknown): unknown {
  if (json === null) return { case: "nullValue", value: 0 };
  if (Array.isArray(json)) return { case: "listValue", value: { values: json.map(messageOf) } };
  if (typeof json !== "object")
    return { case: `${json === true || json === false ? "bool" : typeof json}Value`, value: json };
  const fields = Object.fromEntries(Object.entries(json).map(([key, inner]) => [key, messageOf(inner)]));
  return { case: "structValue", value: { fields } };
}

/** What a message carries in its plain field or its twin. */
export function carriedBy(plain: unknown, twin: Value | undefined): unknown {
  return twin === undefined ? plain : jsonOf(twin);
}

function jsonOf({ kind }: Value): unknown {
  if (kind.case === "listValue") return kind.value.values.map(jsonOf);
  if (kind.case === "structValue")
    return Object.fromEntries(Object.entries(kind.value.fields).map(([key, inner]) => [key, jsonOf(inner)]));
  return kind.case === "nullValue" ? null : kind.value;
}
