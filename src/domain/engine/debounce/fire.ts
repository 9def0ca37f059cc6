import type { Instant } from "../../../kit/clock.ts";
import { column, sql } from "../../../kit/sql.ts";
import type { Flush } from "../../../store/store.ts";
import { insertNewRuns, newRunColumns, newRunsInserted } from "../runs/create.ts";
import type { NewRun } from "../runs/run.ts";

/** A due entry as it was read. It fires only if it is still armed with that event. */
export interface Fire {
  entryId: string;
  eventId: string;
  eventPosition: number;
  /**
   * Undefined for an entry that is dropped: its function is deleted or archived, or its event has expired.
   */
  run: NewRun | undefined;
}

export interface FireInput {
  now: Instant;
  fires: readonly Fire[];
}

/**
 * Deletes entries and inserts their runs in one transaction. A locked entry (armed again, or fired by another
 * node) is skipped. Locks: entries, sorted.
 */
export const fireFlush: Flush<FireInput, { ord: number }> = {
  name: "debounce.fire",

  postgres({ fires, now }, seams) {
    const runs = fires.flatMap(({ run }) => run ?? []);
    const parts = sql.ctes(
      {
        "held AS MATERIALIZED": sql`SELECT i.*
          FROM (SELECT * FROM ${seams.rowsFrom("f", fireColumns(fires))} ORDER BY id) i CROSS JOIN LATERAL (
            SELECT d.id FROM debounces d WHERE d.id = i.id AND d.event_id = i.event_id AND d.fires_at + 0 <= ${now}::bigint
            FOR UPDATE SKIP LOCKED) d`,
      },
      runs.length > 0 && {
        "run AS MATERIALIZED": sql`SELECT r.* FROM ${seams.rowsFrom("r", runColumns(fires))}
          JOIN held ON held.event_id = r.event_id AND held.run_id = r.id ORDER BY r.id`,
        ...newRunsInserted(seams, runs, now),
      },
      { "gone AS": sql.raw("DELETE FROM debounces WHERE id = ANY (ARRAY(SELECT id FROM held))") },
    );
    return sql`WITH ${parts} SELECT ord FROM held`;
  },

  libsql(session, { fires, now }) {
    const { rowsFrom } = session.seams;
    const gone = session.all<{ id: string }>(sql`DELETE FROM debounces WHERE id IN (
        SELECT f.id FROM ${rowsFrom("f", fireColumns(fires))} JOIN debounces d ON d.id = f.id
          AND d.event_id = f.event_id AND d.fires_at <= ${now}) RETURNING id`);
    const ids = new Set(gone.map(({ id }) => id));
    const fired = fires.flatMap((fire, at) => (ids.has(fire.entryId) ? { fire, ord: at + 1 } : []));
    const runs = fired.flatMap(({ fire }) => fire.run ?? []);
    if (runs.length > 0) {
      const source = rowsFrom("n", runColumns(fired.map(({ fire }) => fire)));
      insertNewRuns(session, source, runs, now);
    }
    return fired.map(({ ord }) => ({ ord }));
  },
};

/** Runs with the position of their event: later events resolve their waits. */
const runColumns = (fires: readonly Fire[]) => ({
  ...newRunColumns(fires.flatMap(({ run }) => run ?? [])),
  position: column.bigint(fires.flatMap(({ run, eventPosition }) => (run ? eventPosition : []))),
});

const fireColumns = (fires: readonly Fire[]) => ({
  id: column.text(fires.map((f) => f.entryId)),
  event_id: column.text(fires.map((f) => f.eventId)),
  run_id: column.text(fires.map((f) => f.run?.id ?? null)),
});
