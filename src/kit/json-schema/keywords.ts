import { compilePattern, PatternError } from "../re2.ts";
import { patternPartsMax, SchemaError } from "./document.ts";
import { type Check, CheckRun, canonical, lettersAStep, patternPartsAStep, type Rule } from "./run.ts";

/** How much of a schema's own values a rule's text says. */
const shownCharsMax = 100;

const shown = (value: unknown): string => {
  const text = JSON.stringify(value);
  return text.length > shownCharsMax ? `${text.slice(0, shownCharsMax).toWellFormed()}…` : text;
};

export const ruleOf = (keyword: string, place: string, text: string): Rule => ({
  keyword,
  place: `${place}/${keyword}`,
  text,
});

/** What is left for the patterns of a schema. */
export interface PatternRoom {
  partsLeft: number;
}

/** A rule about the value itself. */
export type KeywordCompiler = (value: unknown, place: string, room: PatternRoom) => Check;

const typesOf: Record<string, (value: unknown) => boolean> = {
  null: (value) => value === null,
  boolean: (value) => typeof value === "boolean",
  object: (value) => typeof value === "object" && value !== null && !Array.isArray(value),
  array: Array.isArray,
  number: (value) => typeof value === "number",
  integer: Number.isInteger,
  string: (value) => typeof value === "string",
};

export const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === "object" && value !== null && !Array.isArray(value);

export function requireCount(value: unknown, place: string): number {
  if (typeof value !== "number" || !Number.isInteger(value) || value < 0)
    throw new SchemaError(place, "must be a whole number, not negative");
  return value;
}

export function requireNames(value: unknown, place: string): string[] {
  if (!Array.isArray(value) || value.some((name) => typeof name !== "string"))
    throw new SchemaError(place, "must be a list of names");
  return value as string[];
}

function requirePatternAt(value: unknown, place: string, room: PatternRoom) {
  if (typeof value !== "string") throw new SchemaError(place, "must be a text");
  try {
    const compiled = compilePattern(value);
    room.partsLeft -= compiled.size;
    if (room.partsLeft < 0)
      throw new SchemaError("", `must have at most ${patternPartsMax} parts in its patterns together`);
    return compiled;
  } catch (error) {
    throw error instanceof PatternError ? new SchemaError(place, `cannot be used: ${error.message}`) : error;
  }
}

/** Whether a text has a match of the pattern. */
export function searcher(
  pattern: unknown,
  place: string,
  room: PatternRoom,
): (text: string, run: CheckRun) => boolean {
  const { re2, size } = requirePatternAt(pattern, place, room);
  return (text, run) => {
    run.spend(1 + Math.floor(((text.length + 1) * size) / patternPartsAStep));
    return re2.test(text);
  };
}

const number =
  (keyword: string, says: string, holds: (value: number, bound: number) => boolean): KeywordCompiler =>
  (bound, place) => {
    if (typeof bound !== "number") throw new SchemaError(`${place}/${keyword}`, "must be a number");
    const rule = ruleOf(keyword, place, `must be ${says} ${bound}`);
    return (value, run) => typeof value !== "number" || holds(value, bound) || run.fail(rule);
  };

/** A quotient of decimals misses a whole number by so many of the smallest parts that it can have. */
const roundingErrors = 4;

function isMultiple(value: number, of: number): boolean {
  const quotient = value / of;
  return Math.abs(quotient - Math.round(quotient)) <= roundingErrors * Number.EPSILON * Math.abs(quotient);
}

/** Characters as people count them, not the halves that some are stored as. */
function charactersOf(text: string): number {
  let count = text.length;
  for (let at = 0; at < text.length - 1; at++) {
    const isPair = (text.charCodeAt(at) & 0xfc00) === 0xd800 && (text.charCodeAt(at + 1) & 0xfc00) === 0xdc00;
    if (isPair) {
      count--;
      at++;
    }
  }
  return count;
}

const size =
  (
    keyword: string,
    says: string,
    sizeOf: (value: unknown, run: CheckRun) => number | undefined,
    holds: (size: number, bound: number) => boolean,
  ): KeywordCompiler =>
  (given, place) => {
    const bound = requireCount(given, `${place}/${keyword}`);
    const rule = ruleOf(keyword, place, says.replace("#", `${bound}`));
    return (value, run) => {
      const found = sizeOf(value, run);
      return found === undefined || holds(found, bound) || run.fail(rule);
    };
  };

const least = (found: number, bound: number) => found >= bound;
const most = (found: number, bound: number) => found <= bound;
const lengthOf = (value: unknown, run: CheckRun) => {
  if (typeof value !== "string") return undefined;
  run.spend(Math.floor(value.length / lettersAStep));
  return charactersOf(value);
};
const countOf = (value: unknown) => (Array.isArray(value) ? value.length : undefined);
const membersOf = (value: unknown, run: CheckRun) => {
  if (!isObject(value)) return undefined;
  const { length } = Object.keys(value);
  run.spend(length);
  return length;
};

const oneOfValues = (keyword: string, list: readonly unknown[], place: string, says: string): Check => {
  // What a schema lists is bounded by its bytes; the run only counts.
  const known = new Set(list.map((one) => canonical(one, new CheckRun())));
  const rule = ruleOf(keyword, place, says);
  return (value, run) => known.has(canonical(value, run)) || run.fail(rule);
};

export const keywords: Readonly<Record<string, KeywordCompiler>> = {
  type(given, place) {
    const names = requireNames(typeof given === "string" ? [given] : given, `${place}/type`);
    const tests = names.map((name) => (Object.hasOwn(typesOf, name) ? typesOf[name] : undefined));
    if (tests.length === 0 || tests.includes(undefined))
      throw new SchemaError(`${place}/type`, `must be of ${Object.keys(typesOf).join(", ")}`);
    const rule = ruleOf("type", place, `must be ${names.join(" or ")}`);
    const [first] = tests as ((value: unknown) => boolean)[];
    if (tests.length === 1) return (value, run) => first!(value) || run.fail(rule);
    return (value, run) => tests.some((test) => test!(value)) || run.fail(rule);
  },
  enum(given, place) {
    if (!Array.isArray(given)) throw new SchemaError(`${place}/enum`, "must be a list");
    return oneOfValues("enum", given, place, `must be one of ${shown(given)}`);
  },
  const: (given, place) => oneOfValues("const", [given], place, `must be ${shown(given)}`),
  minimum: number("minimum", "at least", least),
  maximum: number("maximum", "at most", most),
  exclusiveMinimum: number("exclusiveMinimum", "more than", (value, bound) => value > bound),
  exclusiveMaximum: number("exclusiveMaximum", "less than", (value, bound) => value < bound),
  multipleOf(given, place, room) {
    if (typeof given !== "number" || given <= 0)
      throw new SchemaError(`${place}/multipleOf`, "must be a number above 0");
    return number("multipleOf", "a multiple of", isMultiple)(given, place, room);
  },
  minLength: size("minLength", "must have at least # characters", lengthOf, least),
  maxLength: size("maxLength", "must have at most # characters", lengthOf, most),
  pattern(given, place, room) {
    const matches = searcher(given, `${place}/pattern`, room);
    const rule = ruleOf("pattern", place, `must match the pattern ${shown(given)}`);
    return (value, run) => typeof value !== "string" || matches(value, run) || run.fail(rule);
  },
  minItems: size("minItems", "must have at least # items", countOf, least),
  maxItems: size("maxItems", "must have at most # items", countOf, most),
  uniqueItems(given, place) {
    if (typeof given !== "boolean") throw new SchemaError(`${place}/uniqueItems`, "must be a boolean");
    const rule = ruleOf("uniqueItems", place, "must not have the same item twice");
    return (value, run) => {
      if (!given || !Array.isArray(value)) return true;
      const found = new Set<string>();
      for (const item of value) found.add(canonical(item, run));
      return found.size === value.length || run.fail(rule);
    };
  },
  minProperties: size("minProperties", "must have at least # properties", membersOf, least),
  maxProperties: size("maxProperties", "must have at most # properties", membersOf, most),
  required(given, place) {
    const names = requireNames(given, `${place}/required`);
    const lacking = (name: string) => ruleOf("required", place, `must have the property ${shown(name)}`);
    return (value, run) => {
      if (!isObject(value)) return true;
      run.spend(names.length);
      const lacks = names.findIndex((name) => !Object.hasOwn(value, name));
      return lacks < 0 || run.fail(lacking(names[lacks]!));
    };
  },
  dependentRequired(given, place) {
    const at = `${place}/dependentRequired`;
    if (!isObject(given)) throw new SchemaError(at, "must be an object");
    const entries = Object.entries(given).map(([name, names]) => ({
      name,
      needs: requireNames(names, at),
      rule: ruleOf("dependentRequired", place, `must have ${shown(names)} with ${shown(name)}`),
    }));
    return (value, run) => {
      if (!isObject(value)) return true;
      for (const { name, needs, rule } of entries) {
        run.spend(1 + needs.length);
        if (Object.hasOwn(value, name) && !needs.every((one) => Object.hasOwn(value, one)))
          return run.fail(rule);
      }
      return true;
    };
  },
};
