import { valueAt } from "../../../kit/data-path.ts";

/** Of a value at `actorKey`; the rest of a longer one is not looked at. */
const actorIdCharactersMax = 200;

/**
 * The actor of a run: the value at the function's `actorKey` in the event's data. Null for no value, and for
 * one that is not text, a number or a boolean.
 */
export function actorOf(actorKey: string | undefined, data: unknown): string | null {
  if (actorKey === undefined) return null;
  const value = valueAt(data, actorKey);
  if (typeof value !== "string" && typeof value !== "number" && typeof value !== "boolean") return null;
  const text = String(value).slice(0, actorIdCharactersMax);
  // Postgres keeps no NUL in text, and a hint is not worth an event.
  return text === "" || text.includes("\0") ? null : text;
}
