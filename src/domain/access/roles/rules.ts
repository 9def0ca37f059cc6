import { type BuiltInRole, builtInRoles, roleIdOf } from "../../../gate/actions.ts";
import { platformOrgId } from "../../../gate/gate.ts";
import type { Caller } from "../../../kit/caller.ts";
import { Fault, invalid, missing } from "../../../kit/fault.ts";
import type { Call } from "../../../kit/operation.ts";
import type { RoleRow } from "./rows.ts";

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

/** The routes and actions of operations that a tenant has for its own, and the platform for its own. */
export interface ScopedRoutes {
  name: string;
  path: string;
  read: string;
  manage: string;
  scopeOf: (call: Call) => RoleScope;
}

export const roleNameCharsMax = 100;

const isPlatform = (role: string) => role.startsWith("platform_");

export const tenantScope = ({ caller }: Pick<Call, "caller">): RoleScope => ({
  orgId: caller.orgId,
  kind: "tenant",
});

export const platformScope = (by?: Pick<Caller, "kind" | "id">): RoleScope => ({
  orgId: platformOrgId,
  kind: "platform",
  ...(by && { by }),
});

/** An org named in the query or body must be the caller's; another one looks like none. */
export function namedScope(scope: RoleScope, orgId: string | undefined): RoleScope {
  if (orgId !== undefined && orgId !== scope.orgId) throw missing("org", orgId);
  return scope;
}

export const builtInOf = (scope: RoleScope): BuiltInRole[] =>
  builtInRoles.filter((role) => isPlatform(role) === (scope.kind === "platform"));

export const builtIn = (scope: RoleScope, id: string): BuiltInRole | undefined =>
  builtInOf(scope).find((role) => roleIdOf(role) === id);

export const ownRole = (row: RoleRow, policyCount: number): Role => ({
  id: row.id,
  orgId: row.orgId,
  name: row.name,
  isDefault: false,
  base: row.base || undefined,
  createdAt: row.createdAt,
  policyCount,
});

export const builtInRole = (
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

/** The built-in role whose grants a role has; empty for none. */
export function readBase(scope: RoleScope, base: string | undefined): string {
  if (!base) return "";
  const all = builtInOf(scope);
  const word = base.replace(/^role_/, "");
  if (!all.some((role) => role === word)) throw invalid("base", `must be one of ${all.join(", ")}`);
  return word;
}

export function readName(name: string): string {
  const text = name.trim();
  if (text === "") throw invalid("name", "must not be empty");
  if (text.length > roleNameCharsMax) throw invalid("name", `at most ${roleNameCharsMax} characters`);
  if (/\p{Cc}/u.test(text) || !text.isWellFormed())
    throw invalid("name", "must not contain control characters");
  return text;
}

export const nameTaken = (name: string) =>
  new Fault("already_exists", `a role named "${name}" exists`, { field: "name" });

export function requireFree(name: string): void {
  if (builtInRoles.some((role) => role === name)) throw nameTaken(name);
  // Keys name roles by id, users by name: a name must not look like an id.
  if (/^p?role_/.test(name)) throw invalid("name", "must not begin with role_ or prole_");
}
