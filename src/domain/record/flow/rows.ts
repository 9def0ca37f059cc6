import type { Instant } from "../../../kit/clock.ts";
import { columnsOf } from "../../../kit/columns.ts";
import { column, type Sql, sql } from "../../../kit/sql.ts";
import type { Session, Store, StoreReader } from "../../../store/store.ts";
import { type EdgeCount, type EdgeKind, happenings, type MinuteCount } from "./counts.ts";
import { flowEdgesMax, flowReadMax, flowShownMax } from "./limits.ts";
import type { Rate } from "./rules.ts";

/** Those of the environments that are not deleted; they stay so until the transaction ends. */
function alive(session: Session, counts: readonly { environmentId: string }[]): Sql {
  const ids = [...new Set(counts.map(({ environmentId }) => environmentId))];
  return sql`alive AS MATERIALIZED (
      SELECT id FROM environments WHERE id ${session.seams.among(column.text(ids))}
      ORDER BY id ${session.seams.shareRow})`;
}

/**
 * Adds to the edges of the hour. An edge that the hour lacks becomes a row while its kind has room, and
 * otherwise is added to the row without names. Nodes that write at once may pass the bound by what each adds.
 */
export const addEdges = (session: Session, edges: readonly EdgeCount[], hour: Instant): Promise<number> =>
  session.run(sql`WITH ${alive(session, edges)},
    item AS MATERIALIZED (
      SELECT v.*, CASE WHEN k.count IS NULL THEN 1 ELSE 0 END AS fresh
      FROM ${session.seams.rowsFrom("v", {
        ...columnsOf(edges, { text: "environmentId kind source target", bigint: "count" }),
      })} JOIN alive ON alive.id = v.environment_id
        LEFT JOIN flow_edges k ON k.environment_id = v.environment_id AND k.kind = v.kind
          AND k.hour = ${sql.bigint(hour)} AND k.source = v.source AND k.target = v.target),
    room AS MATERIALIZED (
      SELECT p.environment_id, p.kind, (SELECT count(*) FROM flow_edges t
        WHERE t.environment_id = p.environment_id AND t.kind = p.kind AND t.hour = ${sql.bigint(hour)}) AS taken
      FROM (SELECT DISTINCT environment_id, kind FROM item WHERE fresh = 1) p),
    placed AS (
      SELECT i.*, COALESCE(r.taken, 0)
        + row_number() OVER (PARTITION BY i.environment_id, i.kind, i.fresh ORDER BY i.ord) AS place
      FROM item i LEFT JOIN room r ON r.environment_id = i.environment_id AND r.kind = i.kind),
    named AS (
      SELECT environment_id, kind, count,
        CASE WHEN fresh = 0 OR place <= ${flowEdgesMax} THEN source ELSE '' END AS source,
        CASE WHEN fresh = 0 OR place <= ${flowEdgesMax} THEN target ELSE '' END AS target FROM placed)
    INSERT INTO flow_edges (environment_id, kind, hour, source, target, count)
    SELECT environment_id, kind, ${sql.bigint(hour)}, source, target, sum(count) FROM named
    GROUP BY environment_id, kind, source, target ORDER BY environment_id, kind, source, target
    ON CONFLICT (environment_id, kind, hour, source, target)
      DO UPDATE SET count = flow_edges.count + excluded.count`);

const counters = sql.raw(happenings.join(", "));
const countersAgain = sql.raw(
  happenings.map((what) => `${what} = flow_minutes.${what} + excluded.${what}`).join(", "),
);

export const addMinutes = (
  session: Session,
  minutes: readonly MinuteCount[],
  minute: Instant,
): Promise<number> =>
  session.run(sql`WITH ${alive(session, minutes)}
    INSERT INTO flow_minutes (environment_id, minute, ${counters})
    SELECT environment_id, ${sql.bigint(minute)}, ${counters} FROM ${session.seams.rowsFrom("v", {
      environment_id: column.text(minutes.map((m) => m.environmentId)),
      ...Object.fromEntries(happenings.map((what) => [what, column.bigint(minutes.map((m) => m[what]))])),
    })} WHERE environment_id IN (SELECT id FROM alive) ORDER BY environment_id
    ON CONFLICT (environment_id, minute) DO UPDATE SET ${countersAgain}`);

/** The function of each run, and the environment, which a run that a caller names need not be of. */
export const functionsOf = (
  store: Pick<Store, "all" | "seams">,
  runIds: readonly string[],
): Promise<{ id: string; environment_id: string; function_id: string }[]> =>
  store.all(
    sql`SELECT id, environment_id, function_id FROM runs WHERE id ${store.seams.among(column.text(runIds))}`,
  );

/**
 * The edges that most happened along since an hour, the one without names first. `oldest` is the hour that
 * the newest `flowReadMax` rows go back to, and `read` how many there were.
 */
export const edgesSince = (
  reader: StoreReader,
  { environmentId, kind, since }: { environmentId: string; kind: EdgeKind; since: Instant },
): Promise<{ source: string; target: string; count: number; oldest: Instant; read: number }[]> =>
  reader.all(sql`WITH newest AS MATERIALIZED (
      SELECT hour, source, target, count FROM flow_edges
      WHERE environment_id = ${environmentId} AND kind = ${kind} AND hour >= ${since}
      ORDER BY hour DESC LIMIT ${flowReadMax})
    SELECT source, target, CAST(sum(count) AS BIGINT) AS count, (SELECT min(hour) FROM newest) AS oldest,
      (SELECT count(*) FROM newest) AS read
    FROM newest GROUP BY source, target
    ORDER BY CASE WHEN source = '' THEN 0 ELSE 1 END, sum(count) DESC, source, target LIMIT ${flowShownMax + 2}`);

const sums = sql.raw(
  happenings.map((what) => `CAST(COALESCE(sum(${what}), 0) AS BIGINT) AS ${what}`).join(", "),
);

/** What happened from each of these minutes to the last, or to the minute `until`, which is left out. */
export const ratesSince = (
  reader: StoreReader,
  environmentId: string,
  windows: readonly { name: string; since: Instant; until?: Instant }[],
): Promise<(Rate & { name: string })[]> =>
  reader.all(
    sql.join(
      windows.map(
        ({ name, since, until }) => sql`SELECT ${sql.raw(`'${name}'`)} AS name, ${sums} FROM flow_minutes
          WHERE environment_id = ${environmentId} AND minute >= ${since}
            ${until === undefined ? sql.empty : sql`AND minute < ${until}`}`,
      ),
      " UNION ALL ",
    ),
  );

export const minutesSince = (
  reader: StoreReader,
  environmentId: string,
  since: Instant,
): Promise<(Rate & { minute: Instant })[]> =>
  reader.all(sql`SELECT minute, ${counters} FROM flow_minutes
    WHERE environment_id = ${environmentId} AND minute >= ${since} ORDER BY minute`);

export const forgetEdges = (session: Session, before: Instant, limit: number): Promise<number> =>
  session.run(sql`DELETE FROM flow_edges WHERE (environment_id, kind, hour, source, target) IN (
    SELECT environment_id, kind, hour, source, target FROM flow_edges WHERE hour + 0 < ${before}
    ORDER BY hour + 0 LIMIT ${limit})`);

export const forgetMinutes = (session: Session, before: Instant, limit: number): Promise<number> =>
  session.run(sql`DELETE FROM flow_minutes WHERE (environment_id, minute) IN (
    SELECT environment_id, minute FROM flow_minutes WHERE minute + 0 < ${before}
    ORDER BY minute + 0 LIMIT ${limit})`);
