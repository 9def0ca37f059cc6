import type { Instant } from "../../kit/clock.ts";
import { sql } from "../../kit/sql.ts";
import type { Session, Store } from "../../store/store.ts";

export interface NewUser {
  id: string;
  orgId: string;
  email: string;
  name: string;
  passwordHash: string;
  roles: readonly string[];
  at: Instant;
}

export interface UserRow {
  id: string;
  orgId: string;
  email: string;
  name: string;
  passwordHash: string;
  /** Names of roles. */
  roles: string[];
  /** Tokens issued before are believed no more. */
  tokensAfter: Instant;
  createdAt: Instant;
  updatedAt: Instant;
  lastLoginAt: Instant | null;
}

interface Stored {
  id: string;
  org_id: string;
  email: string;
  name: string;
  password_hash: string;
  roles: string;
  tokens_after: number;
  created_at: number;
  updated_at: number;
  last_login_at: number | null;
}

type Reader = Pick<Store, "one" | "all">;

const fields = sql.raw(
  "id, org_id, email, name, password_hash, roles, tokens_after, created_at, updated_at, last_login_at",
);

const toUser = (row: Stored): UserRow => ({
  id: row.id,
  orgId: row.org_id,
  email: row.email,
  name: row.name,
  passwordHash: row.password_hash,
  roles: JSON.parse(row.roles) as string[],
  tokensAfter: row.tokens_after,
  createdAt: row.created_at,
  updatedAt: row.updated_at,
  lastLoginAt: row.last_login_at,
});

/** Whether there is any user at all. */
export const anyUser = async (store: Pick<Store, "one">): Promise<boolean> =>
  (await store.one(sql`SELECT id FROM users LIMIT 1`)) !== undefined;

export async function userById(store: Reader, id: string): Promise<UserRow | undefined> {
  const row = await store.one<Stored>(sql`SELECT ${fields} FROM users WHERE id = ${id}`);
  return row && toUser(row);
}

export async function userByEmail(store: Reader, email: string): Promise<UserRow | undefined> {
  const row = await store.one<Stored>(sql`SELECT ${fields} FROM users WHERE email = ${email}`);
  return row && toUser(row);
}

export async function usersOf(store: Reader, orgId: string): Promise<UserRow[]> {
  const rows = await store.all<Stored>(
    sql`SELECT ${fields} FROM users WHERE org_id = ${orgId} ORDER BY created_at, id`,
  );
  return rows.map(toUser);
}

/** False when the email is taken. */
export async function insertUser(session: Session, user: NewUser): Promise<boolean> {
  const inserted = await session.run(
    sql`INSERT INTO users (id, org_id, email, name, password_hash, roles, created_at, updated_at)
        VALUES (${user.id}, ${user.orgId}, ${user.email}, ${user.name}, ${user.passwordHash},
                ${JSON.stringify(user.roles)}, ${user.at}, ${user.at})
        ON CONFLICT (email) DO NOTHING`,
  );
  return inserted === 1;
}

export const updateUser = (
  session: Session,
  user: Pick<UserRow, "id" | "name" | "email" | "roles" | "updatedAt">,
): Promise<number> =>
  session.run(sql`UPDATE users SET name = ${user.name}, email = ${user.email},
    roles = ${JSON.stringify(user.roles)}, updated_at = ${user.updatedAt} WHERE id = ${user.id}`);

/** Whatever was issued before is believed no more. */
export const changePassword = (
  session: Session,
  change: { id: string; passwordHash: string; at: Instant },
): Promise<number> =>
  session.run(sql`UPDATE users SET password_hash = ${change.passwordHash}, tokens_after = ${change.at},
    updated_at = ${change.at} WHERE id = ${change.id}`);

export const noteLogin = (session: Session, id: string, at: Instant): Promise<number> =>
  session.run(sql`UPDATE users SET last_login_at = ${at} WHERE id = ${id}`);

export async function deleteUser(session: Session, id: string): Promise<void> {
  await session.run(sql`DELETE FROM users WHERE id = ${id}`);
}
