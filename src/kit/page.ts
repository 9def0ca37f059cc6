import { invalid } from "./fault.ts";
import { listLimitDefault, listLimitMax } from "./limits.ts";

/** A place in a list that is ordered by (at, id): opaque to callers. */
export interface Cursor {
  at: number;
  id: string;
}

export const writeCursor = (cursor: Cursor): string =>
  Buffer.from(`${cursor.at}.${cursor.id}`).toString("base64url");

/** Throws the fault that names the parameter when the text is no cursor of ours. */
export function readCursor(field: string, text: string): Cursor {
  const [, at, id] =
    /^(\d{1,16})\.([A-Za-z0-9_-]{1,128})$/.exec(Buffer.from(text, "base64url").toString()) ?? [];
  if (at === undefined || id === undefined) throw invalid(field, "is not a cursor of this list");
  return { at: Number(at), id };
}

/** 0 and absent mean the default; more than the most is clamped, as list clients expect. */
export const pageSize = (limit: number | undefined, fallback = listLimitDefault): number =>
  limit === undefined || limit <= 0 ? fallback : Math.min(limit, listLimitMax);
