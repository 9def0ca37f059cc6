import type { Caller } from "../../../kit/caller.ts";
import type { Instant } from "../../../kit/clock.ts";
import { Fault, insufficientPermissions, invalid, missing } from "../../../kit/fault.ts";
import { gatheredReads } from "../../../kit/gathered-reads.ts";
import { hashPassword, verifyPassword } from "../../../kit/password.ts";
import { type Basics, type Session, StoreError, type StoreReader } from "../../../store/store.ts";
import type { Tenancy } from "../tenancy/service.ts";
import type { CarriedRole, NewUser, StoredUser, UserRow } from "./rows.ts";
import * as rows from "./rows.ts";
import * as rules from "./rules.ts";
import { emailOfAnother, noPassword, readEmail, readUserName, usersMax } from "./rules.ts";

/** All roles that users of the org may have. */
export type RolesOf = (reader: StoreReader, orgId: string) => Promise<readonly CarriedRole[]>;

const carriedBy = ({ roles, roleIds }: UserRow): CarriedRole[] =>
  roleIds.map((id, at) => ({ id, name: roles[at] ?? id }));

/**
 * The roles that users carry. Rows that a node of the previous release wrote name a role only; others have
 * its id too.
 */
class CarriedRoles {
  readonly #rolesOf: RolesOf;

  constructor(rolesOf: RolesOf) {
    this.#rolesOf = rolesOf;
  }

  /** Users with the ids of their roles: a role without an id is the one that has its name now. */
  async allWhole(reader: StoreReader, orgId: string, stored: readonly StoredUser[]): Promise<UserRow[]> {
    const all = stored.every(({ roleIds }) => roleIds) ? [] : await this.#rolesOf(reader, orgId);
    return stored.map((user) => {
      const { roleIds } = user;
      if (roleIds) return { ...user, roleIds };
      const found = user.roles.flatMap((name) => all.find((role) => role.name === name) ?? []);
      return { ...user, roles: found.map(({ name }) => name), roleIds: found.map(({ id }) => id) };
    });
  }

  async whole(reader: StoreReader, user: StoredUser): Promise<UserRow> {
    return (await this.allWhole(reader, user.orgId, [user]))[0]!;
  }

  /** The roles that a caller names, by id or by name. */
  async read(session: Session, orgId: string, given: readonly string[]): Promise<CarriedRole[]> {
    const all = given.length === 0 ? [] : await this.#rolesOf(session, orgId);
    const found = given.map((text) => {
      const role = all.find(({ id, name }) => id === text || name === text);
      if (!role) throw invalid("roles", `role ${text.slice(0, 80)} not found`);
      return role;
    });
    return [...new Set(found)];
  }

  async withRole(session: Session, orgId: string, roleId: string): Promise<UserRow[]> {
    const users = await this.allWhole(session, orgId, await rows.usersOf(session, orgId));
    return users.filter(({ roleIds }) => roleIds.includes(roleId));
  }

  /** Gives every user who carries the role `next` instead. */
  async replace(
    session: Session,
    orgId: string,
    roleId: string,
    next: readonly CarriedRole[],
  ): Promise<void> {
    for (const user of await this.withRole(session, orgId, roleId)) {
      const roles = carriedBy(user).flatMap((role) => (role.id === roleId ? next : role));
      await rows.setRoles(session, user.id, roles);
    }
  }
}

export type { CarriedRole, NewUser, UserRow } from "./rows.ts";

export interface UserChange {
  name?: string;
  email?: string;
  /** Names or ids. */
  roles?: readonly string[];
}

type UserDraft = Omit<NewUser, "id" | "passwordHash" | "at"> & { password: string };

/** What a login needs of an account whose row it has locked. */
export interface LoggedIn {
  orgId: string;
  tokensAfter: Instant;
}

export type Users = ReturnType<typeof users>;

export interface UsersDeps extends Basics<"store" | "clock" | "ids"> {
  tenancy: Pick<Tenancy, "shareOrg">;
  rolesOf: RolesOf;
  /** Ends every session of the user, in the same transaction. */
  endSessions: (session: Session, userId: string) => Promise<void>;
  /** Forgets how issuers name the user, in the transaction that deletes it. */
  dropIdentities: (session: Session, userId: string) => Promise<unknown>;
}

/** Users that one query looks up. */
const soughtMax = 100;

const emailTaken = () => new Fault("already_exists", "a user with this email exists", { field: "email" });

function requireOwn(orgId: string, id: string, user: rows.StoredUser | undefined): rows.StoredUser {
  if (user?.orgId !== orgId) throw missing("user", id);
  return user;
}

const rolesIn = (carried: CarriedRoles) => ({
  /** How many users of the org carry the role; the session holds the org. */
  countWithRole: async (session: Session, orgId: string, roleId: string) =>
    (await carried.withRole(session, orgId, roleId)).length,
  /** Takes the role from every user who carries it; under the same lock. */
  revokeRole: (session: Session, orgId: string, roleId: string) =>
    carried.replace(session, orgId, roleId, []),
  /** Writes the new name of a role to its users; under the same lock. */
  renameRole: (session: Session, orgId: string, role: CarriedRole) =>
    carried.replace(session, orgId, role.id, [role]),
});

/** Every change locks the org, then the user, until it commits. */
export function users(deps: UsersDeps) {
  const { store, clock, ids, tenancy, endSessions } = deps;
  const carried = new CarriedRoles(deps.rolesOf);
  const findUser = gatheredReads({
    ...{ clock, keysMax: soughtMax },
    read: (sought) => rows.usersById(store, sought),
  });

  const prepare = async ({ password, ...user }: UserDraft): Promise<NewUser> => ({
    id: ids.next("usr"),
    ...user,
    passwordHash: await hashPassword(password, user.orgId),
    at: clock.now(),
  });

  async function hold(session: Session, orgId: string, id: string): Promise<rows.StoredUser> {
    await tenancy.shareOrg(session, orgId);
    return requireOwn(orgId, id, await rows.holdUser(session, id));
  }

  return {
    /** Whether there is any user at all. */
    any: () => rows.anyUser(store),
    /** The row of a user to be inserted. Hashing takes a tenth of a second: never do it inside a write. */
    prepare,
    insert: rows.insertUser,
    remove: rows.deleteUser,

    list: async (orgId: string) => carried.allWhole(store, orgId, await rows.usersOf(store, orgId)),

    /** `not_found` for another org's. */
    async get(orgId: string, id: string): Promise<UserRow> {
      return carried.whole(store, requireOwn(orgId, id, await rows.userById(store, id)));
    },

    async create(
      orgId: string,
      input: { email: string; password: string; name: string; roles: readonly string[] },
    ): Promise<UserRow> {
      const email = rules.readEmail(input.email);
      const name = rules.readUserName(input.name);
      rules.requirePassword("password", input.password);
      const prepared = await prepare({ orgId, email, name, roles: [], password: input.password });
      return store.write(async (session) => {
        await tenancy.shareOrg(session, orgId);
        const roles = await carried.read(session, orgId, input.roles);
        if ((await rows.countUsers(session, orgId)) >= rules.usersMax)
          throw new Fault("resource_exhausted", `at most ${rules.usersMax} users`);
        if (!(await rows.insertUser(session, { ...prepared, roles }))) throw emailTaken();
        return carried.whole(
          session,
          requireOwn(orgId, prepared.id, await rows.userById(session, prepared.id)),
        );
      });
    },

    async update(orgId: string, id: string, change: UserChange): Promise<UserRow> {
      const name = change.name === undefined ? undefined : rules.readUserName(change.name);
      const email = change.email === undefined ? undefined : rules.readEmail(change.email);
      try {
        return await store.write(async (session) => {
          const before = await hold(session, orgId, id);
          const own = { name: name ?? before.name, email: email ?? before.email };
          await rows.updateUser(session, { id, ...own, updatedAt: clock.now() });
          if (change.roles !== undefined)
            await rows.setRoles(session, id, await carried.read(session, orgId, change.roles));
          return carried.whole(session, requireOwn(orgId, id, await rows.userById(session, id)));
        });
      } catch (error) {
        if (error instanceof StoreError && error.trouble === "unique") throw emailTaken();
        throw error;
      }
    },

    async delete(caller: Caller, id: string) {
      if (caller.id === id) throw new Fault("invalid_argument", "users cannot delete themselves");
      await store.write(async (session) => {
        await hold(session, caller.orgId, id);
        await rows.deleteUser(session, id);
        await deps.dropIdentities(session, id);
        await endSessions(session, id);
      });
    },

    /** Changes the caller's own password, given the current one, and ends every session of the user. */
    async changePassword(caller: Caller, id: string, current: string, next: string) {
      if (caller.id !== id) throw insufficientPermissions("users change no password but their own");
      const { orgId } = caller;
      const compared = requireOwn(orgId, id, await rows.userById(store, id)).passwordHash;
      rules.requirePassword("new_password", next);
      const wrong = () =>
        new Fault("permission_denied", "current_password: is not the current password", {
          field: "current_password",
        });
      if (compared === rules.noPassword || !(await verifyPassword(current, compared, id))) throw wrong();
      const passwordHash = await hashPassword(next, id);
      await store.write(async (session) => {
        const before = await hold(session, orgId, id);
        // Another change came while the hash was computed: `current` is no longer the password.
        if (before.passwordHash !== compared) throw wrong();
        const at = Math.max(clock.now(), before.tokensAfter + 1);
        await rows.changePassword(session, { id, passwordHash, at });
        await endSessions(session, id);
      });
    },

    async find(id: string): Promise<UserRow | undefined> {
      const user = await findUser(id);
      return user && carried.whole(store, user);
    },
    findByEmail: (email: string) => rows.userByEmail(store, email),
    /** Locks the user's row; undefined when the password has changed since this hash was read. */
    noteLogin: (session: Session, id: string, passwordHash: string) =>
      rows.noteLogin(session, { id, passwordHash, at: clock.now() }),
    ...rolesIn(carried),
  };
}

/** Whom an issuer names, before there is a user. */
export interface NewPerson {
  id: string;
  email: string;
  name: string;
}

/** What a sign-in needs of an account whose row it has locked. */
export interface SignedInAccount {
  email: string;
  tokensAfter: Instant;
}

/** Users as sign-ins by an issuer make and change them; the session holds their org, or the platform's. */
export interface SignedInUsers {
  /** Locks the user; undefined when the org has none. Throws for one who may not sign in. */
  enter(session: Session, orgId: string, id: string): Promise<SignedInAccount | undefined>;
  /** Without a password and without roles; `already_exists` when the email is another user's. */
  make(session: Session, orgId: string, person: NewPerson): Promise<void>;
  setRoles(session: Session, orgId: string, id: string, roleIds: readonly string[]): Promise<void>;
}

export function openSignedInUsers({ clock, rolesOf }: Basics<"clock"> & { rolesOf: RolesOf }): SignedInUsers {
  const carried = new CarriedRoles(rolesOf);
  return {
    async enter(session, orgId, id) {
      const user = await rows.holdUser(session, id);
      if (user?.orgId !== orgId) return undefined;
      const { passwordHash, email, tokensAfter } = user;
      await rows.noteLogin(session, { id, passwordHash, at: clock.now() });
      return { email, tokensAfter };
    },

    async make(session, orgId, { id, email, name }) {
      if ((await rows.countUsers(session, orgId)) >= usersMax)
        throw new Fault("resource_exhausted", `at most ${usersMax} users`);
      const user = { id, orgId, email: readEmail(email), name: readUserName(name), roles: [] };
      const isMade = await rows.insertUser(session, { ...user, passwordHash: noPassword, at: clock.now() });
      if (!isMade) throw emailOfAnother();
    },

    async setRoles(session, orgId, id, roleIds) {
      await rows.setRoles(session, id, await carried.read(session, orgId, roleIds));
    },
  };
}
