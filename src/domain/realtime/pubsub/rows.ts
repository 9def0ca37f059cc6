import type { Instant } from "../../../kit/clock.ts";
import { column, type Sql, sql } from "../../../kit/sql.ts";
import type { Store } from "../../../store/store.ts";
import type { RowOf } from "../../../store/tables/index.ts";
import { announcedHistoryTypes } from "./rules.ts";

/** A row of a run's history that becomes a frame, joined with the run as it is now. */
export interface RunNote extends RowOf<"runs", "environment_id, function_id, event_id, event_name, output"> {
  run_id: string;
  /** `run.completed` */
  type: string;
  sequence: number;
  at: Instant;
  /** When a worker first began the run; null while none has. */
  started_at: Instant | null;
  /** JSON texts. */
  detail: string;
}

const noteColumns =
  sql.raw(`h.run_id, h.environment_id, r.function_id, r.event_id, r.event_name, h.type, h.sequence,
  h.at, h.detail, COALESCE(r.started_at, (SELECT e.started_at FROM executions e WHERE e.run_id = r.id)) AS started_at,
  CASE WHEN h.type = 'run.completed' THEN r.output END AS output`);

const announcedTypes = sql.list(announcedHistoryTypes);

/** Frames' rows of these runs, newest first, at most `limit` in all. */
export function notesOf(store: Store, runIds: readonly string[], limit: number): Promise<RunNote[]> {
  const amongRuns = store.seams.among(column.text(runIds));
  return store.all(sql`SELECT ${noteColumns} FROM run_history h JOIN runs r ON r.id = h.run_id
    WHERE h.run_id ${amongRuns} AND r.id ${amongRuns} AND h.type IN ${announcedTypes}
    ORDER BY h.sequence DESC LIMIT ${limit}`);
}

/**
 * The last row of each run's history, of some types or of all, found backwards from the end of the history.
 */
function lastNotes(store: Store, runIds: readonly string[], types: Sql, only: Sql): Promise<RunNote[]> {
  return store.all(sql`SELECT ${noteColumns} FROM runs r JOIN run_history h ON h.run_id = r.id
      AND h.sequence = (SELECT max(m.sequence) FROM run_history m WHERE m.run_id = r.id ${types})
    WHERE r.id ${store.seams.among(column.text(runIds))} ${only}`);
}

/** The row of the last frame of each of these runs. */
export const lastNotesOf = (store: Store, runIds: readonly string[]): Promise<RunNote[]> =>
  lastNotes(store, runIds, sql`AND m.type IN ${announcedTypes}`, sql.empty);

/** The rows of the ends of these runs; a run that is not over is missing. */
export const endsOf = (store: Store, runIds: readonly string[]): Promise<RunNote[]> =>
  lastNotes(store, runIds, sql.empty, sql`AND h.type IN ('run.completed', 'run.failed', 'run.cancelled')`);
