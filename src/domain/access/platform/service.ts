import { platformOrgId } from "../../../gate/gate.ts";
import type { Caller } from "../../../kit/caller.ts";
import { inCamelCase, stated } from "../../../kit/cases.ts";
import { Fault, invalid, missing } from "../../../kit/fault.ts";
import { hashPassword } from "../../../kit/password.ts";
import { sql } from "../../../kit/sql.ts";
import { type Basics, type Session, type Store, StoreError, type StoreReader } from "../../../store/store.ts";
import type { RowOf } from "../../../store/tables/index.ts";
import type { RoleScope, Roles } from "../roles/service.ts";
import { defaultOrgId } from "../tenancy/rules.ts";
import { emailOfAnother, noPassword, readEmail, readUserName, requirePassword } from "../users/rules.ts";
import type { LoggedIn, SignedInUsers } from "../users/service.ts";
import type { PlatformAudit } from "./audit.ts";
import type { PlatformUser } from "./rows.ts";
import * as rows from "./rows.ts";
import * as rules from "./rules.ts";
import { platformUsersMax, requireAdminLeft, requireBreakGlassLeft } from "./rules.ts";

export type { PlatformUser } from "./rows.ts";

export interface NewPlatformUser {
  email: string;
  password: string;
  name: string;
  /** None by default: such a user logs in and may do nothing. */
  roleIds?: readonly string[];
}

export interface PlatformUserChange {
  name?: string;
  email?: string;
  /** Ends every session of the user. */
  password?: string;
  /** False ends every session of the user and refuses new ones. */
  isActive?: boolean;
  /** Whether the password lets the user in although passwords are off. */
  breakGlass?: boolean;
  roleIds?: readonly string[];
}

export type PlatformUsers = ReturnType<typeof openPlatformUsers>;

export interface PlatformUsersDeps extends Basics<"store" | "clock" | "ids"> {
  roles: Pick<Roles, "known" | "idsOf">;
  /** Ends every session of the user, in the same transaction. */
  endSessions: (session: Session, userId: string) => Promise<void>;
  /** Forgets how issuers name the user, in the transaction that deletes it. */
  dropIdentities: (session: Session, userId: string) => Promise<unknown>;
  audit: Pick<PlatformAudit, "record">;
  scope: RoleScope;
}

const emailTaken = () =>
  new Fault("already_exists", "a platform user with this email exists", { field: "email" });

async function find(reader: StoreReader, id: string): Promise<PlatformUser> {
  const user = await rows.userById(reader, id);
  if (!user) throw missing("platform user", id);
  return user;
}

/** Platform users as those who carry roles. */
const carriers = {
  /** The session holds the platform's org; the same for `revokeRole`. */
  countWithRole: async (session: Session, _orgId: string, roleId: string) =>
    (await rows.allUsers(session)).filter((user) => user.roles.includes(roleId)).length,
  async revokeRole(session: Session, _orgId: string, roleId: string) {
    for (const user of await rows.allUsers(session))
      if (user.roles.includes(roleId))
        await rows.setRoles(
          session,
          user.id,
          user.roles.filter((one) => one !== roleId),
        );
  },
};

/** Whether there is any user; blocks the first one until the transaction ends. */
async function anyHeld(session: Session, { orgId }: RoleScope): Promise<boolean> {
  await rows.shareUsers(session, orgId);
  return rows.anyUser(session);
}

export function openPlatformUsers(deps: PlatformUsersDeps) {
  const { store, clock, ids, roles, audit, scope, endSessions } = deps;

  async function readRoles(session: Session, roleIds: readonly string[]): Promise<string[]> {
    return roles.idsOf(session, scope, "role_ids", roleIds);
  }

  async function prepare(input: NewPlatformUser, roleIds: readonly string[]): Promise<PlatformUser> {
    const at = clock.now();
    return {
      id: ids.next("puser"),
      ...(await readNew(input)),
      roles: [...roleIds],
      isActive: true,
      breakGlass: false,
      tokensAfter: 0,
      createdAt: at,
      updatedAt: at,
      lastLoginAt: null,
    };
  }

  async function insert(session: Session, user: PlatformUser, by: Caller, how: object = {}): Promise<void> {
    if (!(await rows.insertUser(session, user))) throw emailTaken();
    const { id: user_id, email, name, roles: role_ids } = user;
    const payload = { user_id, email, name, role_ids, ...how };
    await audit.record(session, { type: "platform.user.created", by, payload });
  }

  return {
    /** The first user, a platform_admin, for an admin key of the default org; later `already_exists`. */
    async bootstrap(caller: Caller, input: NewPlatformUser): Promise<PlatformUser> {
      // The first key belongs to the owner of the installation; admins of other orgs are only tenants.
      if ((caller.kind !== "key" && caller.kind !== "dev") || caller.orgId !== defaultOrgId)
        throw new Fault("permission_denied", "an admin key of the default org is required");
      const exist = () => new Fault("already_exists", "platform users already exist");
      const user = await prepare(input, [rules.adminRoleId]);
      await store.write(async (session) => {
        await rows.holdUsers(session, scope.orgId);
        if (await rows.anyUser(session)) throw exist();
        await insert(session, user, caller, { bootstrap_key_id: caller.id });
      });
      return user;
    },

    list: () => rows.allUsers(store),
    get: (id: string) => find(store, id),

    async create(caller: Caller, input: NewPlatformUser): Promise<PlatformUser> {
      const prepared = await prepare(input, []);
      return store.write(async (session) => {
        await rows.holdUsers(session, scope.orgId);
        const user = { ...prepared, roles: await readRoles(session, input.roleIds ?? []) };
        if ((await rows.allUsers(session)).length >= rules.platformUsersMax)
          throw new Fault("resource_exhausted", `at most ${rules.platformUsersMax} platform users`);
        await insert(session, user, caller);
        return user;
      });
    },

    /** `failed_precondition` for what would leave no active platform_admin; the same of `delete`. */
    async update(caller: Caller, id: string, asked: PlatformUserChange): Promise<PlatformUser> {
      const wanted = await readChange(asked);
      try {
        return await store.write(async (session) => {
          const arePasswordsOff = await rows.holdUsers(session, scope.orgId);
          const before = await find(session, id);
          const roles = asked.roleIds === undefined ? undefined : await readRoles(session, asked.roleIds);
          const change = { ...wanted, ...(roles && { roles }) };
          const after = rules.changed(before, change, clock.now());
          const all = await rows.allUsers(session);
          rules.requireAdminLeft(all, before, after);
          if (arePasswordsOff) rules.requireBreakGlassLeft(all, before, after);
          await rows.updateUser(session, after);
          if (rules.endsSessions(change)) await endSessions(session, id);
          const payload = { user_id: id, ...rules.auditedChange(change) };
          await audit.record(session, { type: "platform.user.updated", by: caller, payload });
          return after;
        });
      } catch (error) {
        if (error instanceof StoreError && error.trouble === "unique") throw emailTaken();
        throw error;
      }
    },

    async delete(caller: Caller, id: string) {
      await store.write(async (session) => {
        const arePasswordsOff = await rows.holdUsers(session, scope.orgId);
        const before = await find(session, id);
        const all = await rows.allUsers(session);
        rules.requireAdminLeft(all, before, undefined);
        if (arePasswordsOff) rules.requireBreakGlassLeft(all, before, undefined);
        await rows.deleteUser(session, id);
        await deps.dropIdentities(session, id);
        await endSessions(session, id);
        const payload = { user_id: id, email: before.email };
        await audit.record(session, { type: "platform.user.deleted", by: caller, payload });
      });
    },

    find: (id: string) => rows.userById(store, id),
    findByEmail: (email: string) => rows.userByEmail(store, email),
    /** Locks the account's row; undefined when the password has changed since this hash was read. */
    async noteLogin(session: Session, id: string, passwordHash: string) {
      const account = await rows.noteLogin(session, { id, passwordHash, at: clock.now() });
      return account && ({ ...account, orgId: scope.orgId } satisfies LoggedIn);
    },

    /** The names that a login answers. */
    async roleNamesOf(roleIds: readonly string[]): Promise<string[]> {
      const names = new Map((await roles.known(store, scope)).map((role) => [role.id, role.name]));
      return roleIds.flatMap((id) => names.get(id) ?? []);
    },

    ...carriers,

    anyHeld: (session: Session) => anyHeld(session, scope),
  };
}

// Hashing a password takes a tenth of a second: these run before the write, which would hold the users for so
// long.

async function readNew(
  input: NewPlatformUser,
): Promise<Pick<PlatformUser, "email" | "name" | "passwordHash">> {
  const email = readEmail(input.email);
  const name = readUserName(input.name);
  if (name === "") throw invalid("name", "must not be empty");
  requirePassword("password", input.password);
  return { email, name, passwordHash: await hashPassword(input.password) };
}

async function readChange({
  name,
  email,
  password,
  isActive,
  breakGlass,
}: PlatformUserChange): Promise<rules.StoredUserChange> {
  const read: rules.StoredUserChange = {
    ...(name !== undefined && { name: readUserName(name) }),
    ...stated({ isActive, breakGlass }),
  };
  if (read.name === "") throw invalid("name", "must not be empty");
  if (email !== undefined) read.email = readEmail(email);
  if (password === undefined) return read;
  requirePassword("password", password);
  return { ...read, passwordHash: await hashPassword(password) };
}

/** Users of the platform, as sign-ins by its issuer make and change them; each change is audited. */
export function openSignedInPlatformUsers({
  clock,
  audit,
}: Basics<"clock"> & { audit: Pick<PlatformAudit, "record"> }): SignedInUsers {
  return {
    async enter(session, _orgId, id) {
      const user = await rows.userById(session, id);
      if (!user) return undefined;
      if (!user.isActive) throw new Fault("permission_denied", "the platform user is inactive");
      const { passwordHash, email, tokensAfter } = user;
      await rows.noteLogin(session, { id, passwordHash, at: clock.now() });
      return { email, tokensAfter };
    },

    async make(session, _orgId, { id, email, name }) {
      if ((await rows.allUsers(session)).length >= platformUsersMax)
        throw new Fault("resource_exhausted", `at most ${platformUsersMax} platform users`);
      const at = clock.now();
      const user: PlatformUser = {
        ...{ id, email: readEmail(email), passwordHash: noPassword, roles: [] },
        name: readUserName(name) || readEmail(email),
        ...{ isActive: true, breakGlass: false, tokensAfter: 0 },
        ...{ createdAt: at, updatedAt: at, lastLoginAt: null },
      };
      if (!(await rows.insertUser(session, user))) throw emailOfAnother();
      const payload = { user_id: id, email: user.email, name: user.name, by_issuer: true };
      await audit.record(session, { type: "platform.user.created", by: { kind: "platform", id }, payload });
    },

    async setRoles(session, orgId, id, roleIds) {
      const all = await rows.allUsers(session);
      const before = all.find((user) => user.id === id);
      if (!before || [...before.roles].sort().join() === [...roleIds].sort().join()) return;
      const after = { ...before, roles: [...roleIds] };
      requireAdminLeft(all, before, after);
      if (await rows.holdUsers(session, orgId)) requireBreakGlassLeft(all, before, after);
      await rows.setRoles(session, id, roleIds);
      const payload = { user_id: id, role_ids: roleIds, by_issuer: true };
      await audit.record(session, { type: "platform.user.updated", by: { kind: "platform", id }, payload });
    },
  };
}

export type PlatformOrg = ReturnType<typeof toOrg>;

/** Orgs as the platform sees them, without its own. */
export type PlatformOrgs = ReturnType<typeof openPlatformOrgs>;

/** Creating and deleting an org with everything in it. */
export interface OrgWrites {
  create(name: string): Promise<PlatformOrg>;
  remove(id: string): Promise<void>;
}

type PlatformOrgRow = RowOf<"orgs", "id, name, created_at, updated_at">;

const fields = sql.raw("id, name, created_at, updated_at");

const toOrg = (row: PlatformOrgRow) => inCamelCase(row);

export function openPlatformOrgs({ store, writes }: { store: Store; writes: OrgWrites }) {
  return {
    /** The org's row only: no project, no environment. */
    create: writes.create,

    async get(id: string): Promise<PlatformOrg> {
      const row =
        id === platformOrgId
          ? undefined
          : await store.one<PlatformOrgRow>(sql`SELECT ${fields} FROM orgs WHERE id = ${id}`);
      if (!row) throw missing("org", id);
      return toOrg(row);
    },

    /** Oldest first. */
    async list(): Promise<PlatformOrg[]> {
      const rows = await store.all<PlatformOrgRow>(
        sql`SELECT ${fields} FROM orgs WHERE id <> ${platformOrgId} ORDER BY created_at, id`,
      );
      return rows.map(toOrg);
    },

    async delete(id: string) {
      if (id === platformOrgId) throw invalid("id", `${id} cannot be deleted`);
      await writes.remove(id);
    },
  };
}
