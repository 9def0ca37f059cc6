import { rfc3339 } from "./clock.ts";

/** `created_at` is `createdAt`. */
export type CamelCase<Name extends string> = Name extends `${infer First}_${infer Rest}`
  ? `${First}${Capitalize<CamelCase<Rest>>}`
  : Name;

/** `createdAt` is `created_at`. */
export type SnakeCase<Name extends string> = Name extends `${infer First}${infer Rest}`
  ? `${First extends Lowercase<First> ? First : `_${Lowercase<First>}`}${SnakeCase<Rest>}`
  : Name;

/** The same fields by names in camelCase. */
export type InCamelCase<Fields> = { [Name in keyof Fields as CamelCase<Name & string>]: Fields[Name] };

export const camelCase = (name: string): string =>
  name.replace(/_([a-z])/g, (_, letter: string) => letter.toUpperCase());

export const snakeCase = (name: string): string => name.replace(/([a-z0-9])([A-Z])/g, "$1_$2").toLowerCase();

const namesKept = 1_000;
const camelNames = new Map<string, string>();

/** Rows come by the thousand, with the same columns. */
function keptCamelCase(name: string): string {
  const known = camelNames.get(name);
  if (known !== undefined) return known;
  const made = camelCase(name);
  if (camelNames.size < namesKept) camelNames.set(name, made);
  return made;
}

/** A row of the store as the rest of the code has it. What a field holds stays as it is. */
export const inCamelCase = <Fields extends object>(fields: Fields): InCamelCase<Fields> =>
  Object.fromEntries(
    Object.entries(fields).map(([name, value]) => [keptCamelCase(name), value]),
  ) as InCamelCase<Fields>;

/** The same fields by names in snake_case. */
export type InSnakeCase<Fields> = { [Name in keyof Fields as SnakeCase<Name & string>]: Fields[Name] };

export const inSnakeCase = <Fields extends object>(fields: Fields): InSnakeCase<Fields> =>
  Object.fromEntries(
    Object.entries(fields).map(([name, value]) => [snakeCase(name), value]),
  ) as InSnakeCase<Fields>;

/** The words of a text, apart by a space. */
export type Words<
  Text extends string,
  Found extends string = never,
> = Text extends `${infer One} ${infer Rest}` ? Words<Rest, Found | One> : Found | Text;

/** A text whose words are fields; `never` where one is none. */
export type FieldNames<Fields, Text extends string> = Text &
  (Words<Text> extends keyof Fields ? unknown : never);

/**
 * A record as answers have it: these of its fields, apart by a space, in snake_case; times (`…At`) as text,
 * and nothing of what is null or undefined.
 */
export function recordJson<Fields extends object, Text extends string>(
  fields: Fields,
  names: FieldNames<Fields, Text>,
): Record<string, unknown> {
  const json: Record<string, unknown> = {};
  for (const name of names.split(" ")) {
    const value = (fields as Record<string, unknown>)[name];
    if (value === null || value === undefined) continue;
    const isTime = typeof value === "number" && /(?:^a|A|_a)t$/.test(name);
    json[snakeCase(name)] = isTime ? rfc3339(value) : value;
  }
  return json;
}

/** The fields that are stated: without those that are undefined. */
export const stated = <Fields extends object>(fields: Fields) =>
  Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) as {
    [Name in keyof Fields]?: Exclude<Fields[Name], undefined>;
  };
