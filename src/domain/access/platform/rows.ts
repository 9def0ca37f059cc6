import { type InCamelCase, inCamelCase } from "../../../kit/cases.ts";
import type { Instant } from "../../../kit/clock.ts";
import { readAs } from "../../../kit/columns.ts";
import { sql } from "../../../kit/sql.ts";
import type { Session, Store, StoreReader } from "../../../store/store.ts";
import type { RowOf } from "../../../store/tables/index.ts";

export interface PlatformUser
  extends Omit<InCamelCase<PlatformUserColumns>, "roles" | "isActive" | "breakGlass"> {
  /** Ids. */
  roles: string[];
  isActive: boolean;
  /** The password lets the user in although passwords are off. */
  breakGlass: boolean;
  /** Tokens from before this instant are refused. */
  tokensAfter: Instant;
}

type PlatformUserColumns = RowOf<"platform_users">;

const fields = sql.raw(
  "id, email, name, password_hash, roles, is_active, break_glass, tokens_after, created_at, updated_at, last_login_at",
);

const toUser = (row: PlatformUserColumns): PlatformUser => ({
  ...inCamelCase(row),
  roles: JSON.parse(row.roles) as string[],
  ...{ isActive: row.is_active !== 0, breakGlass: row.break_glass !== 0 },
});

const read = readAs(toUser);

/**
 * Locks all platform users: changes run one after the other, as each may count the others. Answers whether
 * their passwords are off.
 */
export async function holdUsers(session: Session, platformOrgId: string): Promise<boolean> {
  const row = await session.one<{ passwords_off: number }>(
    sql`SELECT passwords_off FROM orgs WHERE id = ${platformOrgId} ${session.seams.holdRow}`,
  );
  return row !== undefined && row.passwords_off !== 0;
}

/** While this lock is held no first user can be created either. */
export async function shareUsers(session: Session, platformOrgId: string): Promise<void> {
  await session.one(sql`SELECT id FROM orgs WHERE id = ${platformOrgId} ${session.seams.shareRow}`);
}

export const anyUser = async (reader: Pick<Store, "one">): Promise<boolean> =>
  (await reader.one(sql`SELECT id FROM platform_users LIMIT 1`)) !== undefined;

export const userById = (reader: StoreReader, id: string) =>
  read.one(reader, sql`SELECT ${fields} FROM platform_users WHERE id = ${id}`);

export const userByEmail = (reader: StoreReader, email: string) =>
  read.one(reader, sql`SELECT ${fields} FROM platform_users WHERE email = ${email}`);

/** Oldest first; there are at most `platformUsersMax`. */
export const allUsers = (reader: StoreReader) =>
  read.all(reader, sql`SELECT ${fields} FROM platform_users ORDER BY created_at, id`);

/** False when the email is taken. */
export async function insertUser(session: Session, user: PlatformUser): Promise<boolean> {
  const inserted = await session.run(
    sql`INSERT INTO platform_users (id, email, name, password_hash, roles, is_active, tokens_after, created_at, updated_at)
        VALUES (${user.id}, ${user.email}, ${user.name}, ${user.passwordHash}, ${JSON.stringify(user.roles)},
                ${user.isActive ? 1 : 0}, ${user.tokensAfter}, ${user.createdAt}, ${user.updatedAt})
        ON CONFLICT (email) DO NOTHING`,
  );
  return inserted === 1;
}

export const updateUser = (session: Session, user: PlatformUser): Promise<number> =>
  session.run(sql`UPDATE platform_users SET email = ${user.email}, name = ${user.name},
    password_hash = ${user.passwordHash}, roles = ${JSON.stringify(user.roles)},
    is_active = ${user.isActive ? 1 : 0}, break_glass = ${user.breakGlass ? 1 : 0}, tokens_after = ${user.tokensAfter}, updated_at = ${user.updatedAt}
    WHERE id = ${user.id}`);

export const deleteUser = (session: Session, id: string): Promise<number> =>
  session.run(sql`DELETE FROM platform_users WHERE id = ${id}`);

export const setRoles = (session: Session, id: string, roleIds: readonly string[]): Promise<number> =>
  session.run(sql`UPDATE platform_users SET roles = ${JSON.stringify(roleIds)} WHERE id = ${id}`);

/** Locks the row. Undefined when the account has changed since its password was compared. */
export async function noteLogin(
  session: Session,
  { id, passwordHash, at }: { id: string; passwordHash: string; at: Instant },
): Promise<{ tokensAfter: Instant; breakGlass: boolean } | undefined> {
  const row = await session.one<{
    tokens_after: number;
    break_glass: number;
  }>(sql`UPDATE platform_users SET last_login_at = ${at}
    WHERE id = ${id} AND password_hash = ${passwordHash} AND is_active = 1 RETURNING tokens_after, break_glass`);
  return row && { tokensAfter: row.tokens_after, breakGlass: row.break_glass !== 0 };
}
