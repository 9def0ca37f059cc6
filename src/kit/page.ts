import { type Instant, parseRfc3339 } from "./clock.ts";
import { Fault, invalid } from "./fault.ts";
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

/** A place in a list that is ordered by name: the last name of the page before. */
export const writeNameCursor = (name: string): string => Buffer.from(name).toString("base64url");

export function readNameCursor(field: string, text: string): string {
  const name = Buffer.from(text, "base64url").toString();
  if (name === "" || writeNameCursor(name) !== text) throw invalid(field, "is not a cursor of this list");
  return name;
}

/** 0 and absent mean the default; more than the most is clamped, as list clients expect. */
export const pageSize = (limit: number | undefined, fallback = listLimitDefault): number =>
  limit === undefined || limit <= 0 ? fallback : Math.min(limit, listLimitMax);

const offsetMax = 10_000;

/** How many rows a page passes over; absent means none. */
export function pageOffset(offset = 0): number {
  if (offset < 0 || offset > offsetMax) throw invalid("offset", `must be from 0 to ${offsetMax}`);
  return offset;
}

/** From when or until when a list is wanted; empty means no bound. */
export function timeBound(field: string, text: string | undefined): Instant | undefined {
  if (text === undefined || text === "") return undefined;
  const at = parseRfc3339(text);
  if (at === undefined)
    throw new Fault("invalid_argument", `invalid '${field}' parameter: must be RFC3339`, { field });
  return at;
}

export interface PageQuery {
  limit?: number;
  offset?: number;
  cursor?: string;
}

/** Where a page begins: after a cursor, or after `offset` rows. */
export function pageStart({ offset = 0, cursor }: PageQuery): { after?: Cursor; offset: number } {
  if (cursor === undefined) return { offset };
  if (offset > 0) throw invalid("cursor", "cannot be combined with offset");
  return { after: readCursor("cursor", cursor), offset };
}

/** Of up to `size + 1` found rows, those of the page. The extra one says that there is a next page. */
export function pageOf<R>(
  found: readonly R[],
  size: number,
  cursorOf: (last: R) => string,
): { items: R[]; nextCursor: string | undefined } {
  const items = found.slice(0, size);
  return { items, nextCursor: found.length > size ? cursorOf(items.at(-1)!) : undefined };
}

/** A page and the count of the whole list, read at once. */
export async function countedPage<R>(
  size: number,
  list: (limit: number) => Promise<readonly R[]>,
  count: () => Promise<number>,
  cursorOf: (last: R) => string,
): Promise<{ items: R[]; nextCursor: string | undefined; totalCount: number }> {
  const [found, totalCount] = await Promise.all([list(size + 1), count()]);
  return { ...pageOf(found, size, cursorOf), totalCount };
}
