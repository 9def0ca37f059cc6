import type { Caller } from "../../../kit/caller.ts";
import type { Call } from "../../../kit/operation.ts";

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
