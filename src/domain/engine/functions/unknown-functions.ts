import { column, sql } from "../../../kit/sql.ts";
import type { Store } from "../../../store/store.ts";

/** Which of these ids no function of the environment has. */
export async function unknownFunctions(
  store: Store,
  environmentId: string,
  ids: readonly string[],
): Promise<string[]> {
  const rows = await store.all<{ id: string }>(sql`SELECT f.id
    FROM ${store.seams.rowsFrom("v", { id: column.text(ids) })}
    JOIN functions f ON f.environment_id = ${environmentId} AND f.id = v.id`);
  const known = new Set(rows.map((row) => row.id));
  return ids.filter((id) => !known.has(id));
}
