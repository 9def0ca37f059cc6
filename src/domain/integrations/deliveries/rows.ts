import type { Instant } from "../../../kit/clock.ts";
import { countCap, gaugeCountMax } from "../../../kit/limits.ts";
import { countOf, type Sql, sql } from "../../../kit/sql.ts";
import type { Session, Store, StoreReader } from "../../../store/store.ts";
import type { RowOf } from "../../../store/tables/index.ts";

export interface EndpointKey {
  environment_id: string;
  id: string;
}

export interface EndpointRow
  extends EndpointKey,
    RowOf<
      "webhook_endpoints",
      `name, url, pattern, filter, status, disabled_reason, sealed, prev_sealed, prev_expires_at, holder,
  fence, lease_until, due_at, failing_event_id, tried_since, last_error, last_delivered_at,
  created_at, updated_at`
    > {
  /** Everything up to here is delivered, a dead letter, or none of the endpoint's. */
  position: number;
  /** Failed tries of the event `failing_event_id`, the first of which was at `tried_since`. */
  attempts: number;
  /** Since the first failure after the last delivery. */
  failing_since: Instant | null;
  /** When it was paused or disabled. */
  stopped_at: Instant | null;
}

const names = `environment_id, id, name, url, pattern, filter, status, disabled_reason, sealed, prev_sealed,
  prev_expires_at, position, holder, fence, lease_until, due_at, attempts, failing_event_id, tried_since,
  failing_since, last_error, last_delivered_at, stopped_at, created_at, updated_at`;
const fields = sql.raw(names);
const prefixed = sql.raw(names.replace(/(\w+)/g, "e.$1"));

const its = ({ environment_id, id }: EndpointKey): Sql =>
  sql`environment_id = ${environment_id} AND id = ${id}`;

/** An endpoint as it is shown: with the end of its log and its dead letters, counted up to `countCap`. */
export interface ShownRow extends EndpointRow {
  head: number;
  letters: number;
}

const shown = sql`SELECT ${prefixed}, h.position AS head,
    (SELECT count(*) FROM (SELECT 1 FROM webhook_dead_letters d
      WHERE d.environment_id = e.environment_id AND d.endpoint_id = e.id LIMIT ${countCap}) counted) AS letters
  FROM webhook_endpoints e JOIN heads h ON h.environment_id = e.environment_id`;

export const showEndpoint = (reader: StoreReader, key: EndpointKey): Promise<ShownRow | undefined> =>
  reader.one(sql`${shown} WHERE e.environment_id = ${key.environment_id} AND e.id = ${key.id}`);

const conditions = (environmentId: string, status: string | undefined): Sql => {
  const all = [sql`environment_id = ${environmentId}`];
  if (status !== undefined) all.push(sql`status = ${status}`);
  return sql.where(all);
};

export const listEndpoints = (
  reader: StoreReader,
  environmentId: string,
  { status, limit, offset }: { status: string | undefined; limit: number; offset: number },
): Promise<ShownRow[]> =>
  reader.all(sql`${shown} WHERE e.environment_id = ${environmentId}
      ${status === undefined ? sql.empty : sql`AND e.status = ${status}`}
    ORDER BY e.id LIMIT ${limit} OFFSET ${offset}`);

export const countEndpoints = (
  reader: StoreReader,
  environmentId: string,
  status?: string,
): Promise<number> => countOf(reader, sql`FROM webhook_endpoints ${conditions(environmentId, status)}`);

/** Locked for the rest of the transaction. */
export const holdEndpoint = (session: Session, key: EndpointKey): Promise<EndpointRow | undefined> =>
  session.one(sql`SELECT ${fields} FROM webhook_endpoints WHERE ${its(key)}
    ORDER BY id ${session.seams.holdRow}`);

export const insertEndpoint = (session: Session, row: EndpointRow): Promise<number> =>
  session.run(sql`INSERT INTO webhook_endpoints (${fields}) VALUES (${row.environment_id}, ${row.id}, ${row.name},
    ${row.url}, ${row.pattern}, ${row.filter}, ${row.status}, ${row.disabled_reason}, ${row.sealed},
    ${row.prev_sealed}, ${row.prev_expires_at}, ${sql.bigint(row.position)}, ${row.holder}, ${sql.bigint(row.fence)},
    ${sql.bigint(row.lease_until)}, ${sql.bigint(row.due_at)}, ${sql.bigint(row.attempts)}, ${row.failing_event_id},
    ${row.tried_since}, ${row.failing_since}, ${row.last_error}, ${row.last_delivered_at}, ${row.stopped_at},
    ${sql.bigint(row.created_at)}, ${sql.bigint(row.updated_at)})`);

/** What callers change; how far it is stays with who sends. */
export const updateEndpoint = (session: Session, row: EndpointRow): Promise<number> =>
  session.run(sql`UPDATE webhook_endpoints SET name = ${row.name}, url = ${row.url}, pattern = ${row.pattern},
      filter = ${row.filter}, status = ${row.status}, disabled_reason = ${row.disabled_reason},
      sealed = ${row.sealed}, prev_sealed = ${row.prev_sealed}, prev_expires_at = ${row.prev_expires_at},
      due_at = ${sql.bigint(row.due_at)}, failing_since = ${row.failing_since}, stopped_at = ${row.stopped_at},
      updated_at = ${sql.bigint(row.updated_at)}
    WHERE ${its(row)}`);

/** The place of an endpoint in its log, and what its next event has come to. */
export type EndpointProgress = Pick<
  EndpointRow,
  | "position"
  | "due_at"
  | "attempts"
  | "failing_event_id"
  | "tried_since"
  | "failing_since"
  | "last_error"
  | "last_delivered_at"
>;

const progressed = (row: EndpointProgress): Sql => sql`position = ${sql.bigint(row.position)},
  due_at = ${sql.bigint(row.due_at)}, attempts = ${sql.bigint(row.attempts)},
  failing_event_id = ${row.failing_event_id}, tried_since = ${row.tried_since},
  failing_since = ${row.failing_since}, last_error = ${row.last_error}, last_delivered_at = ${row.last_delivered_at}`;

/** Under the row's lock, for a caller that skips an event. */
export const moveEndpoint = (
  session: Session,
  key: EndpointKey,
  progress: EndpointProgress,
): Promise<number> =>
  session.run(sql`UPDATE webhook_endpoints SET ${progressed(progress)}, fence = fence + 1, lease_until = 0,
      holder = NULL
    WHERE ${its(key)}`);

/**
 * Saves how far the sender with this fence is, and holds the endpoint until `leaseUntil`, or gives it back
 * with `since` as the end of its turn; undefined when it is another's now, or gone.
 */
export const saveProgress = (
  session: Session,
  key: EndpointKey & { fence: number },
  progress: EndpointProgress,
  lease: { leaseUntil: Instant } | { since: Instant },
): Promise<Pick<EndpointRow, "status" | "updated_at"> | undefined> =>
  session.one(sql`UPDATE webhook_endpoints SET ${progressed(progress)},
      ${"since" in lease ? sql`lease_until = ${sql.bigint(lease.since)}, holder = NULL` : sql`lease_until = ${sql.bigint(lease.leaseUntil)}`}
    WHERE ${its(key)} AND fence = ${sql.bigint(key.fence)} RETURNING status, updated_at`);

export const disableEndpoint = (
  session: Session,
  key: EndpointKey & { fence: number },
  { reason, at }: { reason: string; at: Instant },
): Promise<number> =>
  session.run(sql`UPDATE webhook_endpoints SET status = 'disabled', disabled_reason = ${reason}, stopped_at = ${at},
      updated_at = CASE WHEN ${sql.bigint(at)} > updated_at THEN ${sql.bigint(at)} ELSE updated_at + 1 END
    WHERE ${its(key)} AND fence = ${sql.bigint(key.fence)} AND status = 'active'`);

export const deleteEndpoint = async (session: Session, key: EndpointKey): Promise<number> => {
  const gone = await session.run(sql`DELETE FROM webhook_endpoints WHERE ${its(key)}`);
  await session.run(sql`DELETE FROM webhook_dead_letters
    WHERE environment_id = ${key.environment_id} AND endpoint_id = ${key.id}`);
  return gone;
};

/**
 * Free endpoints with something to send now: of each environment those first that waited longest,
 * so that one with many endpoints does not displace the others.
 */
export const dueEndpoints = (
  reader: StoreReader,
  now: Instant,
  { most, ofEach }: { most: number; ofEach: number },
): Promise<EndpointKey[]> =>
  reader.all(sql`SELECT environment_id, id FROM (SELECT e.environment_id, e.id, e.lease_until,
        row_number() OVER (PARTITION BY e.environment_id ORDER BY e.lease_until, e.id) AS nth
      FROM webhook_endpoints e JOIN heads h ON h.environment_id = e.environment_id
      WHERE e.status = 'active' AND e.lease_until < ${sql.bigint(now)}
        AND ((h.position > e.position AND e.due_at <= ${sql.bigint(now)}) OR EXISTS (SELECT 1 FROM webhook_dead_letters d
          WHERE d.environment_id = e.environment_id AND d.endpoint_id = e.id AND d.due_at IS NOT NULL))) due
    WHERE nth <= ${ofEach} ORDER BY nth, lease_until, environment_id, id LIMIT ${most}`);

/** Takes a free endpoint; undefined when another node was first. */
export const claimEndpoint = (
  session: Session,
  key: EndpointKey,
  { holder, now, until }: { holder: string; now: Instant; until: Instant },
): Promise<EndpointRow | undefined> =>
  session.one(sql`UPDATE webhook_endpoints SET holder = ${holder}, fence = fence + 1,
      lease_until = ${sql.bigint(until)}
    WHERE ${its(key)} AND status = 'active' AND lease_until < ${sql.bigint(now)}
    RETURNING ${fields}`);

/** Of the whole installation, for a new master key. */
export const sealedEndpoints = (
  reader: StoreReader,
): Promise<Pick<EndpointRow, "environment_id" | "id" | "sealed" | "prev_sealed">[]> =>
  reader.all(sql`SELECT environment_id, id, sealed, prev_sealed FROM webhook_endpoints
    ORDER BY environment_id, id`);

export const resealEndpoint = (
  session: Session,
  row: Pick<EndpointRow, "environment_id" | "id" | "sealed" | "prev_sealed">,
): Promise<number> =>
  session.run(sql`UPDATE webhook_endpoints SET sealed = ${row.sealed}, prev_sealed = ${row.prev_sealed}
    WHERE ${its(row)}`);

export const dropExpiredSecrets = (session: Session, before: Instant, limit: number): Promise<number> =>
  session.run(sql`UPDATE webhook_endpoints SET prev_sealed = NULL, prev_expires_at = NULL
    WHERE (environment_id, id) IN (SELECT environment_id, id FROM webhook_endpoints
      WHERE prev_expires_at < ${before} ORDER BY prev_expires_at, id LIMIT ${limit}) AND prev_expires_at < ${before}`);

/**
 * The first position that an endpoint still needs, among those that are active or stopped since then;
 * undefined when there is none.
 */
export async function leastUndelivered(
  reader: Pick<StoreReader, "one">,
  environmentId: string,
  stoppedSince: Instant,
): Promise<number | undefined> {
  const row = await reader.one<{
    least: number | null;
  }>(sql`SELECT min(position) AS least FROM webhook_endpoints
    WHERE environment_id = ${environmentId} AND (stopped_at IS NULL OR stopped_at >= ${stoppedSince})`);
  return row?.least === null || row === undefined ? undefined : row.least + 1;
}

/** What is known of an event before its payload is read. */
export interface NamedEvent {
  position: number;
  name: string;
  entity_id: string | null;
  entity_type: string | null;
}

export const namesAfter = (
  reader: StoreReader,
  environmentId: string,
  after: number,
  limit: number,
): Promise<NamedEvent[]> =>
  reader.all(sql`SELECT position, name, entity_id, entity_type FROM events
    WHERE environment_id = ${environmentId} AND position > ${sql.bigint(after)} ORDER BY position LIMIT ${limit}`);

/** How many endpoints there are by status, and how far the last of the active ones is behind its log. */
export const countsByStatus = (
  store: Pick<Store, "all">,
): Promise<{ status: string; count: number; behind: number }[]> =>
  store.all(sql`SELECT status, count(*) AS count, max(behind) AS behind FROM (
      SELECT e.status, h.position - e.position AS behind
      FROM webhook_endpoints e JOIN heads h ON h.environment_id = e.environment_id LIMIT ${gaugeCountMax}) counted
    GROUP BY status`);

/** Where an event of the endpoint's environment stands. */
export const placeOfEvent = ({ environment_id }: EndpointKey, eventId: string): Sql =>
  sql`SELECT position, name FROM events WHERE id = ${eventId} AND environment_id = ${environment_id}`;
