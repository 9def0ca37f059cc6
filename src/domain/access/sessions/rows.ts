import type { Instant } from "../../../kit/clock.ts";
import { column, sql } from "../../../kit/sql.ts";
import type { Session, Store } from "../../../store/store.ts";

export interface SessionRow {
  /** The hash of the id in the token: a reader of the table cannot make a token from it. */
  id: string;
  kind: string;
  /** Of a user or a platform user; of a desktop session the key's. */
  subjectId: string;
  orgId: string;
  createdAt: Instant;
  expiresAt: Instant;
}

/** By id, those that exist. */
export async function sessionsById(
  store: Pick<Store, "all" | "seams">,
  ids: readonly string[],
): Promise<Map<string, SessionRow>> {
  const found = await store.all<{
    id: string;
    kind: string;
    subject_id: string;
    org_id: string;
    created_at: number;
    expires_at: number;
  }>(sql`SELECT id, kind, subject_id, org_id, created_at, expires_at FROM sessions
    WHERE id ${store.seams.among(column.text(ids))}`);
  return new Map(
    found.map((row) => [
      row.id,
      {
        id: row.id,
        kind: row.kind,
        subjectId: row.subject_id,
        orgId: row.org_id,
        createdAt: row.created_at,
        expiresAt: row.expires_at,
      },
    ]),
  );
}

export const insertSession = (session: Session, row: SessionRow): Promise<number> =>
  session.run(sql`INSERT INTO sessions (id, kind, subject_id, org_id, created_at, expires_at)
    VALUES (${row.id}, ${row.kind}, ${row.subjectId}, ${row.orgId}, ${row.createdAt}, ${row.expiresAt})`);

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

export const deleteExpired = (session: Session, before: Instant, limit: number): Promise<number> =>
  session.run(sql`DELETE FROM sessions
    WHERE id IN (SELECT id FROM sessions WHERE expires_at < ${before} LIMIT ${limit})`);
