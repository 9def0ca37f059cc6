import { type InCamelCase, inCamelCase } from "../../../kit/cases.ts";
import type { Instant } from "../../../kit/clock.ts";
import { updateLastUsed as lastUsed, type UsedSlice } from "../../../kit/last-used.ts";
import type { Cursor } from "../../../kit/page.ts";
import { column, sql } from "../../../kit/sql.ts";
import type { Session, Store } from "../../../store/store.ts";
import type { RowOf } from "../../../store/tables/index.ts";

/**
 * `id`: the hash of the id in the token: a reader of the table cannot make a token from it. `subjectId`: of a
 * user or a platform user; of a desktop session the key's. `address`, `userAgent`: where the login came from,
 * and by what client; empty for a session of an older version. `lastUsedAt`: to about a minute; null before
 * its first use. `issuerId`, `providerSid`: the issuer that it came from, and the session there; null for a
 * password, a link and a key.
 */
export type SessionRow = InCamelCase<SessionColumns>;

type SessionColumns = RowOf<"sessions">;

const fields = sql.raw(
  "id, kind, subject_id, org_id, created_at, expires_at, address, user_agent, last_used_at, issuer_id, provider_sid",
);

const toSession = (row: SessionColumns): SessionRow => inCamelCase(row);

/** By id, those that exist. */
export async function sessionsById(
  store: Pick<Store, "all" | "seams">,
  ids: readonly string[],
): Promise<Map<string, SessionRow>> {
  const found = await store.all<SessionColumns>(
    sql`SELECT ${fields} FROM sessions WHERE id ${store.seams.among(column.text(ids))}`,
  );
  return new Map(found.map((row) => [row.id, toSession(row)]));
}

/** Locks the session: a second end of it waits. */
export async function holdSession(session: Session, id: string): Promise<SessionRow | undefined> {
  const row = await session.one<SessionColumns>(
    sql`SELECT ${fields} FROM sessions WHERE id = ${id} ${session.seams.holdRow}`,
  );
  return row && toSession(row);
}

export interface SessionsPage {
  now: Instant;
  after: Cursor | undefined;
  limit: number;
  /** Only those of this org. */
  orgId?: string;
}

const newest = ({ now, after, limit, orgId }: SessionsPage) => sql`expires_at > ${now}
  ${orgId === undefined ? sql`` : sql`AND org_id = ${orgId}`}
  ${after ? sql`AND (created_at, id) < (${sql.bigint(after.at)}, ${after.id})` : sql``}
  ORDER BY created_at DESC, id DESC LIMIT ${limit}`;

/** Newest first, of all kinds: ids of subjects tell them apart. */
export const sessionsOf = async (
  store: Pick<Store, "all">,
  subjectId: string,
  page: SessionsPage,
): Promise<SessionRow[]> =>
  (
    await store.all<SessionColumns>(sql`SELECT ${fields} FROM sessions
      WHERE kind IN ${sql.list(sessionKinds)} AND subject_id = ${subjectId} AND ${newest(page)}`)
  ).map(toSession);

export const sessionsOfOrg = async (
  store: Pick<Store, "all">,
  page: SessionsPage & { orgId: string },
): Promise<SessionRow[]> =>
  (await store.all<SessionColumns>(sql`SELECT ${fields} FROM sessions WHERE ${newest(page)}`)).map(toSession);

/** `desktop`: made with an API key, which is its subject. */
export const sessionKinds = ["user", "platform", "desktop"] as const;

export const insertSession = (session: Session, row: Omit<SessionRow, "lastUsedAt">): Promise<number> =>
  session.run(sql`INSERT INTO sessions
      (id, kind, subject_id, org_id, created_at, expires_at, address, user_agent, issuer_id, provider_sid)
    VALUES (${row.id}, ${row.kind}, ${row.subjectId}, ${row.orgId}, ${row.createdAt}, ${row.expiresAt},
            ${row.address}, ${row.userAgent}, ${row.issuerId}, ${row.providerSid})`);

type SessionSubject = Pick<SessionRow, "kind" | "subjectId">;

/** All but the newest of a subject's. */
export const deleteOldest = (
  session: Session,
  { kind, subjectId }: SessionSubject,
  { kept, most }: { kept: number; most: number },
): Promise<number> =>
  session.run(sql`DELETE FROM sessions WHERE id IN (SELECT id FROM sessions
    WHERE kind = ${kind} AND subject_id = ${subjectId} ORDER BY created_at DESC LIMIT ${most} OFFSET ${kept})`);

export const deleteSession = (session: Session, id: string): Promise<number> =>
  session.run(sql`DELETE FROM sessions WHERE id = ${id}`);

export const deleteSessionsOf = (session: Session, { kind, subjectId }: SessionSubject): Promise<number> =>
  session.run(sql`DELETE FROM sessions WHERE kind = ${kind} AND subject_id = ${subjectId}`);

/** Of all kinds, but the one. */
export const deleteOthers = (
  session: Session,
  { subjectId, but }: { subjectId: string; but: string },
): Promise<number> =>
  session.run(sql`DELETE FROM sessions
    WHERE kind IN ${sql.list(sessionKinds)} AND subject_id = ${subjectId} AND id <> ${but}`);

/**
 * Those that came from the issuer: of its own session `sid`, or of the user; with both, of the user those
 * alone of which the issuer named no session. Answers whose they were.
 */
export async function deleteOfIssuer(
  session: Session,
  issuerId: string,
  { sid, subjectId }: { sid?: string | undefined; subjectId?: string | undefined },
): Promise<string[]> {
  const whose = sid === undefined ? [] : [sql`provider_sid = ${sid}`];
  if (subjectId !== undefined)
    whose.push(
      sql`(${sid === undefined ? sql`1 = 1` : sql`provider_sid IS NULL`} AND subject_id = ${subjectId})`,
    );
  if (whose.length === 0) return [];
  const gone = await session.all<{ subject_id: string }>(sql`DELETE FROM sessions
    WHERE issuer_id = ${issuerId} AND (${sql.join(whose, " OR ")}) RETURNING subject_id`);
  return gone.map(({ subject_id }) => subject_id);
}

/** Those of the subject that came from an issuer, but from none of these. */
export const deleteFromIssuers = (
  session: Session,
  subjectId: string,
  but: readonly string[],
): Promise<number> =>
  session.run(sql`DELETE FROM sessions WHERE kind IN ${sql.list(sessionKinds)} AND subject_id = ${subjectId}
    AND issuer_id IS NOT NULL AND issuer_id NOT IN ${sql.list(["", ...but])}`);

export const updateLastUsed = (session: Session, used: UsedSlice): Promise<number> =>
  session.run(lastUsed("sessions", used, session.seams));

export const deleteExpired = (session: Session, before: Instant, limit: number): Promise<number> =>
  session.run(sql`DELETE FROM sessions
    WHERE id IN (SELECT id FROM sessions WHERE expires_at < ${before} LIMIT ${limit})`);
