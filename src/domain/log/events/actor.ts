import { valueAt } from "../../../kit/data-path.ts";
import { actorIdCharactersMax } from "../../../kit/limits.ts";

/**
 * Whose run it is: what stands at the function's `actorKey` in the event's data; null for none, and for what
 * is no plain value.
 */
export function actorOf(actorKey: string | undefined, data: unknown): string | null {
  if (actorKey === undefined) return null;
  const value = valueAt(data, actorKey);
  if (typeof value !== "string" && typeof value !== "number" && typeof value !== "boolean") return null;
  const text = String(value).slice(0, actorIdCharactersMax);
  // Postgres keeps no NUL in text, and a hint is not worth an event.
  return text === "" || text.includes("\0") ? null : text;
}
