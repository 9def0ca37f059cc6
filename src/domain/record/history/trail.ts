import type { BoundedPage } from "../../../kit/bounded-look.ts";
import { stated } from "../../../kit/cases.ts";
import { Fault, invalid } from "../../../kit/fault.ts";
import { pageSize, readCursor, timeBound, writeCursor } from "../../../kit/page.ts";
import type { Store } from "../../../store/store.ts";
import type { Run } from "../../engine/runs/run.ts";
import * as rows from "./rows.ts";
import { eventsOf, type HistoryEvent } from "./rules.ts";

/** Runs whose history is read for one page of an environment's audit trail. */
const auditRunsMax = 500;

export interface TrailQuery {
  run_id?: string;
  function_id?: string;
  event_type?: string;
  /** RFC 3339, inclusive. */
  from?: string;
  to?: string;
  limit?: number;
  cursor?: string;
  /** Fields of authorization decisions. This trail has none, so a query with one of them answers nothing. */
  action?: string;
  api_key_id?: string;
}

export interface Trail {
  events: (HistoryEvent & {
    functionId: string;
    environmentId: string;
    /** Fields of an audited call that an event of a run does not have. */
    more?: Record<string, unknown>;
  })[];
  nextCursor: string | undefined;
  /**
   * The number of matching events. A lower bound while more runs match than one page reads
   * (`auditRunsMax`) and the last page is not reached.
   */
  totalCount: number;
  /** How many runs or calls were looked at, when that ended the page; else 0. */
  scanned: number;
  /** Zero: kept without end. */
  retentionDays: number;
}

export interface TrailDeps {
  store: Store;
  getRun: (environmentId: string, runId: string) => Promise<Run>;
  retentionDaysOf: (environmentId: string) => Promise<number>;
}

/** A page of the events of an environment's runs, newest first. */
export async function readTrail(
  { store, getRun, retentionDaysOf }: TrailDeps,
  environmentId: string,
  query: TrailQuery,
): Promise<Trail> {
  const retentionDays = await retentionDaysOf(environmentId);
  const from = timeBound("from", query.from);
  const to = timeBound("to", query.to);
  const limit = pageSize(query.limit);
  const place = query.cursor ? trailPositionOf(query.cursor) : undefined;
  if (query.action || query.api_key_id)
    return { events: [], nextCursor: undefined, totalCount: 0, scanned: 0, retentionDays };
  const wanted = (event: HistoryEvent) =>
    (!query.event_type || event.type === query.event_type) &&
    (from === undefined || event.at >= from) &&
    (to === undefined || event.at <= to);

  const { found, end, scanned } = query.run_id
    ? await oneRun(getRun, environmentId, query.run_id, query.function_id)
    : await rows.trailRuns(
        store,
        {
          environmentId,
          ...(query.function_id && { functionId: query.function_id }),
          ...stated({ from, to }),
        },
        place,
        auditRunsMax,
      );
  const history = await rows.historyOfAll(
    store,
    found.map((run) => run.id),
  );
  const all = found.flatMap((run) =>
    (history.get(run.id) ?? [])
      .flatMap((row) => eventsOf(row).map((event, place) => ({ event, run, sequence: row.sequence, place })))
      .filter(({ event }) => wanted(event))
      .reverse(),
  );
  const rest = place ? all.filter((one) => one.run.id !== place.id || isFrom(one, place)) : all;
  const page = rest.slice(0, limit);
  const next = rest[limit];
  const last = found.at(-1);
  // For one run all events were read, so they are counted, whatever count the cursor has.
  const before = query.run_id ? all.length - rest.length : (place?.before ?? 0);
  const seen = before + page.length;
  // A page may be short when `auditRunsMax` runs had too few matches, or when too many runs had been looked
  // at. The cursor continues after these runs.
  const reached = !query.run_id && found.length === auditRunsMax ? last : end;
  const nextCursor = next
    ? cursorOf({ ...next, before: seen })
    : reached && cursorOf({ run: reached, sequence: 0, place: 0, before: seen });
  const events = page.map(({ event, run }) => ({ ...event, functionId: run.function_id, environmentId }));
  const looked = next ? 0 : scanned;
  return { events, nextCursor, totalCount: before + rest.length, scanned: looked, retentionDays };
}

/**
 * Empty for a run that is missing or another environment's: a filter finds nothing where a path would answer
 * 404.
 */
async function oneRun(
  getRun: TrailDeps["getRun"],
  environmentId: string,
  runId: string,
  functionId: string | undefined,
): Promise<BoundedPage<rows.TrailRun>> {
  const nothing = { end: undefined, scanned: 0 };
  const run = await getRun(environmentId, runId).catch((error: unknown) => {
    if (error instanceof Fault && error.kind === "not_found") return undefined;
    throw error;
  });
  if (!run || (functionId && functionId !== run.functionId)) return { found: [], ...nothing };
  return {
    found: [{ id: run.id, function_id: run.functionId, created_at: run.createdAt }],
    ...nothing,
  };
}

/**
 * A position in the trail: a row of a run's history and one of its events. Rows that are added later come
 * before it.
 */
interface TrailPosition {
  sequence: number;
  place: number;
  /** Events that were shown before it. */
  before: number;
}

/** Whether an event is at the position or after it; the newest come first. */
const isFrom = (one: { sequence: number; place: number }, from: TrailPosition): boolean =>
  one.sequence < from.sequence || (one.sequence === from.sequence && one.place <= from.place);

const cursorOf = ({ run, sequence, place, before }: TrailPosition & { run: rows.TrailRun }): string =>
  writeCursor({ at: run.created_at, id: `${run.id}-${sequence}-${place}-${before}` });

function trailPositionOf(text: string): TrailPosition & { at: number; id: string } {
  const { at, id } = readCursor("cursor", text);
  const [, runId, ...numbers] = /^(.+)-(\d{1,15})-(\d{1,15})-(\d{1,15})$/.exec(id) ?? [];
  if (runId === undefined) throw invalid("cursor", "is not a cursor of this list");
  const [sequence = 0, place = 0, before = 0] = numbers.map(Number);
  return { at, id: runId, sequence, place, before };
}
