import { inCamelCase } from "../../../kit/cases.ts";
import type { Instant } from "../../../kit/clock.ts";
import { readAs } from "../../../kit/columns.ts";
import { column, countOf, sql } from "../../../kit/sql.ts";
import type { Session, Store, StoreReader } from "../../../store/store.ts";
import type { RowOf } from "../../../store/tables/index.ts";

/** A role as a user carries it: its id and its current name. */
export interface CarriedRole {
  id: string;
  name: string;
}

export interface NewUser {
  id: string;
  orgId: string;
  email: string;
  name: string;
  passwordHash: string;
  roles: readonly CarriedRole[];
  at: Instant;
}

export type StoredUser = ReturnType<typeof toUser>;

export interface UserRow extends StoredUser {
  roleIds: string[];
}

type UserColumns = RowOf<"users">;

const fields = sql.raw(
  "id, org_id, email, name, password_hash, roles, role_ids, role_ids_of, tokens_after, created_at, updated_at, last_login_at",
);

/** `tokensAfter`: sessions from before this instant are refused. */
const toUser = ({ role_ids, role_ids_of, ...row }: UserColumns) => ({
  ...inCamelCase(row),
  /** Names of roles. */
  roles: JSON.parse(row.roles) as string[],
  /** Undefined when a node of the previous release, which knows names only, wrote the roles last. */
  roleIds: role_ids === null || role_ids_of !== row.roles ? undefined : (JSON.parse(role_ids) as string[]),
});

const read = readAs(toUser);

const namesOf = (roles: readonly CarriedRole[]): string => JSON.stringify(roles.map(({ name }) => name));
const idsOf = (roles: readonly CarriedRole[]): string => JSON.stringify(roles.map(({ id }) => id));

/** Whether there is any user at all. */
export const anyUser = async (store: Pick<Store, "one">): Promise<boolean> =>
  (await store.one(sql`SELECT id FROM users LIMIT 1`)) !== undefined;

export const userById = (store: StoreReader, id: string) =>
  read.one(store, sql`SELECT ${fields} FROM users WHERE id = ${id}`);

/** By id, those that exist. */
export async function usersById(
  store: Pick<Store, "all" | "seams">,
  ids: readonly string[],
): Promise<Map<string, StoredUser>> {
  const found = await store.all<UserColumns>(
    sql`SELECT ${fields} FROM users WHERE id ${store.seams.among(column.text(ids))}`,
  );
  return new Map(found.map((row) => [row.id, toUser(row)]));
}

/** Locks the user: no other transaction changes it until this one ends. */
export const holdUser = (session: Session, id: string) =>
  read.one(session, sql`SELECT ${fields} FROM users WHERE id = ${id} ${session.seams.holdRow}`);

export const countUsers = (reader: Pick<Store, "one">, orgId: string): Promise<number> =>
  countOf(reader, sql`FROM users WHERE org_id = ${orgId}`);

export const userByEmail = (store: StoreReader, email: string) =>
  read.one(store, sql`SELECT ${fields} FROM users WHERE email = ${email}`);

export const usersOf = (store: StoreReader, orgId: string) =>
  read.all(store, sql`SELECT ${fields} FROM users WHERE org_id = ${orgId} ORDER BY created_at, id`);

/** False when the email is taken. */
export async function insertUser(session: Session, user: NewUser): Promise<boolean> {
  const names = namesOf(user.roles);
  const inserted = await session.run(
    sql`INSERT INTO users (id, org_id, email, name, password_hash, roles, role_ids, role_ids_of, created_at, updated_at)
        VALUES (${user.id}, ${user.orgId}, ${user.email}, ${user.name}, ${user.passwordHash},
                ${names}, ${idsOf(user.roles)}, ${names}, ${user.at}, ${user.at})
        ON CONFLICT (email) DO NOTHING`,
  );
  return inserted === 1;
}

export const updateUser = (
  session: Session,
  user: Pick<UserRow, "id" | "name" | "email" | "updatedAt">,
): Promise<number> =>
  session.run(sql`UPDATE users SET name = ${user.name}, email = ${user.email}, updated_at = ${user.updatedAt}
    WHERE id = ${user.id}`);

export const setRoles = (session: Session, id: string, roles: readonly CarriedRole[]): Promise<number> => {
  const names = namesOf(roles);
  return session.run(sql`UPDATE users SET roles = ${names}, role_ids = ${idsOf(roles)}, role_ids_of = ${names}
    WHERE id = ${id}`);
};

/** Sessions from before `at` are refused from then on. */
export const changePassword = (
  session: Session,
  change: { id: string; passwordHash: string; at: Instant },
): Promise<number> =>
  session.run(sql`UPDATE users SET password_hash = ${change.passwordHash}, tokens_after = ${change.at},
    updated_at = ${change.at} WHERE id = ${change.id}`);

/** Locks the row. Undefined when the password has another hash by now. */
export async function noteLogin(
  session: Session,
  { id, passwordHash, at }: { id: string; passwordHash: string; at: Instant },
): Promise<{ orgId: string; tokensAfter: Instant } | undefined> {
  const row = await session.one<{ org_id: string; tokens_after: number }>(sql`UPDATE users
    SET last_login_at = ${at} WHERE id = ${id} AND password_hash = ${passwordHash} RETURNING org_id, tokens_after`);
  return row && { orgId: row.org_id, tokensAfter: row.tokens_after };
}

export async function deleteUser(session: Session, id: string): Promise<void> {
  await session.run(sql`DELETE FROM users WHERE id = ${id}`);
}
