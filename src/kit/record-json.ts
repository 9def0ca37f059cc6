import { snakeCase } from "./cases.ts";
import { rfc3339 } from "./clock.ts";
import type { FieldNames } from "./words.ts";

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
