/**
 * A definition's path into an event's data, by its parts: `customer.id`, also written `data.…`,
 * `event.data.…`, `$.data.…`.
 */
export function dataPath(path: string): readonly string[] {
  const parts = path.split(".");
  if (parts[0] === "$") parts.shift();
  else if (parts[0] === "event" && parts[1] === "data") parts.shift();
  if (parts[0] === "data" && parts.length > 1) parts.shift();
  return parts;
}

/** The value at the path; undefined when it is missing or null. List items are named by number. */
export function valueAt(data: unknown, path: string): unknown {
  let value = data;
  for (const part of dataPath(path)) {
    if (typeof value !== "object" || value === null || !Object.hasOwn(value, part)) return undefined;
    value = (value as Record<string, unknown>)[part];
  }
  return value ?? undefined;
}
