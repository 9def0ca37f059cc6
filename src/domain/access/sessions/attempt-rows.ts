import type { Instant } from "../../../kit/clock.ts";
import { column, sql } from "../../../kit/sql.ts";
import type { Session, Store } from "../../../store/store.ts";

export interface Counted {
  count: number;
  endsAt: Instant;
}

/** Adds to what is counted, or begins anew where that has ended; answers what it has come to. */
export async function add(
  session: Session,
  added: ReadonlyMap<string, number>,
  { now, endsAt }: { now: Instant; endsAt: Instant },
): Promise<Map<string, Counted>> {
  // In one order, so that nodes that count the same do not wait for each other in a circle.
  const keys = [...added.keys()].sort();
  if (keys.length === 0) return new Map();
  const found = await session.all<{
    key: string;
    count: number;
    ends_at: number;
  }>(sql`INSERT INTO login_attempts
      (key, count, ends_at)
    SELECT v.key, v.count, ${sql.bigint(endsAt)}
    FROM ${session.seams.rowsFrom("v", {
      key: column.text(keys),
      count: column.bigint(keys.map((key) => added.get(key)!)),
    })} WHERE true
    ON CONFLICT (key) DO UPDATE SET
      count = CASE WHEN login_attempts.ends_at <= ${sql.bigint(now)} THEN excluded.count
        ELSE login_attempts.count + excluded.count END,
      ends_at = CASE WHEN login_attempts.ends_at <= ${sql.bigint(now)} THEN excluded.ends_at
        ELSE login_attempts.ends_at END
    RETURNING key, count, ends_at`);
  return new Map(found.map((row) => [row.key, { count: row.count, endsAt: row.ends_at }]));
}

/**
 * Notes a time under each key, unless a later one stands there; answers the latest of all. Until the session
 * commits, other sessions that note one wait.
 */
export async function noteLatest(
  session: Session,
  times: ReadonlyMap<string, Instant>,
  endsAt: Instant,
): Promise<Instant> {
  const keys = [...times.keys()].sort();
  const found = await session.all<{ count: number }>(sql`INSERT INTO login_attempts (key, count, ends_at)
    SELECT v.key, v.at, ${sql.bigint(endsAt)} FROM ${session.seams.rowsFrom("v", {
      key: column.text(keys),
      at: column.bigint(keys.map((key) => times.get(key)!)),
    })} WHERE true
    ON CONFLICT (key) DO UPDATE SET ends_at = excluded.ends_at,
      count = CASE WHEN excluded.count > login_attempts.count THEN excluded.count ELSE login_attempts.count END
    RETURNING count`);
  return Math.max(...found.map(({ count }) => count));
}

/** Those of the keys that have not ended. */
export async function unexpired(
  reader: Pick<Store, "all">,
  keys: readonly string[],
  now: Instant,
): Promise<Set<string>> {
  const found = await reader.all<{ key: string }>(sql`SELECT key FROM login_attempts
    WHERE key IN ${sql.list([...new Set(keys)])} AND ends_at > ${now}`);
  return new Set(found.map(({ key }) => key));
}

export interface Cleared {
  cleared: readonly string[];
  /** What was counted here once too often. */
  less: string;
  known: string;
  now: Instant;
  knownUntil: Instant;
}

export async function clear(
  session: Session,
  { cleared, less, known, now, knownUntil }: Cleared,
): Promise<void> {
  // Held in the order in which `add` takes them.
  await session.all(sql`SELECT key FROM login_attempts WHERE key IN ${sql.list([...cleared, less])}
    ORDER BY key ${session.seams.holdRow}`);
  await session.run(sql`DELETE FROM login_attempts WHERE key IN ${sql.list(cleared)}`);
  await session.run(sql`UPDATE login_attempts SET count = count - 1
    WHERE key = ${less} AND count > 0 AND ends_at > ${now}`);
  await session.run(sql`INSERT INTO login_attempts (key, count, ends_at) VALUES (${known}, 1, ${knownUntil})
    ON CONFLICT (key) DO UPDATE SET ends_at = excluded.ends_at`);
}

/** The oldest of what has ended. */
export const forget = (session: Session, now: Instant, limit: number): Promise<number> =>
  session.run(sql`DELETE FROM login_attempts WHERE key IN
    (SELECT key FROM login_attempts WHERE ends_at <= ${now} ORDER BY ends_at LIMIT ${limit})`);
