import { roleIdOf } from "../../../gate/actions.ts";
import { Fault, invalid, missing } from "../../../kit/fault.ts";
import { type Basics, type Session, type Store, StoreError, type StoreReader } from "../../../store/store.ts";
import { defaultOrgId } from "../tenancy/rules.ts";
import * as rows from "./rows.ts";
import type { Role, RoleScope } from "./rules.ts";
import * as rules from "./rules.ts";

/** No table has the built-in roles: every read joins them with the org's own. */
function openRoleReads(store: Store) {
  let installedAt: number | undefined;
  /** The default org is made at the first start and never deleted. */
  async function installationTime(): Promise<number> {
    installedAt ??= await rows.orgCreatedAt(store, defaultOrgId);
    return installedAt ?? 0;
  }

  async function get(scope: RoleScope, id: string): Promise<Role> {
    const [row, counts] = await Promise.all([
      rows.roleById(store, scope.orgId, id),
      rows.policyCounts(store, scope.orgId),
    ]);
    const known = rules.builtIn(scope, id);
    if (known)
      return rules.builtInRole(scope, known, {
        policyCount: counts.get(id) ?? 0,
        createdAt: await installationTime(),
      });
    if (!row) throw missing("role", id);
    return rules.ownRole(row, counts.get(id) ?? 0);
  }

  const known = async (reader: StoreReader, scope: RoleScope) => [
    ...rules.builtInOf(scope).map((role) => ({ id: roleIdOf(role), name: role as string })),
    ...(await rows.rolesOf(reader, scope.orgId)),
  ];

  return {
    get,
    /**
     * Every role of the scope. Pass the session, which holds the org, when the answer decides what is
     * written.
     */
    known,

    async list(scope: RoleScope): Promise<Role[]> {
      const [own, counts, createdAt] = await Promise.all([
        rows.rolesOf(store, scope.orgId),
        rows.policyCounts(store, scope.orgId),
        installationTime(),
      ]);
      return [
        ...rules
          .builtInOf(scope)
          .map((role) =>
            rules.builtInRole(scope, role, { policyCount: counts.get(roleIdOf(role)) ?? 0, createdAt }),
          ),
        ...own.map((row) => rules.ownRole(row, counts.get(row.id) ?? 0)),
      ];
    },

    /** Ids of roles that are named by id or name. Throws `invalid(field)`; the session holds the org. */
    async idsOf(
      session: Session,
      scope: RoleScope,
      field: string,
      words: readonly string[],
    ): Promise<string[]> {
      const all = await known(session, scope);
      const ids = words.map((word) => {
        const role = all.find(({ id }) => id === word) ?? all.find(({ name }) => name === word);
        if (!role) throw invalid(field, `role ${word.slice(0, 80)} not found`);
        return role.id;
      });
      return [...new Set(ids)];
    },
  };
}

/** Roles of an org. */
const rolesMax = 200;

export type { Role, RoleScope } from "./rules.ts";

/** What a change did to a role. */
export interface RoleChange {
  change: "created" | "updated" | "deleted" | "policy_assigned" | "policy_unassigned";
  role_id: string;
  name?: string;
  base?: string;
  policy_id?: string;
  /** How many users and keys it was taken from. */
  taken_from?: number;
}

export interface NewRole {
  name: string;
  /**
   * A built-in role of the scope, whose grants it has; none, or an empty one: it grants nothing by itself.
   */
  base?: string;
  policyIds?: readonly string[];
}

export type Roles = ReturnType<typeof openRoles>;

/** Users or keys as carriers of roles; every call is made under the lock of the org. */
export interface RoleCarriers {
  countWithRole(session: Session, orgId: string, roleId: string): Promise<number>;
  /** Takes the role from all carriers. */
  revokeRole(session: Session, orgId: string, roleId: string): Promise<void>;
  /** For carriers that also store the name. */
  renameRole?(session: Session, orgId: string, role: { id: string; name: string }): Promise<void>;
}

export interface RolesDeps extends Basics<"store" | "clock" | "ids"> {
  /** By the noun that messages use: `user`, `key`. */
  carriers: (scope: RoleScope) => Record<string, RoleCarriers>;
  /** Drops this node's cached snapshot of the org. */
  changed: (orgId: string) => void;
  /** Called for each change, in its transaction. */
  record?: (session: Session, scope: RoleScope, change: RoleChange) => Promise<void>;
}

export function openRoles({ store, clock, ids, carriers, changed, record }: RolesDeps) {
  const reads = openRoleReads(store);

  async function raiseAccess(session: Session, orgId: string): Promise<void> {
    if (!(await rows.raiseAccess(session, orgId))) throw missing("org", orgId);
  }

  async function change(scope: RoleScope, work: (session: Session) => Promise<RoleChange>): Promise<void> {
    await store.write(async (session) => {
      await raiseAccess(session, scope.orgId);
      const done = await work(session);
      await record?.(session, scope, done);
    });
    changed(scope.orgId);
  }

  return {
    ...reads,
    /**
     * Locks the org's row and raises its access version. Every change of roles and policies begins with it.
     */
    raiseAccess,

    async create(scope: RoleScope, wanted: NewRole): Promise<Role> {
      const name = rules.readName(wanted.name);
      rules.requireFree(name);
      const at = clock.now();
      const row: rows.RoleRow = {
        id: ids.next(scope.kind === "platform" ? "prole" : "role"),
        orgId: scope.orgId,
        name,
        base: rules.readBase(scope, wanted.base),
        createdAt: at,
        updatedAt: at,
      };
      const policyIds = [...new Set(wanted.policyIds ?? [])];
      await change(scope, async (session) => {
        await insert(session, row, policyIds);
        return { change: "created", role_id: row.id, name, base: row.base };
      });
      return rules.ownRole(row, policyIds.length);
    },

    async update(scope: RoleScope, id: string, wanted: { name?: string; base?: string }): Promise<Role> {
      if (rules.builtIn(scope, id)) throw new Fault("invalid_argument", "cannot update built-in role");
      try {
        await change(scope, async (session) => {
          const row = await rows.roleById(session, scope.orgId, id);
          if (!row) throw missing("role", id);
          const name = wanted.name === undefined ? row.name : rules.readName(wanted.name);
          if (name !== row.name) rules.requireFree(name);
          const base = wanted.base === undefined ? row.base : rules.readBase(scope, wanted.base);
          await rows.updateRole(session, { ...row, name, base, updatedAt: clock.now() });
          if (name !== row.name)
            for (const people of Object.values(carriers(scope)))
              await people.renameRole?.(session, scope.orgId, { id, name });
          return { change: "updated", role_id: id, name, base };
        });
      } catch (error) {
        if (error instanceof StoreError && error.trouble === "unique")
          throw rules.nameTaken(wanted.name ?? "");
        throw error;
      }
      return reads.get(scope, id);
    },

    /**
     * `failed_precondition` with the count while users or keys carry the role, unless `force` takes it from
     * them.
     */
    async remove(scope: RoleScope, id: string, { force = false }: { force?: boolean } = {}) {
      if (rules.builtIn(scope, id)) throw new Fault("invalid_argument", "cannot delete built-in role");
      await change(scope, async (session) => {
        const row = await rows.roleById(session, scope.orgId, id);
        if (!row) throw missing("role", id);
        const taken_from = await takeFromAll(session, carriers(scope), { orgId: scope.orgId, id, force });
        await rows.deleteRole(session, scope.orgId, id);
        return { change: "deleted", role_id: id, name: row.name, ...(taken_from > 0 && { taken_from }) };
      });
    },

    async assign(scope: RoleScope, roleId: string, policyId: string) {
      await change(scope, async (session) => {
        if (!rules.builtIn(scope, roleId) && !(await rows.roleById(session, scope.orgId, roleId)))
          throw missing("role", roleId);
        if (!(await rows.policyExists(session, scope.orgId, policyId))) throw missing("policy", policyId);
        await rows.assignPolicy(session, { orgId: scope.orgId, roleId, policyId, at: clock.now() });
        return { change: "policy_assigned", role_id: roleId, policy_id: policyId };
      });
    },

    async unassign(scope: RoleScope, roleId: string, policyId: string) {
      await change(scope, async (session) => {
        if ((await rows.unassignPolicy(session, { orgId: scope.orgId, roleId, policyId })) === 0)
          throw missing("policy", policyId);
        return { change: "policy_unassigned", role_id: roleId, policy_id: policyId };
      });
    },
  };
}

/**
 * A new role with its policies; throws when its name is taken, a policy is missing or the org has too many
 * roles.
 */
async function insert(session: Session, row: rows.RoleRow, policyIds: readonly string[]): Promise<void> {
  const { orgId, id: roleId, createdAt: at } = row;
  if ((await rows.rolesOf(session, orgId)).length >= rolesMax)
    throw new Fault("resource_exhausted", `at most ${rolesMax} roles`);
  for (const policyId of policyIds)
    if (!(await rows.policyExists(session, orgId, policyId)))
      throw invalid("policy_ids", `policy ${policyId.slice(0, 80)} not found`);
  if ((await rows.insertRole(session, row)) === 0) throw rules.nameTaken(row.name);
  for (const policyId of policyIds) await rows.assignPolicy(session, { orgId, roleId, policyId, at });
}

const plural = (count: number, name: string) => `${count} ${name}${count === 1 ? "" : "s"}`;

/**
 * Takes a role from its carriers, and answers how many there were. Without `force` it throws when there is
 * any.
 */
async function takeFromAll(
  session: Session,
  carriers: Record<string, RoleCarriers>,
  { orgId, id, force }: { orgId: string; id: string; force: boolean },
): Promise<number> {
  const carrying: string[] = [];
  let count = 0;
  for (const [name, people] of Object.entries(carriers)) {
    const found = await people.countWithRole(session, orgId, id);
    if (found === 0) continue;
    count += found;
    carrying.push(plural(found, name));
    if (force) await people.revokeRole(session, orgId, id);
  }
  if (count > 0 && !force)
    throw new Fault(
      "failed_precondition",
      `the role is carried by ${carrying.join(" and ")}: take it off them, or delete it with force=true`,
    );
  return count;
}
