import { invalid } from "../../../../kit/fault.ts";
import { type Cursor, type PageQuery, pageSize, readCursor, writeCursor } from "../../../../kit/page.ts";
import { containsIgnoringCase, type Sql, sql } from "../../../../kit/sql.ts";
import type { Store } from "../../../../store/store.ts";
import { candidatesMax } from "../../attributes/rules.ts";
import { searchedFunctionsMax } from "../limits.ts";
import * as rows from "../rows.ts";
import { isAmong } from "../rules.ts";
import {
  type Candidates,
  countThrough,
  fittingRuns,
  leadOf,
  lookThrough,
  ofFunctions,
  type RunsCount,
  type RunsLook,
  type RunsPage,
} from "./look.ts";

/**
 * Where a page begins. A search looks at the newest runs; after the last one looked at, `edge`, it lists what
 * the index of functions finds, all of it, and then looks at the others.
 */
type RunsPlace =
  | { part: "all"; after: Cursor | undefined }
  | { part: "functions"; edge: Cursor; after: Cursor }
  | { part: "others"; after: Cursor };

const textOf = ({ at, id }: Cursor): string => `${at}.${id}`;

const encoded = (text: string): string => Buffer.from(text).toString("base64url");

const writePlace = (place: RunsPlace): string | undefined => {
  if (place.after === undefined) return undefined;
  if (place.part === "all") return writeCursor(place.after);
  if (place.part === "others") return encoded(`others ${textOf(place.after)}`);
  return encoded(`functions ${textOf(place.edge)} ${textOf(place.after)}`);
};

function readPlace({ cursor, offset = 0 }: PageQuery): RunsPlace {
  if (cursor === undefined) return { part: "all", after: undefined };
  if (offset > 0) throw invalid("cursor", "cannot be combined with offset");
  const [part, ...texts] = Buffer.from(cursor, "base64url").toString().split(" ");
  const [first, second] = texts.map((text) => readCursor("cursor", encoded(text)));
  if (part === "functions" && first && second) return { part, edge: first, after: second };
  if (part === "others" && first) return { part, after: first };
  return { part: "all", after: readCursor("cursor", cursor) };
}

/** Functions whose ids hold the text of a search that is no id itself. */
async function searchedFunctions(store: Pick<Store, "all">, filter: rows.RunFilter): Promise<string[]> {
  const { environmentId, search, functionId } = filter;
  if (search === undefined || functionId !== undefined || rows.namedBy(search)) return [];
  const found = await store.all<{ id: string }>(sql`SELECT id FROM functions
    WHERE environment_id = ${environmentId} AND ${containsIgnoringCase("id", search)}
    ORDER BY id LIMIT ${searchedFunctionsMax}`);
  return found.map(({ id }) => id);
}

const notOf = (functionIds: readonly string[]): Sql[] =>
  functionIds.length === 0 ? [] : [sql`r.function_id NOT IN ${sql.list(functionIds)}`];

/** Runs of a filter without attributes, newest first. */
export async function pageOfRuns(store: Store, filter: rows.RunFilter, query: PageQuery): Promise<RunsPage> {
  const place = readPlace(query);
  const size = pageSize(query.limit);
  const lead = await leadOf(store, filter);
  const asked = { filter, lead, place, size, offset: query.offset ?? 0 };
  const { look, next, counted } = await lookAndCount(store, asked);
  const most = await fittingRuns(store, look.ids);
  if (most < look.ids.length) {
    // A caller that pages by numbers would pass over what a shorter page leaves out.
    if (asked.offset > 0)
      throw invalid(
        "limit",
        `only ${most} of these runs fit into one page: ask for fewer, or go on by cursor`,
      );
    return pageOfRuns(store, filter, { ...query, limit: most });
  }
  const found = await rows.runsById(store, filter.environmentId, look.ids);
  const { statuses } = filter;
  return {
    // A run may have moved on since it was looked up.
    runs: statuses.length === 0 ? found : found.filter((run) => isAmong(statuses, run)),
    nextCursor: next && writePlace(next),
    ...counted,
    scanned: look.scanned,
  };
}

interface AskedRuns {
  filter: rows.RunFilter;
  lead: Candidates;
  place: RunsPlace;
  size: number;
  offset: number;
}

async function lookAndCount(
  store: Store,
  asked: AskedRuns,
): Promise<{ look: RunsLook; next: RunsPlace | undefined; counted: RunsCount }> {
  const { lead, place, offset } = asked;
  if (place.after || offset > 0 || lead.matching.length > 0) {
    const [found, counted] = await Promise.all([lookAt(store, asked), countThrough(store, lead)]);
    return { ...found, counted };
  }
  // Counted on from the end of the page: runs that came since the look are neither in it nor in the count, so
  // that who follows the list by frames adds each once.
  const found = await lookAt(store, asked);
  const known = found.look.ids.length;
  const after = found.next?.after;
  const counted = after
    ? await countThrough(store, lead, { known, after })
    : { totalCount: known, isTotalCut: false };
  return { ...found, counted };
}

async function lookAt(
  store: Store,
  asked: AskedRuns,
): Promise<{ look: RunsLook; next: RunsPlace | undefined }> {
  const { filter, lead, place, size, offset } = asked;
  if (place.part === "functions") {
    const look = await lookAtFunctions(store, asked, await searchedFunctions(store, filter), place.after);
    return { look, next: behindFunctions(look, place.edge) };
  }
  if (place.part === "others") {
    const others = notOf(await searchedFunctions(store, filter));
    const list = { ...lead, matching: [...lead.matching, ...others] };
    const look = await lookThrough(store, list, { after: place.after, size, offset });
    return { look, next: look.next && { part: "others", after: look.next } };
  }
  const look = await lookThrough(store, lead, { after: place.after, size, offset });
  const next: RunsPlace | undefined = look.next && { part: "all", after: look.next };
  const room = size - look.ids.length;
  if (look.scanned === 0 || room === 0 || !look.next) return { look, next };
  const functionIds = await searchedFunctions(store, filter);
  if (functionIds.length === 0) return { look, next };
  const more = await lookAtFunctions(store, { ...asked, size: room }, functionIds, look.next);
  return {
    look: { ...look, ids: [...look.ids, ...more.ids] },
    next: behindFunctions(more, look.next),
  };
}

const lookAtFunctions = (
  store: Store,
  { filter, lead, size }: Pick<AskedRuns, "filter" | "lead" | "size">,
  functionIds: readonly string[],
  after: Cursor,
): Promise<RunsLook> =>
  functionIds.length === 0
    ? Promise.resolve({ ids: [], next: undefined, scanned: 0 })
    : lookThrough(
        store,
        ofFunctions(filter, functionIds),
        { after, size, offset: 0 },
        Math.ceil(lead.within(candidatesMax) / functionIds.length),
      );

const behindFunctions = ({ next }: RunsLook, edge: Cursor): RunsPlace =>
  next ? { part: "functions", edge, after: next } : { part: "others", after: edge };
