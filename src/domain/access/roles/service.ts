import { type BuiltInRole, builtInRoles, roleIdOf } from "../../../access/actions.ts";
import { platformOrgId } from "../../../access/gate.ts";
import type { Clock } from "../../../kit/clock.ts";
import { Fault, invalid, missing } from "../../../kit/fault.ts";
import type { Ids } from "../../../kit/ids.ts";
import { roleNameCharsMax, rolesMax } from "../../../kit/limits.ts";
import type { Caller } from "../../../kit/operation.ts";
import { type Session, type Store, StoreError } from "../../../store/store.ts";
import { defaultOrgId } from "../tenancy/rules.ts";
import * as rows from "./rows.ts";

/** A role as callers see it, built in or their own. */
export interface Role {
  id: string;
  orgId: string;
  name: string;
  isDefault: boolean;
  /** Undefined for a role that grants nothing by itself. */
  base: string | undefined;
  /** Built-in roles are as old as the installation. */
  createdAt: number;
  policyCount: number;
}

/** Tenants' roles and the platform's are two sets of the same kind. */
export type RoleScope = {
  orgId: string;
  kind: "tenant" | "platform";
  /** Who changes something, for the audit. */
  by?: Pick<Caller, "kind" | "id">;
};

export const platformScope = (by?: Pick<Caller, "kind" | "id">): RoleScope => ({
  orgId: platformOrgId,
  kind: "platform",
  ...(by && { by }),
});

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
  /** A built-in role of the scope, whose grants it has; none, or an empty one: it grants nothing by itself. */
  base?: string;
  policyIds?: readonly string[];
}

export interface Roles {
  list(scope: RoleScope): Promise<Role[]>;
  get(scope: RoleScope, id: string): Promise<Role>;
  create(scope: RoleScope, wanted: NewRole): Promise<Role>;
  update(scope: RoleScope, id: string, change: { name?: string; base?: string }): Promise<Role>;
  /** `failed_precondition` with the count while anybody carries it, unless `force` takes it off them all. */
  remove(scope: RoleScope, id: string, how?: { force?: boolean }): Promise<void>;
  assign(scope: RoleScope, roleId: string, policyId: string): Promise<void>;
  unassign(scope: RoleScope, roleId: string, policyId: string): Promise<void>;
  /** Begins every change of an org's roles and policies: locks the org's row and raises its version. */
  raiseAccess(session: Session, orgId: string): Promise<void>;
  /** Every role that the scope has; by the session, under the lock of the org, when it decides what is written. */
  known(
    reader: Pick<Store, "one" | "all">,
    scope: RoleScope,
  ): Promise<readonly { id: string; name: string }[]>;
  /** Throws `invalid(field)` unless the scope has all of these roles; the session has the org to its end. */
  require(session: Session, scope: RoleScope, field: string, roleIds: readonly string[]): Promise<void>;
}

/** Those who carry roles; all is asked under the lock of the org. */
export interface RoleCarriers {
  countWithRole(session: Session, orgId: string, roleId: string): Promise<number>;
  /** Takes it off all who carry it. */
  revokeRole(session: Session, orgId: string, roleId: string): Promise<void>;
  /** For those who also keep its name. */
  renameRole?(session: Session, orgId: string, role: { id: string; name: string }): Promise<void>;
}

export interface RolesDeps {
  store: Store;
  clock: Clock;
  ids: Ids;
  /** By what a message calls one of them. */
  carriers: (scope: RoleScope) => Record<string, RoleCarriers>;
  /** This node forgets what it believed of the org. */
  changed: (orgId: string) => void;
  /** Told of each change in its own transaction. */
  record?: (session: Session, scope: RoleScope, change: RoleChange) => Promise<void>;
}

const isPlatform = (role: string) => role.startsWith("platform_");

const builtInOf = (scope: RoleScope): BuiltInRole[] =>
  builtInRoles.filter((role) => isPlatform(role) === (scope.kind === "platform"));

const plural = (count: number, name: string) => `${count} ${name}${count === 1 ? "" : "s"}`;

export function openRoles({ store, clock, ids, carriers, changed, record }: RolesDeps): Roles {
  let installedAt: number | undefined;
  /** The default org is as old as the installation, and stays. */
  async function installationTime(): Promise<number> {
    installedAt ??= await rows.orgCreatedAt(store, defaultOrgId);
    return installedAt ?? 0;
  }

  const builtIn = (scope: RoleScope, id: string): BuiltInRole | undefined =>
    builtInOf(scope).find((role) => roleIdOf(role) === id);

  const ownRole = (row: rows.RoleRow, policyCount: number): Role => ({
    id: row.id,
    orgId: row.orgId,
    name: row.name,
    isDefault: false,
    base: row.base || undefined,
    createdAt: row.createdAt,
    policyCount,
  });

  const builtInRole = (
    scope: RoleScope,
    role: BuiltInRole,
    { policyCount, createdAt }: { policyCount: number; createdAt: number },
  ): Role => ({
    id: roleIdOf(role),
    orgId: scope.orgId,
    name: role,
    isDefault: true,
    base: role,
    createdAt,
    policyCount,
  });

  async function find(scope: RoleScope, id: string): Promise<Role> {
    const [row, counts] = await Promise.all([
      rows.roleById(store, scope.orgId, id),
      rows.policyCounts(store, scope.orgId),
    ]);
    const known = builtIn(scope, id);
    if (known)
      return builtInRole(scope, known, {
        policyCount: counts.get(id) ?? 0,
        createdAt: await installationTime(),
      });
    if (!row) throw missing("role", id);
    return ownRole(row, counts.get(id) ?? 0);
  }

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

  /** Empty for none. */
  function readBase(scope: RoleScope, base: string | undefined): string {
    if (!base) return "";
    const all = builtInOf(scope);
    const word = base.replace(/^role_/, "");
    if (!all.some((role) => role === word)) throw invalid("base", `must be one of ${all.join(", ")}`);
    return word;
  }

  function readName(name: string): string {
    const text = name.trim();
    if (text === "") throw invalid("name", "must not be empty");
    if (text.length > roleNameCharsMax) throw invalid("name", `at most ${roleNameCharsMax} characters`);
    if (/\p{Cc}/u.test(text) || !text.isWellFormed())
      throw invalid("name", "must not contain control characters");
    return text;
  }

  const nameTaken = (name: string) =>
    new Fault("already_exists", `a role named "${name}" exists`, { field: "name" });

  function requireFree(name: string): void {
    if (builtInRoles.some((role) => role === name)) throw nameTaken(name);
    // Keys name roles by id, users by name: a name must not look like an id.
    if (/^p?role_/.test(name)) throw invalid("name", "must not begin with role_ or prole_");
  }

  const known: Roles["known"] = async (reader, scope) => [
    ...builtInOf(scope).map((role) => ({ id: roleIdOf(role), name: role as string })),
    ...(await rows.rolesOf(reader, scope.orgId)),
  ];

  return {
    async list(scope) {
      const [own, counts, createdAt] = await Promise.all([
        rows.rolesOf(store, scope.orgId),
        rows.policyCounts(store, scope.orgId),
        installationTime(),
      ]);
      return [
        ...builtInOf(scope).map((role) =>
          builtInRole(scope, role, { policyCount: counts.get(roleIdOf(role)) ?? 0, createdAt }),
        ),
        ...own.map((row) => ownRole(row, counts.get(row.id) ?? 0)),
      ];
    },

    get: find,
    raiseAccess,

    async create(scope, wanted) {
      const name = readName(wanted.name);
      requireFree(name);
      const at = clock.now();
      const row: rows.RoleRow = {
        id: ids.next(scope.kind === "platform" ? "prole" : "role"),
        orgId: scope.orgId,
        name,
        base: readBase(scope, wanted.base),
        createdAt: at,
        updatedAt: at,
      };
      const policyIds = [...new Set(wanted.policyIds ?? [])];
      await change(scope, async (session) => {
        if ((await rows.rolesOf(session, scope.orgId)).length >= rolesMax)
          throw new Fault("resource_exhausted", `at most ${rolesMax} roles`);
        for (const policyId of policyIds)
          if (!(await rows.policyExists(session, scope.orgId, policyId)))
            throw invalid("policy_ids", `policy ${policyId.slice(0, 80)} not found`);
        if ((await rows.insertRole(session, row)) === 0) throw nameTaken(name);
        for (const policyId of policyIds)
          await rows.assignPolicy(session, { orgId: scope.orgId, roleId: row.id, policyId, at });
        return { change: "created", role_id: row.id, name, base: row.base };
      });
      return ownRole(row, policyIds.length);
    },

    async update(scope, id, wanted) {
      if (builtIn(scope, id)) throw new Fault("invalid_argument", "cannot update built-in role");
      try {
        await change(scope, async (session) => {
          const row = await rows.roleById(session, scope.orgId, id);
          if (!row) throw missing("role", id);
          const name = wanted.name === undefined ? row.name : readName(wanted.name);
          if (name !== row.name) requireFree(name);
          const base = wanted.base === undefined ? row.base : readBase(scope, wanted.base);
          await rows.updateRole(session, { ...row, name, base, updatedAt: clock.now() });
          if (name !== row.name)
            for (const people of Object.values(carriers(scope)))
              await people.renameRole?.(session, scope.orgId, { id, name });
          return { change: "updated", role_id: id, name, base };
        });
      } catch (error) {
        if (error instanceof StoreError && error.trouble === "unique") throw nameTaken(wanted.name ?? "");
        throw error;
      }
      return find(scope, id);
    },

    async remove(scope, id, { force = false } = {}) {
      if (builtIn(scope, id)) throw new Fault("invalid_argument", "cannot delete built-in role");
      await change(scope, async (session) => {
        const row = await rows.roleById(session, scope.orgId, id);
        if (!row) throw missing("role", id);
        const carrying: string[] = [];
        let taken_from = 0;
        for (const [name, people] of Object.entries(carriers(scope))) {
          const found = await people.countWithRole(session, scope.orgId, id);
          if (found === 0) continue;
          taken_from += found;
          carrying.push(plural(found, name));
          if (force) await people.revokeRole(session, scope.orgId, id);
        }
        if (taken_from > 0 && !force)
          throw new Fault(
            "failed_precondition",
            `the role is carried by ${carrying.join(" and ")}: take it off them, or delete it with force=true`,
          );
        await rows.deleteRole(session, scope.orgId, id);
        return { change: "deleted", role_id: id, name: row.name, ...(taken_from > 0 && { taken_from }) };
      });
    },

    async assign(scope, roleId, policyId) {
      await change(scope, async (session) => {
        if (!builtIn(scope, roleId) && !(await rows.roleById(session, scope.orgId, roleId)))
          throw missing("role", roleId);
        if (!(await rows.policyExists(session, scope.orgId, policyId))) throw missing("policy", policyId);
        await rows.assignPolicy(session, { orgId: scope.orgId, roleId, policyId, at: clock.now() });
        return { change: "policy_assigned", role_id: roleId, policy_id: policyId };
      });
    },

    async unassign(scope, roleId, policyId) {
      await change(scope, async (session) => {
        if ((await rows.unassignPolicy(session, { orgId: scope.orgId, roleId, policyId })) === 0)
          throw missing("policy", policyId);
        return { change: "policy_unassigned", role_id: roleId, policy_id: policyId };
      });
    },

    known,

    async require(session, scope, field, roleIds) {
      const all = new Set((await known(session, scope)).map(({ id }) => id));
      for (const id of roleIds) if (!all.has(id)) throw invalid(field, `role ${id.slice(0, 80)} not found`);
    },
  };
}
