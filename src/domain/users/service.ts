import { builtInRoles } from "../../access/actions.ts";
import type { Clock } from "../../kit/clock.ts";
import { Fault, invalid, missing } from "../../kit/fault.ts";
import type { Ids } from "../../kit/ids.ts";
import { usersMax } from "../../kit/limits.ts";
import type { Caller } from "../../kit/operation.ts";
import { hashPassword, verifyPassword } from "../../kit/password.ts";
import { type Session, type Store, StoreError } from "../../store/store.ts";
import type { NewUser, UserRow } from "./rows.ts";
import * as rows from "./rows.ts";
import * as rules from "./rules.ts";

export type { NewUser, UserRow } from "./rows.ts";

export interface UserChange {
  name?: string;
  email?: string;
  roles?: readonly string[];
}

export interface Users {
  /** Whether there is any user at all. */
  any(): Promise<boolean>;
  /** The row of a user to be inserted. Hashing takes a tenth of a second: never do it inside a write. */
  prepare(user: {
    orgId: string;
    email: string;
    name: string;
    password: string;
    roles: readonly string[];
  }): Promise<NewUser>;
  /** False when the email is taken. */
  insert(session: Session, user: NewUser): Promise<boolean>;
  remove(session: Session, id: string): Promise<void>;
  list(orgId: string): Promise<UserRow[]>;
  /** `not_found` for another org's. */
  get(orgId: string, id: string): Promise<UserRow>;
  create(
    orgId: string,
    input: { email: string; password: string; name: string; roles: readonly string[] },
  ): Promise<UserRow>;
  update(orgId: string, id: string, change: UserChange): Promise<UserRow>;
  delete(caller: Caller, id: string): Promise<void>;
  /** Of the caller's own, which ends every session of theirs; wants the current one. */
  changePassword(caller: Caller, id: string, current: string, next: string): Promise<void>;
  find(id: string): Promise<UserRow | undefined>;
  findByEmail(email: string): Promise<UserRow | undefined>;
  noteLogin(id: string): Promise<void>;
}

export interface UsersDeps {
  store: Store;
  clock: Clock;
  ids: Ids;
  /** Names of the roles that an org has made for itself. */
  ownRoles?: (orgId: string) => Promise<readonly string[]>;
}

const emailTaken = () => new Fault("already_exists", "a user with this email exists", { field: "email" });

export function users(deps: UsersDeps): Users {
  const { store, clock, ids } = deps;

  const prepare: Users["prepare"] = async ({ password, ...user }) => ({
    id: ids.next("usr"),
    ...user,
    passwordHash: await hashPassword(password),
    at: clock.now(),
  });

  async function get(orgId: string, id: string): Promise<UserRow> {
    const user = await rows.userById(store, id);
    if (!user || user.orgId !== orgId) throw missing("user", id);
    return user;
  }

  async function requireRoles(orgId: string, names: readonly string[]): Promise<readonly string[]> {
    const own = new Set((await deps.ownRoles?.(orgId)) ?? []);
    for (const name of names) {
      const known = builtInRoles.some((role) => role === name && !role.startsWith("platform_"));
      if (!known && !own.has(name)) throw invalid("roles", `role ${name.slice(0, 80)} not found`);
    }
    return [...new Set(names)];
  }

  return {
    any: () => rows.anyUser(store),
    prepare,
    insert: rows.insertUser,
    remove: rows.deleteUser,
    list: (orgId) => rows.usersOf(store, orgId),
    get,

    async create(orgId, input) {
      const email = rules.readEmail(input.email);
      const name = rules.readUserName(input.name);
      rules.requirePassword("password", input.password);
      const roles = await requireRoles(orgId, input.roles);
      const user = await prepare({ orgId, email, name, roles, password: input.password });
      await store.write(async (session) => {
        if ((await rows.usersOf(session, orgId)).length >= usersMax)
          throw new Fault("resource_exhausted", `at most ${usersMax} users`);
        if (!(await rows.insertUser(session, user))) throw emailTaken();
      });
      return get(orgId, user.id);
    },

    async update(orgId, id, change) {
      const before = await get(orgId, id);
      const user = {
        id,
        name: change.name === undefined ? before.name : rules.readUserName(change.name),
        email: change.email === undefined ? before.email : rules.readEmail(change.email),
        roles: change.roles === undefined ? before.roles : [...(await requireRoles(orgId, change.roles))],
        updatedAt: clock.now(),
      };
      try {
        await store.write((session) => rows.updateUser(session, user));
      } catch (error) {
        if (error instanceof StoreError && error.trouble === "unique") throw emailTaken();
        throw error;
      }
      return get(orgId, id);
    },

    async delete(caller, id) {
      if (caller.id === id) throw new Fault("invalid_argument", "users cannot delete themselves");
      await get(caller.orgId, id);
      await store.write((session) => rows.deleteUser(session, id));
    },

    async changePassword(caller, id, current, next) {
      if (caller.id !== id) throw new Fault("permission_denied", "Insufficient permissions");
      const user = await get(caller.orgId, id);
      rules.requirePassword("new_password", next);
      if (!(await verifyPassword(current, user.passwordHash)))
        throw new Fault("permission_denied", "current_password: is not the current password", {
          field: "current_password",
        });
      const passwordHash = await hashPassword(next);
      await store.write((session) => rows.changePassword(session, { id, passwordHash, at: clock.now() }));
    },

    find: (id) => rows.userById(store, id),
    findByEmail: (email) => rows.userByEmail(store, email),
    noteLogin: (id) => store.write(async (session) => void (await rows.noteLogin(session, id, clock.now()))),
  };
}
