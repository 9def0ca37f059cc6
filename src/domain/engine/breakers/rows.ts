import { createHash } from "node:crypto";
import type { Instant } from "../../../kit/clock.ts";
import { sql } from "../../../kit/sql.ts";
import type { Session, Store } from "../../../store/store.ts";

/** An endpoint that failed recently. */
export interface BreakerRow {
  environment_id: string;
  function_id: string;
  /** The endpoint itself; the column holds a hash of a long one (`keyOf`). */
  endpoint_url: string;
  /** Transport failures in a row. */
  fails: number;
  opened_at: Instant | null;
  /** Somebody tries it until then. */
  trial_until: Instant | null;
  last_failure_at: Instant;
}

export interface Endpoint {
  environmentId: string;
  functionId: string;
  endpointUrl: string;
}

/**
 * A longer endpoint is replaced by its hash in the key of its row: an index row of Postgres takes 2,704
 * bytes.
 */
export const endpointKeyBytesMax = 1_024;
/** Endpoints in trouble of one environment; the one that failed longest ago is forgotten. */
const breakersMax = 1_000;

/** The endpoint, or the hash of a long one. The two cannot collide: an endpoint begins with http. */
export const keyOf = (endpointUrl: string): string =>
  Buffer.byteLength(endpointUrl) <= endpointKeyBytesMax
    ? endpointUrl
    : `sha256:${createHash("sha256").update(endpointUrl).digest("hex")}`;

const columns = sql.raw(
  "environment_id, function_id, endpoint_url, endpoint, fails, opened_at, trial_until, last_failure_at",
);
const fields = sql.raw(
  `environment_id, function_id, COALESCE(endpoint, endpoint_url) AS endpoint_url, fails, opened_at, trial_until,
  last_failure_at`,
);
const its = ({ environmentId, functionId, endpointUrl }: Endpoint) =>
  sql`environment_id = ${environmentId} AND function_id = ${functionId} AND endpoint_url = ${keyOf(endpointUrl)}`;

export const breakersOf = (store: Pick<Store, "all">, environmentId: string): Promise<BreakerRow[]> =>
  store.all(sql`SELECT ${fields} FROM breakers WHERE environment_id = ${environmentId}
    ORDER BY function_id, breakers.endpoint_url`);

/** Of the whole installation: the table holds only endpoints in trouble. */
export const allBreakers = (store: Pick<Store, "all">, limit: number): Promise<BreakerRow[]> =>
  store.all(sql`SELECT ${fields} FROM breakers ORDER BY last_failure_at DESC LIMIT ${limit}`);

/** One failure more; the breaker opens with the last of `most`, and again with a trial that failed. */
export async function noteFailure(
  session: Session,
  endpoint: Endpoint,
  { at, most }: { at: Instant; most: number },
): Promise<BreakerRow> {
  const { environmentId, functionId, endpointUrl } = endpoint;
  const now = sql.bigint(at);
  const key = keyOf(endpointUrl);
  const whole = key === endpointUrl ? null : endpointUrl;
  const row = await session.one<BreakerRow>(sql`INSERT INTO breakers (${columns})
    VALUES (${environmentId}, ${functionId}, ${key}, ${whole}, 1, ${most <= 1 ? at : null}, NULL, ${now})
    ON CONFLICT (environment_id, function_id, endpoint_url) DO UPDATE SET fails = breakers.fails + 1,
      opened_at = CASE WHEN breakers.opened_at IS NOT NULL OR breakers.fails + 1 >= ${most} THEN ${now} END,
      trial_until = NULL, last_failure_at = ${now}
    RETURNING ${fields}`);
  // Every node reads all rows each second: an endpoint with ever new addresses must not fill the table.
  if (row!.fails === 1)
    await session.run(sql`DELETE FROM breakers WHERE environment_id = ${environmentId} AND last_failure_at < (
      SELECT last_failure_at FROM breakers WHERE environment_id = ${environmentId}
      ORDER BY last_failure_at DESC LIMIT 1 OFFSET ${breakersMax - 1})`);
  return row!;
}

/**
 * Forgets the endpoint's trouble; an open breaker only by a call that began after it opened. Answers how many
 * rows went.
 */
export const noteSuccess = (session: Session, endpoint: Endpoint, begunAt: Instant): Promise<number> =>
  session.run(
    sql`DELETE FROM breakers WHERE ${its(endpoint)} AND (opened_at IS NULL OR opened_at < ${begunAt})`,
  );

export const forget = (session: Session, endpoint: Endpoint): Promise<number> =>
  session.run(sql`DELETE FROM breakers WHERE ${its(endpoint)}`);

/** One node at a time tries an endpoint whose breaker has been open for long enough. */
export async function claimTrial(
  session: Session,
  endpoint: Endpoint,
  { at, openedBefore, until }: { at: Instant; openedBefore: Instant; until: Instant },
): Promise<boolean> {
  return (
    (await session.run(sql`UPDATE breakers SET trial_until = ${until}
      WHERE ${its(endpoint)} AND opened_at <= ${openedBefore} AND (trial_until IS NULL OR trial_until < ${at})`)) ===
    1
  );
}

export const dropTrial = (session: Session, endpoint: Endpoint): Promise<number> =>
  session.run(sql`UPDATE breakers SET trial_until = NULL WHERE ${its(endpoint)}`);

export const forgetBreakers = (session: Session, before: Instant, limit: number): Promise<number> =>
  session.run(sql`DELETE FROM breakers WHERE (environment_id, function_id, endpoint_url) IN (
    SELECT environment_id, function_id, endpoint_url FROM breakers WHERE last_failure_at < ${before}
    ORDER BY last_failure_at LIMIT ${limit})`);
