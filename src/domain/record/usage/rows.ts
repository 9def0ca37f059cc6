import type { Instant } from "../../../kit/clock.ts";
import { columnsOf } from "../../../kit/columns.ts";
import { column, sql } from "../../../kit/sql.ts";
import type { Session, Store, StoreReader } from "../../../store/store.ts";
import { measures, type UsageRow, type UsedCounts } from "./counts.ts";
import { usageFunctionsMax, usageShownMax } from "./limits.ts";

const counters = sql.raw(measures.join(", "));
const summed = sql.raw(measures.map((one) => `CAST(sum(${one}) AS BIGINT) AS ${one}`).join(", "));
const countersAgain = sql.raw(
  measures.map((one) => `${one} = usage_days.${one} + excluded.${one}`).join(", "),
);

/**
 * Adds to the rows of environments that are not deleted. A function that its day lacks becomes a row while
 * the day has room, and otherwise is added to the row without a function. Nodes that write at once may pass
 * the bound by what each adds. Locks: environments, then rows, in the order of their keys.
 */
export const addUsage = (session: Session, rows: readonly UsageRow[]): Promise<number> => {
  const { among, rowsFrom, shareRow } = session.seams;
  const ids = [...new Set(rows.map(({ environmentId }) => environmentId))];
  const hasRoom = sql`functionless = 1 OR fresh = 0 OR place <= ${usageFunctionsMax}`;
  return session.run(sql`WITH alive AS MATERIALIZED (
      SELECT id FROM environments WHERE id ${among(column.text(ids))} ORDER BY id ${shareRow}),
    item AS MATERIALIZED (
      SELECT v.*, CASE WHEN v.function_id = '' THEN 1 ELSE 0 END AS functionless,
        CASE WHEN k.started IS NULL THEN 1 ELSE 0 END AS fresh
      FROM ${rowsFrom("v", {
        ...columnsOf(rows, { text: "environmentId functionId", bigint: "day" }),
        ...Object.fromEntries(measures.map((one) => [one, column.bigint(rows.map((row) => row[one]))])),
      })} JOIN alive ON alive.id = v.environment_id
        LEFT JOIN usage_days k ON k.environment_id = v.environment_id AND k.day = v.day
          AND k.function_id = v.function_id),
    room AS MATERIALIZED (
      SELECT p.environment_id, p.day, (SELECT count(*) FROM usage_days t
        WHERE t.environment_id = p.environment_id AND t.day = p.day AND t.function_id <> '') AS taken
      FROM (SELECT DISTINCT environment_id, day FROM item WHERE fresh = 1) p),
    placed AS (
      SELECT i.*, COALESCE(r.taken, 0) + row_number() OVER (
          PARTITION BY i.environment_id, i.day, i.fresh, i.functionless ORDER BY i.ord) AS place
      FROM item i LEFT JOIN room r ON r.environment_id = i.environment_id AND r.day = i.day),
    named AS (
      SELECT environment_id, day, CASE WHEN ${hasRoom} THEN function_id ELSE '' END AS function_id, ${counters}
      FROM placed)
    INSERT INTO usage_days (environment_id, day, function_id, ${counters})
    SELECT environment_id, day, function_id, ${summed} FROM named
    GROUP BY environment_id, day, function_id ORDER BY environment_id, day, function_id
    ON CONFLICT (environment_id, day, function_id) DO UPDATE SET ${countersAgain}`);
};

/** The function of each run that is still there. */
export const functionsOf = (
  store: Pick<Store, "all" | "seams">,
  runIds: readonly string[],
): Promise<{ id: string; environment_id: string; function_id: string }[]> =>
  store.all(
    sql`SELECT id, environment_id, function_id FROM runs WHERE id ${store.seams.among(column.text(runIds))}`,
  );

export interface UsageSpan {
  environmentId: string;
  from: Instant;
  to: Instant;
  functionId?: string;
}

const within = ({ environmentId, from, to, functionId }: UsageSpan) =>
  sql`environment_id = ${environmentId} AND day BETWEEN ${from} AND ${to}
    ${functionId === undefined ? sql.empty : sql`AND function_id = ${functionId}`}`;

export const usageByDay = (
  reader: StoreReader,
  span: UsageSpan,
): Promise<(UsedCounts & { day: Instant })[]> =>
  reader.all(sql`SELECT day, ${summed} FROM usage_days WHERE ${within(span)} GROUP BY day ORDER BY day`);

/** Those with the most runs first, then the sum of all, without a name, which is null when there are none. */
export const usageByFunction = (
  reader: StoreReader,
  span: UsageSpan,
): Promise<({ function_id: string | null } & { [M in keyof UsedCounts]: number | null })[]> =>
  reader.all(sql`WITH found AS MATERIALIZED (
      SELECT function_id, ${counters} FROM usage_days WHERE ${within(span)})
    SELECT * FROM (SELECT function_id, ${summed} FROM found WHERE function_id <> '' GROUP BY function_id
      ORDER BY sum(started) DESC, function_id LIMIT ${usageShownMax}) first_ones
    UNION ALL SELECT NULL AS function_id, ${summed} FROM found`);

export const forgetUsage = (session: Session, before: Instant, limit: number): Promise<number> =>
  session.run(sql`DELETE FROM usage_days WHERE (environment_id, day, function_id) IN (
    SELECT environment_id, day, function_id FROM usage_days WHERE day + 0 < ${before}
    ORDER BY day + 0 LIMIT ${limit})`);
