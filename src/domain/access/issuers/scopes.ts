import { platformOrgId } from "../../../gate/gate.ts";
import type { RoleScope, ScopedRoutes } from "../roles/role.ts";
import { platformScope, tenantScope } from "../roles/rules.ts";

/** Whose roles an issuer gives. */
export const scopeOfIssuer = ({ orgId }: { orgId: string }): RoleScope =>
  orgId === platformOrgId ? platformScope() : { orgId, kind: "tenant" };

export const tenantIssuers: ScopedRoutes = {
  name: "issuers",
  path: "/api/v1/issuers",
  read: "users:read",
  manage: "users:manage",
  scopeOf: tenantScope,
};

export const platformIssuers: ScopedRoutes = {
  name: "platform.issuers",
  path: "/api/v1/platform/issuers",
  read: "platform:users:read",
  manage: "platform:users:manage",
  scopeOf: ({ caller }) => platformScope(caller),
};
