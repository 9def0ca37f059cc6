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

/** Whether there is any user at all. */
export const anyUser = async (store: Pick<Store, "one">): Promise<boolean> =>
  (await store.one(sql`SELECT id FROM users LIMIT 1`)) !== undefined;

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

export async function deleteUser(session: Session, id: string): Promise<void> {
  await session.run(sql`DELETE FROM users WHERE id = ${id}`);
}
