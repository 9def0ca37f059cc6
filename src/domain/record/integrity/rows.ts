import type { Instant } from "../../../kit/clock.ts";
import { sql } from "../../../kit/sql.ts";
import type { Session, Store } from "../../../store/store.ts";

export interface Healing {
  name: string;
  healed: number;
  last_at: number;
}

export const healingsOf = (store: Store, environmentId: string): Promise<Healing[]> =>
  store.all(sql`SELECT name, healed, last_at FROM healings WHERE environment_id = ${environmentId}`);

export const noteHealing = (
  session: Session,
  { environmentId, name, count, now }: { environmentId: string; name: string; count: number; now: Instant },
): Promise<number> =>
  session.run(sql`INSERT INTO healings (environment_id, name, healed, last_at)
    VALUES (${environmentId}, ${name}, ${sql.bigint(count)}, ${sql.bigint(now)})
    ON CONFLICT (environment_id, name) DO UPDATE SET healed = healings.healed + excluded.healed, last_at = excluded.last_at`);

export const environmentsAfter = (store: Store, after: string, limit: number): Promise<{ id: string }[]> =>
  store.all(sql`SELECT id FROM environments WHERE id > ${after} ORDER BY id LIMIT ${limit}`);

/** The end of a log as its head says it, and as its last event does. */
export const endsOf = (
  store: Store,
  environmentId: string,
): Promise<{ position: number; retention_floor: number; last: number | null; at: number } | undefined> =>
  store.one(sql`SELECT h.position, h.retention_floor, h.last_at AS at,
      (SELECT v.position FROM events v WHERE v.environment_id = ${environmentId}
        ORDER BY v.position DESC LIMIT 1) AS last
    FROM heads h WHERE h.environment_id = ${environmentId}`);
