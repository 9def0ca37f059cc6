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
