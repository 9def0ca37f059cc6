import { invalid } from "../../../kit/fault.ts";
import type { Session, StoreReader } from "../../../store/store.ts";
import type { CarriedRole, StoredUser, UserRow } from "./rows.ts";
import * as rows from "./rows.ts";

/** All roles that users of the org may have. */
export type RolesOf = (reader: StoreReader, orgId: string) => Promise<readonly CarriedRole[]>;

const carriedBy = ({ roles, roleIds }: UserRow): CarriedRole[] =>
  roleIds.map((id, at) => ({ id, name: roles[at] ?? id }));

/**
 * The roles that users carry. Rows that a node of the previous release wrote name a role only; others have
 * its id too.
 */
export class CarriedRoles {
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
