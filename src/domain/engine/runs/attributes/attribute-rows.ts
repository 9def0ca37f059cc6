import type { Instant } from "../../../../kit/clock.ts";
import { columnsOf } from "../../../../kit/columns.ts";
import { type Ctes, column, type Sql, sql } from "../../../../kit/sql.ts";
import { raiseMark, type Seams, StoreError, type SyncSession } from "../../../../store/store.ts";
import {
  type AttributeChange,
  type AttributeRange,
  attributesMax,
  isSet,
  type NewAttribute,
  type RunAttribute,
  readStored,
} from "../../attributes/rules.ts";
import type { NewRun } from "../run.ts";

/** Mark raised, followed by the run's id, when a report would give a run too many attributes. */
export const attributesFull = "attributes:";
/** The same when the name of an attribute was deleted since this node read it. */
export const attributeUnnamed = "attribute name:";

interface SetsAttributes {
  environmentId: string;
  attributes: readonly AttributeChange[] | null;
}

/** The attributes of all reports; undefined when none sets any. */
function settingColumns(changes: readonly SetsAttributes[]) {
  if (changes.every(({ attributes }) => attributes === null)) return undefined;
  const list = changes.flatMap(({ attributes }, at) =>
    (attributes ?? []).map((one) => ({ ...one, report: at + 1 })),
  );
  return {
    ...columnsOf(list, { text: "name type", bigint: "report" }),
    environment_id: column.text(list.map(({ report }) => changes[report - 1]!.environmentId)),
    value: column.text(list.map(({ stored }) => stored)),
  };
}

/** For a value: 1 if its name has its type, 0 if the name was deleted (its values go), null for neither. */
const standing = (environmentId: Sql): Sql =>
  sql`(SELECT CASE WHEN t.deleted_at IS NOT NULL THEN 0 WHEN t.type = a.type THEN 1 END
    FROM run_attribute_names t WHERE t.environment_id = ${environmentId} AND t.name = a.name)`;

const target = sql.raw("run_attributes (environment_id, run_id, name, value, created_at)");
const conflict = sql.raw(`ON CONFLICT (run_id, name) DO UPDATE SET value = excluded.value
    WHERE run_attributes.value <> excluded.value`);

/** Sets what the reports `valid` bring, as expressions of their statement; undefined for nothing. */
export function attributesSet(
  changes: readonly SetsAttributes[],
  { rowsFrom }: Pick<Seams, "rowsFrom">,
): Ctes | undefined {
  const columns = settingColumns(changes);
  if (columns === undefined) return undefined;
  const own = sql.raw("SELECT b.name FROM attributed b WHERE b.report = a.report");
  const takes = changes.some(({ attributes }) => attributes?.some((one) => !isSet(one)));
  return {
    "attributed AS MATERIALIZED": sql`SELECT a.report, a.name, a.value, ${standing(sql.raw("a.environment_id"))} AS standing
      FROM ${rowsFrom("a", columns)}`,
    "marked AS": sql`INSERT INTO ${target}
      SELECT v.environment_id, v.run_id, a.name, a.value, CASE
        WHEN a.standing IS NULL THEN ${raiseMark(attributeUnnamed, sql.raw("v.run_id"))}
        WHEN (SELECT count(*) FROM (SELECT x.name FROM run_attributes x WHERE x.run_id = v.run_id
            AND x.environment_id || '' = v.environment_id AND x.name NOT IN (${own}) ORDER BY x.run_id, x.name LIMIT ${sql.bigint(attributesMax + 1)}) x)
          + (SELECT count(*) FROM attributed b WHERE b.report = a.report AND b.value IS NOT NULL) > ${sql.bigint(attributesMax)}
        THEN ${raiseMark(attributesFull, sql.raw("v.run_id"))} ELSE r.created_at END
      FROM attributed a JOIN valid v ON v.ord = a.report
        CROSS JOIN LATERAL (SELECT n.created_at FROM runs n WHERE n.id = v.run_id LIMIT 1) r
      WHERE a.value IS NOT NULL AND COALESCE(a.standing, 1) = 1
      ORDER BY v.run_id, a.name
      ${conflict}`,
    ...(takes && {
      "unmarked AS": sql.raw(`DELETE FROM run_attributes x USING attributed a, valid v
      WHERE a.value IS NULL AND v.ord = a.report AND x.run_id || '' = v.run_id AND x.name = a.name
        AND x.run_id = ANY (ARRAY(SELECT run_id FROM valid)) AND x.environment_id || '' = v.environment_id`),
    }),
  };
}

/** The same for libSQL, of reports whose fences hold. */
export function setAttributes(
  session: SyncSession,
  changes: readonly (SetsAttributes & { runId: string })[],
): void {
  for (const { runId, environmentId, attributes } of changes) {
    if (attributes === null) continue;
    const set = standingOf(session, { runId, environmentId, attributes: attributes.filter(isSet) });
    for (const { name } of attributes.filter((one) => !isSet(one)))
      session.run(sql`DELETE FROM run_attributes WHERE run_id = ${runId} AND name = ${name}`);
    session.run(sql`INSERT INTO ${target}
      SELECT ${environmentId}, r.id, a.name, a.value, r.created_at FROM ${session.seams.rowsFrom("a", {
        name: column.text(set.map(({ name }) => name)),
        value: column.text(set.map(({ stored }) => stored)),
      })} JOIN runs r ON r.id = ${runId} WHERE true ${conflict}`);
    const row = session.one<{ count: number }>(
      sql`SELECT count(*) AS count FROM run_attributes WHERE run_id = ${runId}`,
    );
    if (Number(row?.count) > attributesMax) throw new StoreError("marked", attributesFull + runId);
  }
}

/** Throws the mark for a name that was deleted; leaves out values that would go at once. */
function standingOf(
  session: SyncSession,
  { runId, environmentId, attributes }: { runId: string; environmentId: string; attributes: NewAttribute[] },
): NewAttribute[] {
  const found = session.all<{ ord: number; standing: number | null }>(sql`SELECT a.ord,
      ${standing(sql`${environmentId}`)} AS standing FROM ${session.seams.rowsFrom("a", {
        ...columnsOf(attributes, { text: "name type" }),
      })}`);
  if (found.some(({ standing }) => standing === null))
    throw new StoreError("marked", attributeUnnamed + runId);
  return found.flatMap(({ ord, standing }) => (Number(standing) === 1 ? attributes[ord - 1]! : []));
}

/** The attributes that new runs begin with; undefined when no run has any. */
export function firstAttributes(runs: readonly NewRun[]) {
  if (runs.every(({ attributes }) => attributes === undefined)) return undefined;
  const list = runs.flatMap(({ id, attributes = [] }) => attributes.map((one) => ({ ...one, id })));
  return {
    ...columnsOf(list, { text: "name type" }),
    run_id: column.text(list.map(({ id }) => id)),
    value: column.text(list.map(({ stored }) => stored)),
  };
}

/**
 * `source`: rows `a` of `firstAttributes` joined with their runs `n`. A run by an older definition of its
 * function may bring a name that was deleted since: it begins without it.
 */
export const insertFirstAttributes = (source: Sql, now: Instant): Sql => sql`INSERT INTO ${target}
  SELECT n.environment_id, n.id, a.name, a.value, ${sql.bigint(now)} FROM ${source}
  WHERE ${standing(sql.raw("n.environment_id"))} = 1`;

export type { AttributeRange };

/** Of rows `a` of the attributes: those of the range, by the index of values. */
export const inRange = (environmentId: string, range: AttributeRange): Sql =>
  sql`a.environment_id = ${environmentId} AND ${hasValue(range)}`;

function hasValue({ name, equals, from, to }: AttributeRange): Sql {
  const list = [sql`a.name = ${name}`];
  if (equals !== undefined) list.push(sql`a.value = ${equals}`);
  if (from) list.push(from.isIncluded ? sql`a.value >= ${from.stored}` : sql`a.value > ${from.stored}`);
  if (to) list.push(to.isIncluded ? sql`a.value <= ${to.stored}` : sql`a.value < ${to.stored}`);
  return sql.join(list, " AND ");
}

/**
 * Whether run `r` is in the range: one lookup. `|| ''` hides the environment from the planner, which without
 * statistics would read the whole range by its index; the limit keeps it from a join.
 */
export const hasAttribute = (environmentId: string, range: AttributeRange): Sql =>
  sql`(SELECT 1 FROM run_attributes a WHERE a.run_id = r.id AND ${hasValue(range)}
    AND a.environment_id || '' = ${environmentId} LIMIT 1) IS NOT NULL`;

/** The attributes of run `r` as JSON text; null or empty for none. */
export const attributesOfRun = ({ objectOf }: Pick<Seams, "objectOf">): Sql =>
  sql`(SELECT CAST(${objectOf}(x.name, x.value) AS TEXT) FROM run_attributes x
    WHERE x.run_id = r.id AND x.environment_id || '' = r.environment_id)`;

/** `text` is the JSON of names and stored values; null for none. */
export const attributesOf = (text: string | null): RunAttribute[] =>
  text === null
    ? []
    : Object.entries(JSON.parse(text) as Record<string, string>)
        .map(([name, stored]) => ({ name, value: readStored(stored) }))
        .sort((a, b) => (a.name < b.name ? -1 : 1));
