import { type Sql, sql } from "../../../../kit/sql.ts";
import type { Seams } from "../../../../store/store.ts";
import { type AttributeRange, type RunAttribute, readStored } from "../../attributes/rules.ts";

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
