import type { Instant } from "../../../kit/clock.ts";
import { column, sql } from "../../../kit/sql.ts";
import { storedJson } from "../../../kit/stored-json.ts";
import type { Store } from "../../../store/store.ts";
import { servingListsMax } from "./limits.ts";

/**
 * What workers seen since then serve, by environment: functions, and the hashes of their definitions if
 * workers send them. Environments with more different lists than `servingListsMax` are left out.
 */
export async function servedLists(
  store: Store,
  environmentIds: readonly string[],
  since: Instant,
): Promise<Map<string, Map<string, Set<string>>>> {
  const rows = await store.all<{
    environment_id: string;
    function_ids: string;
    definition_hashes: string | null;
  }>(sql`SELECT n.environment_id, n.function_ids, n.definition_hashes FROM (
      SELECT w.environment_id, w.function_ids, w.definition_hashes,
        row_number() OVER (PARTITION BY w.environment_id ORDER BY w.function_ids) AS place
      FROM ${store.seams.rowsFrom("v", { environment_id: column.text(environmentIds) })}
        JOIN workers w ON w.environment_id = v.environment_id
      WHERE w.last_heartbeat_at >= ${since}
      GROUP BY w.environment_id, w.function_ids, w.definition_hashes) n
    WHERE n.place <= ${servingListsMax + 1}`);
  const found = new Map<string, Map<string, Set<string>>>(environmentIds.map((id) => [id, new Map()]));
  const listsOf = new Map<string, number>();
  for (const { environment_id: environmentId, function_ids, definition_hashes } of rows) {
    const lists = (listsOf.get(environmentId) ?? 0) + 1;
    listsOf.set(environmentId, lists);
    if (lists > servingListsMax) found.delete(environmentId);
    const served = found.get(environmentId);
    if (!served) continue;
    const functionIds = storedJson<string[]>(function_ids);
    const hashes = storedJson<Record<string, string>>(definition_hashes ?? "{}");
    // What a worker serves there is unknown, so nothing is said of the environment; others are still read.
    if (!functionIds || !hashes) {
      found.delete(environmentId);
      continue;
    }
    for (const functionId of functionIds) {
      const known = served.get(functionId) ?? new Set<string>();
      served.set(functionId, known);
      if (Object.hasOwn(hashes, functionId)) known.add(hashes[functionId]!);
    }
  }
  return found;
}
