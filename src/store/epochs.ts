import type { Instant } from "../kit/clock.ts";
import { sql } from "../kit/sql.ts";
import { type Landed, landedRows, requireFamiliar } from "./migrate.ts";
import { schema } from "./schema.ts";
import type { Store } from "./store.ts";

/** At least the seconds since 1970: a second restore of a backup must not give out the first one's epoch. */
export const epochFloorAt = (now: Instant): number => Math.floor(now / 1_000);

/** Takes the floor twice. */
export const raiseEpochsText = "UPDATE heads SET epoch = CASE WHEN epoch + 1 > ? THEN epoch + 1 ELSE ? END";

/**
 * After a restore, before any node starts: every log gets a new epoch, so that a position from the time that
 * the restore undid is refused and not taken for another event's. Answers how many logs there are.
 */
export async function raiseEpochs(store: Store, now: Instant): Promise<number> {
  const floor = epochFloorAt(now);
  const landed = await store.all<Landed>(landedRows);
  requireFamiliar(landed, schema, store.engine);
  return store.write((session) =>
    session.run(
      sql`UPDATE heads SET epoch = CASE WHEN epoch + 1 > ${floor} THEN epoch + 1 ELSE ${floor} END`,
    ),
  );
}

/** Nodes and others that are connected to this PostgreSQL database besides `ownName`. */
export async function othersOn(store: Store, ownName: string): Promise<string[]> {
  const rows = await store.all<{ name: string; count: number }>(
    sql`SELECT COALESCE(NULLIF(application_name, ''), 'unnamed') AS name, COUNT(*) AS count FROM pg_stat_activity
      WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
      AND application_name <> ${ownName} GROUP BY 1 ORDER BY 1`,
  );
  return rows.map(({ name, count }) => `${name} (${count})`);
}
