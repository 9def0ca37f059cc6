import type { Instant } from "../../../kit/clock.ts";
import { column, type Sql, sql } from "../../../kit/sql.ts";
import type { Seams, Store } from "../../../store/store.ts";
import { announcedHistoryTypes } from "./rules.ts";

/** A row of a run's history that subscribers hear of, beside the run as it is. */
export interface RunNote {
  run_id: string;
  environment_id: string;
  function_id: string;
  event_id: string;
  event_name: string;
  /** `run.completed` */
  type: string;
  sequence: number;
  at: Instant;
  /** When a worker began it first; null while none has. */
  started_at: Instant | null;
  /** JSON texts. */
  detail: string;
  output: string | null;
}

/** The way to rows by their key that leaves no other plan, whatever the statistics say (src/store/DECISIONS.md). */
function among(seams: Seams, runIds: readonly string[]) {
  const ids = sql`SELECT i.run_id FROM ${seams.rowsFrom("i", { run_id: column.text(runIds) })}`;
  return seams.engine === "postgres" ? sql`= ANY (ARRAY(${ids}))` : sql`IN (${ids})`;
}

const noteColumns =
  sql.raw(`h.run_id, h.environment_id, r.function_id, r.event_id, r.event_name, h.type, h.sequence,
  h.at, h.detail, COALESCE(r.started_at, (SELECT e.started_at FROM executions e WHERE e.run_id = r.id)) AS started_at,
  CASE WHEN h.type = 'run.completed' THEN r.output END AS output`);

const announcedTypes = sql.list(announcedHistoryTypes);

/** What subscribers hear of these runs, newest first: of each at most `limit` all together. */
export const notesOf = (store: Store, runIds: readonly string[], limit: number): Promise<RunNote[]> =>
  store.all(sql`SELECT ${noteColumns} FROM run_history h JOIN runs r ON r.id = h.run_id
    WHERE h.run_id ${among(store.seams, runIds)} AND r.id ${among(store.seams, runIds)} AND h.type IN ${announcedTypes}
    ORDER BY h.sequence DESC LIMIT ${limit}`);

/** The last row of each run's history, of some types or of all. It is found backwards from the end, once a run. */
function lastNotes(store: Store, runIds: readonly string[], types: Sql, only: Sql): Promise<RunNote[]> {
  return store.all(sql`SELECT ${noteColumns} FROM runs r JOIN run_history h ON h.run_id = r.id
      AND h.sequence = (SELECT max(m.sequence) FROM run_history m WHERE m.run_id = r.id ${types})
    WHERE r.id ${among(store.seams, runIds)} ${only}`);
}

/** The last that subscribers hear of each of these runs. */
export const lastNotesOf = (store: Store, runIds: readonly string[]): Promise<RunNote[]> =>
  lastNotes(store, runIds, sql`AND m.type IN ${announcedTypes}`, sql.empty);

/** How runs ended, of those that are over. */
export const endsOf = (store: Store, runIds: readonly string[]): Promise<RunNote[]> =>
  lastNotes(store, runIds, sql.empty, sql`AND h.type IN ('run.completed', 'run.failed', 'run.cancelled')`);
