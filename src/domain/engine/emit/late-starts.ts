import { type Ctes, column, sql } from "../../../kit/sql.ts";
import type { Seams, SyncSession } from "../../../store/store.ts";
import type { Appended } from "../../log/core/append.ts";
import { insertBatchEvents, insertBatches, joinColumns, type NewJoin } from "../batches/join.ts";
import { armColumns, insertArms, type NewArm, placedArms } from "../debounce/arm.ts";

/** The part of an event that says what it starts later. */
interface LateStarter {
  arms: readonly NewArm[];
  joins?: readonly NewJoin[] | undefined;
}

const noJoins: readonly NewJoin[] = [];

/** Where the surviving events of rows `r` stand. */
const placed = sql.raw(
  `JOIN alive a ON a.id = r.event_id JOIN moved m ON m.environment_id = a.environment_id`,
);

/** What events start later, as expressions of their flush: debounce entries, and events of batches. */
export function lateStarts(seams: Seams, events: readonly LateStarter[]): Ctes {
  const arms = events.flatMap((e) => e.arms);
  const joins = events.flatMap((e) => e.joins ?? noJoins);
  return { ...(arms.length > 0 && armed(seams, arms)), ...(joins.length > 0 && joined(seams, joins)) };
}

/** A debounce entry takes the last surviving event. */
const armed = ({ rowsFrom }: Seams, arms: readonly NewArm[]): Ctes => ({
  "arm AS MATERIALIZED": sql`SELECT DISTINCT ON (r.id) r.*, m.base + a.place AS position, m.last_at AS at
      FROM ${placedArms(rowsFrom("r", armColumns(arms)), arms)} r ${placed}
      ORDER BY r.id, a.place DESC`,
  "armed AS": insertArms(sql.raw("arm n"), "LEAST"),
});

const joined = ({ rowsFrom }: Seams, joins: readonly NewJoin[]): Ctes => ({
  "waiting AS MATERIALIZED": sql`SELECT r.*, m.base + a.place AS position, m.last_at AS at
      FROM ${rowsFrom("r", joinColumns(joins))} ${placed}`,
  "counted AS": insertBatches(sql.raw("waiting n"), "LEAST"),
  "joined AS": insertBatchEvents(sql.raw("waiting n")),
});

/** The same for libSQL. */
export function lateStartsSync(session: SyncSession, logged: readonly Appended<LateStarter>[]): void {
  const { rowsFrom } = session.seams;
  const arms = logged.flatMap((l) => l.entry.arms.map((arm) => ({ arm, l })));
  if (arms.length > 0) {
    const list = arms.map(({ arm }) => arm);
    const rows = rowsFrom("r", {
      ...armColumns(list),
      position: column.bigint(arms.map(({ l }) => l.position)),
      at: column.bigint(arms.map(({ l }) => l.at)),
    });
    // Of one entry the row with the last position stands.
    const source = sql`(SELECT p.*, max(p.position) AS last FROM ${placedArms(rows, list)} p GROUP BY p.id) n`;
    session.run(insertArms(source, "MIN"));
  }
  const joins = logged.flatMap((l) => (l.entry.joins ?? noJoins).map((join) => ({ join, l })));
  if (joins.length === 0) return;
  const source = rowsFrom("n", {
    ...joinColumns(joins.map(({ join }) => join)),
    position: column.bigint(joins.map(({ l }) => l.position)),
    at: column.bigint(joins.map(({ l }) => l.at)),
  });
  session.run(insertBatches(source, "MIN"));
  session.run(insertBatchEvents(source));
}
