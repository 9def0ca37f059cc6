import type { Instant } from "../kit/clock.ts";
import { Fault } from "../kit/fault.ts";
import { sql } from "../kit/sql.ts";
import { lacksTable } from "./postgres-errors.ts";
import type { Lineage, PrimaryServer } from "./postgres-lineage.ts";
import type { Store } from "./store.ts";

/** A database of an older version has no such table yet: the first start writes the row. */
function unlessOlder(error: unknown): undefined {
  if (!lacksTable(error)) throw error;
}

/**
 * Before a node writes anything: the database must be where it was. One that was restored elsewhere has other
 * facts under the positions that clients know, so its operator says first what happened.
 */
export async function requireSameServer(store: Store, lineage: Lineage): Promise<void> {
  const now = lineage.known;
  if (!now) return;
  const row = await store
    .one<{ system_identifier: string; timeline: number }>(
      sql`SELECT system_identifier, timeline FROM primary_server WHERE id = 'primary'`,
    )
    .catch(unlessOlder);
  if (!row) return;
  if (row.system_identifier !== now.system)
    throw new Fault(
      "failed_precondition",
      `the database was last written on another PostgreSQL server (system identifier ${row.system_identifier}, now ` +
        `${now.system}): after a restore run svc restore --epoch, after a move that lost nothing svc restore --moved`,
    );
  lineage.heard({ ...now, timeline: row.timeline });
}

/** A primary of a newer timeline, or the first. */
export const recordServer = (
  store: Store,
  { system, timeline }: PrimaryServer,
  now: Instant,
): Promise<number> =>
  store.write((session) =>
    session.run(sql`INSERT INTO primary_server (id, system_identifier, timeline, seen_at)
      VALUES ('primary', ${system}, ${timeline}, ${now})
      ON CONFLICT (id) DO UPDATE SET timeline = excluded.timeline, seen_at = excluded.seen_at
      WHERE primary_server.system_identifier = excluded.system_identifier
        AND primary_server.timeline < excluded.timeline`),
  );

/** What the operator says: this server is the right one, whatever stood there before. */
export const acceptServer = (store: Store, { system, timeline }: PrimaryServer, now: Instant) =>
  store
    .write((session) =>
      session.run(sql`INSERT INTO primary_server (id, system_identifier, timeline, seen_at)
        VALUES ('primary', ${system}, ${timeline}, ${now})
        ON CONFLICT (id) DO UPDATE SET system_identifier = excluded.system_identifier,
          timeline = excluded.timeline, seen_at = excluded.seen_at`),
    )
    .catch(unlessOlder);
