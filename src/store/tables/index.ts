import { tablesOfAccess } from "./access.ts";
import { tablesOfCluster } from "./cluster.ts";
import { tablesOfEngine } from "./engine.ts";
import { tablesOfEngineStarts } from "./engine-starts.ts";
import { tablesOfTold } from "./engine-told.ts";
import { tablesOfIntegrations } from "./integrations.ts";
import { tablesOfLog } from "./log.ts";
import { tablesOfRealtime } from "./realtime.ts";
import { tablesOfRecord } from "./record.ts";
import { tablesOfState } from "./state.ts";
import type { Tables } from "./table.ts";

const known = {
  ...tablesOfAccess,
  ...tablesOfCluster,
  ...tablesOfEngine,
  ...tablesOfEngineStarts,
  ...tablesOfTold,
  ...tablesOfIntegrations,
  ...tablesOfLog,
  ...tablesOfRealtime,
  ...tablesOfRecord,
  ...tablesOfState,
};

export type KnownTables = typeof known;

/**
 * Every table, by name. A new database, `src/REFERENCE.md` and the purge are made from this; tests compare it
 * with what migrations make.
 */
export const tables: Tables = known;
