import { sql } from "../../../kit/sql.ts";
import type { Store } from "../../../store/store.ts";

/** Push functions that one node serves. */
export const pushFunctionsMax = 10_000;

export interface PushFunctionRow {
  environment_id: string;
  id: string;
  version: number;
}

/**
 * Active functions in push mode, `pushFunctionsMax` at most: the first function of every environment, then
 * the second of every environment, and so on. One environment with very many functions does not displace
 * those of the others.
 */
export const listPushFunctions = (store: Store): Promise<PushFunctionRow[]> =>
  store.all<PushFunctionRow>(
    sql`SELECT environment_id, id, version FROM (SELECT environment_id, id, version,
          row_number() OVER (PARTITION BY environment_id ORDER BY id) AS nth
        FROM functions WHERE mode = 'push' AND status = 'active'
          AND EXISTS (SELECT 1 FROM heads h WHERE h.environment_id = functions.environment_id)) f
      ORDER BY nth, environment_id, id LIMIT ${pushFunctionsMax}`,
  );
