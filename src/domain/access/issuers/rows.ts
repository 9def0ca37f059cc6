import { inCamelCase } from "../../../kit/cases.ts";
import type { Instant } from "../../../kit/clock.ts";
import { sql } from "../../../kit/sql.ts";
import type { Session, Store, StoreReader } from "../../../store/store.ts";
import type { RowOf } from "../../../store/tables/index.ts";

export type IssuerRow = ReturnType<typeof toIssuer>;

/** What a value of the claim means. */
export interface RoleMapping {
  value: string;
  roleId: string;
}

/** An issuer with its mapping. */
export interface Issuer extends IssuerRow {
  roles: RoleMapping[];
}

type IssuerColumns = RowOf<"issuers">;

const fields = sql.raw(
  "id, org_id, name, issuer, client_id, client_secret, scopes, roles_claim, is_enabled, created_at, updated_at, ends_at_provider",
);

/** `issuer`: its URL, what `iss` of its tokens must be. `scopes`: apart by a space. */
const toIssuer = ({ client_secret: sealedSecret, ...row }: IssuerColumns) => ({
  ...inCamelCase(row),
  /** Empty for a client without a secret. */
  sealedSecret,
  isEnabled: row.is_enabled !== 0,
  /** Who signs out here is led to the provider's sign-out. */
  endsAtProvider: row.ends_at_provider !== 0,
});

type MappingColumns = RowOf<"issuer_roles", "issuer_id, value, role_id">;

async function withRoles(reader: StoreReader, found: readonly IssuerColumns[]): Promise<Issuer[]> {
  if (found.length === 0) return [];
  const mapped = await reader.all<MappingColumns>(sql`SELECT issuer_id, value, role_id FROM issuer_roles
    WHERE issuer_id IN ${sql.list(found.map(({ id }) => id))} ORDER BY issuer_id, value, role_id`);
  return found.map((row) => ({
    ...toIssuer(row),
    roles: mapped
      .filter(({ issuer_id }) => issuer_id === row.id)
      .map(({ value, role_id }) => ({ value, roleId: role_id })),
  }));
}

/** Oldest first. */
export const issuersOf = async (reader: StoreReader, orgId: string): Promise<Issuer[]> =>
  withRoles(
    reader,
    await reader.all<IssuerColumns>(
      sql`SELECT ${fields} FROM issuers WHERE org_id = ${orgId} ORDER BY created_at, id`,
    ),
  );

export const issuerById = async (reader: StoreReader, id: string): Promise<Issuer | undefined> =>
  (
    await withRoles(
      reader,
      await reader.all<IssuerColumns>(sql`SELECT ${fields} FROM issuers WHERE id = ${id}`),
    )
  )[0];

/** Locks the org: its issuers are counted, and whether passwords are off depends on them. */
export async function holdOrg(
  session: Session,
  orgId: string,
): Promise<{ arePasswordsOff: boolean } | undefined> {
  const row = await session.one<{ passwords_off: number }>(
    sql`SELECT passwords_off FROM orgs WHERE id = ${orgId} ${session.seams.holdRow}`,
  );
  return row && { arePasswordsOff: row.passwords_off !== 0 };
}

export const arePasswordsOff = async (reader: Pick<Store, "one">, orgId: string): Promise<boolean> =>
  (await reader.one(sql`SELECT passwords_off FROM orgs WHERE id = ${orgId} AND passwords_off <> 0`)) !==
  undefined;

/** The session must hold the org. */
export const setPasswordsOff = (session: Session, orgId: string, areOff: boolean): Promise<number> =>
  session.run(sql`UPDATE orgs SET passwords_off = ${areOff ? 1 : 0} WHERE id = ${orgId}`);

/** False when the org has one of this URL. */
export const insertIssuer = async (session: Session, row: IssuerRow): Promise<boolean> =>
  (await session.run(sql`INSERT INTO issuers (${fields})
    VALUES (${row.id}, ${row.orgId}, ${row.name}, ${row.issuer}, ${row.clientId}, ${row.sealedSecret}, ${row.scopes},
      ${row.rolesClaim}, ${row.isEnabled ? 1 : 0}, ${row.createdAt}, ${row.updatedAt}, ${row.endsAtProvider ? 1 : 0})
    ON CONFLICT (org_id, issuer) DO NOTHING`)) === 1;

export const updateIssuer = (session: Session, row: IssuerRow): Promise<number> =>
  session.run(sql`UPDATE issuers SET name = ${row.name}, client_id = ${row.clientId},
      client_secret = ${row.sealedSecret}, scopes = ${row.scopes}, roles_claim = ${row.rolesClaim},
      is_enabled = ${row.isEnabled ? 1 : 0}, ends_at_provider = ${row.endsAtProvider ? 1 : 0}, updated_at = ${row.updatedAt}
    WHERE id = ${row.id} AND org_id = ${row.orgId}`);

export async function deleteIssuer(session: Session, { id, orgId }: IssuerRow): Promise<void> {
  await session.run(sql`DELETE FROM issuer_roles WHERE issuer_id = ${id}`);
  await session.run(sql`DELETE FROM issuers WHERE id = ${id} AND org_id = ${orgId}`);
}

/** Replaces the whole mapping. */
export async function setMapping(
  session: Session,
  { id, orgId }: Pick<IssuerRow, "id" | "orgId">,
  roles: readonly RoleMapping[],
): Promise<void> {
  await session.run(sql`DELETE FROM issuer_roles WHERE issuer_id = ${id}`);
  for (const { value, roleId } of roles)
    await session.run(sql`INSERT INTO issuer_roles (issuer_id, value, role_id, org_id)
      VALUES (${id}, ${value}, ${roleId}, ${orgId}) ON CONFLICT (issuer_id, value, role_id) DO NOTHING`);
}

/** Of the whole installation, for a new master key. */
export const everySecret = (reader: StoreReader): Promise<{ id: string; client_secret: string }[]> =>
  reader.all(sql`SELECT id, client_secret FROM issuers WHERE client_secret <> '' ORDER BY id`);

export const resealSecret = (session: Session, id: string, sealed: string): Promise<number> =>
  session.run(sql`UPDATE issuers SET client_secret = ${sealed} WHERE id = ${id}`);

/** Active users of the platform whose password works although passwords are off: ids of their roles. */
export const breakGlassRoles = async (session: Session): Promise<string[][]> =>
  (
    await session.all<{ roles: string }>(sql`SELECT roles FROM platform_users
      WHERE break_glass <> 0 AND is_active <> 0 AND password_hash <> ''`)
  ).map(({ roles }) => JSON.parse(roles) as string[]);

/** How a user of the scope signs in without an issuer; undefined for none of the scope. */
export async function passwordOf(
  reader: Pick<Store, "one">,
  { orgId, kind }: { orgId: string; kind: "tenant" | "platform" },
  userId: string,
): Promise<{ isSet: boolean; breaksGlass: boolean } | undefined> {
  const row = await reader.one<{ password_hash: string; break_glass: number }>(
    kind === "platform"
      ? sql`SELECT password_hash, break_glass FROM platform_users WHERE id = ${userId}`
      : sql`SELECT password_hash, 0 AS break_glass FROM users WHERE id = ${userId} AND org_id = ${orgId}`,
  );
  return row && { isSet: row.password_hash !== "", breaksGlass: row.break_glass !== 0 };
}

/** A person, as the issuer names it. */
export interface NamedPerson {
  orgId: string;
  issuer: string;
  subject: string;
}

export async function userOf(
  reader: Pick<Store, "one">,
  { orgId, issuer, subject }: NamedPerson,
): Promise<string | undefined> {
  const row = await reader.one<{ user_id: string }>(sql`SELECT user_id FROM identities
    WHERE org_id = ${orgId} AND issuer = ${issuer} AND subject = ${subject}`);
  return row?.user_id;
}

/**
 * Gives the identity to the user unless another user has it. Answers who has it now: the user, or one of a
 * transaction that was faster.
 */
export async function claimIdentity(
  session: Session,
  identity: NamedPerson,
  { userId, at }: { userId: string; at: Instant },
): Promise<string> {
  const { orgId, issuer, subject } = identity;
  await session.run(sql`INSERT INTO identities (org_id, issuer, subject, user_id, created_at)
    VALUES (${orgId}, ${issuer}, ${subject}, ${userId}, ${at}) ON CONFLICT (org_id, issuer, subject) DO NOTHING`);
  return (await userOf(session, identity)) ?? userId;
}

/** Oldest first. */
export const identitiesOf = (
  reader: Pick<Store, "all">,
  orgId: string,
  userId: string,
): Promise<{ issuer: string; subject: string; created_at: Instant }[]> =>
  reader.all(sql`SELECT issuer, subject, created_at FROM identities
    WHERE user_id = ${userId} AND org_id = ${orgId} ORDER BY created_at, issuer, subject`);

export const dropIdentity = (session: Session, { orgId, issuer, subject }: NamedPerson): Promise<number> =>
  session.run(sql`DELETE FROM identities
    WHERE org_id = ${orgId} AND issuer = ${issuer} AND subject = ${subject}`);

/** With its user, in the transaction that deletes that. */
export const dropIdentitiesOf = (session: Session, userId: string): Promise<number> =>
  session.run(sql`DELETE FROM identities WHERE user_id = ${userId}`);
