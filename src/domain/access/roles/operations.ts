import { Type } from "@sinclair/typebox";
import { recordJson, stated } from "../../../kit/cases.ts";
import { described, maybe } from "../../../kit/described.ts";
import { listedById, type Operation, unary } from "../../../kit/operation.ts";
import { namedScope, platformScope, type ScopedRoutes, tenantScope } from "./rules.ts";
import type { Role, Roles } from "./service.ts";

const text = Type.String();
const shortText = Type.String({ maxLength: 1_000 });
const byId = { id: Type.String({ minLength: 1, description: "Id of the role (`role_…`)." }) };

const RoleShape = Type.Object({
  id: described(text, "Id of the role (`role_…`)."),
  org_id: text,
  name: described(text, "Name of the role, such as `Guide`."),
  is_default: Type.Boolean(),
  /** The built-in role whose grants it has. */
  base: Type.Optional(text),
  created_at: Type.String({ format: "date-time" }),
});
export const RoleRow = Type.Composite([
  RoleShape,
  Type.Object({ policy_count: Type.Integer(), api_key_count: Type.Integer() }),
]);

const roleJson = (role: Role) => recordJson(role, "id orgId name isDefault base createdAt");

export interface RolesSurface {
  roles: Roles;
  /** How many keys carry each role of the org. */
  keyCounts: (orgId: string) => Promise<ReadonlyMap<string, number>>;
}

export const tenantRoles: ScopedRoutes = {
  name: "roles",
  path: "/api/v1/roles",
  read: "orgs:read",
  manage: "orgs:manage",
  scopeOf: tenantScope,
};

export const platformRoles: ScopedRoutes = {
  name: "platform.roles",
  path: "/api/v1/platform/roles",
  read: "platform:roles:read",
  manage: "platform:roles:manage",
  scopeOf: ({ caller }) => platformScope(caller),
};

export function rolesOperations({ roles, keyCounts }: RolesSurface, scoped: ScopedRoutes): Operation[] {
  const { name, path, read, manage, scopeOf } = scoped;
  const update = {
    action: manage,
    scope: "none" as const,
    output: RoleShape,
  };
  return [
    unary({
      name: `${name}.list`,
      action: read,
      scope: "none",
      reads: true,
      summary: "Built-in roles and the org's own.",
      input: Type.Object({ org_id: Type.Optional(text) }),
      output: Type.Array(RoleRow),
      lists: listedById(),
      rest: {
        route: `GET ${path}`,
        encode: (body: object[]) => ({ status: 200, body }),
      },
      async handle({ org_id }, call) {
        const scope = namedScope(scopeOf(call), org_id);
        const [list, counts] = await Promise.all([roles.list(scope), keyCounts(scope.orgId)]);
        return list.map((role) => ({
          ...roleJson(role),
          policy_count: role.policyCount,
          api_key_count: counts.get(role.id) ?? 0,
        }));
      },
    }),
    unary({
      name: `${name}.get`,
      action: read,
      scope: "none",
      reads: true,
      summary: "One role.",
      input: Type.Object(byId),
      output: RoleShape,
      rest: { route: `GET ${path}/{id}`, json: roleJson },
      handle: ({ id }, call) => roles.get(scopeOf(call), id),
    }),
    unary({
      name: `${name}.create`,
      action: manage,
      scope: "none",
      summary:
        "A role of the org's own: with a base it grants what that built-in role grants, less what its policies deny; without, nothing.",
      input: Type.Object({
        name: described(shortText, "Name of the role, such as `Guide`."),
        org_id: Type.Optional(text),
        base: Type.Optional(shortText),
        policy_ids: Type.Optional(Type.Array(text, { maxItems: 100 })),
      }),
      output: RoleShape,
      rest: { route: `POST ${path}`, status: 201, json: roleJson },
      handle: ({ name: roleName, org_id, base, policy_ids }, call) =>
        roles.create(namedScope(scopeOf(call), org_id), {
          name: roleName,
          ...stated({ base, policyIds: policy_ids }),
        }),
    }),
    unary({
      ...update,
      name: `${name}.update`,
      summary: "Renames a role of the org's own, or gives it another base; an empty one takes its base away.",
      input: Type.Object({
        ...byId,
        name: Type.Optional(described(shortText, "Name of the role, such as `Guide`.")),
        base: Type.Optional(shortText),
      }),
      rest: ["PATCH", "PUT"].map((verb) => ({
        route: `${verb} ${path}/{id}`,
        json: roleJson,
      })),
      handle: ({ id, name: roleName, base }, call) =>
        roles.update(scopeOf(call), id, {
          ...stated({ name: roleName, base }),
        }),
    }),
    unary({
      name: `${name}.delete`,
      action: manage,
      scope: "none",
      summary:
        "Deletes a role of the org's own; 409 while users or keys carry it, unless `force` takes it off them all.",
      input: Type.Object({
        ...byId,
        force: maybe.flag("Whether the role is taken off its users and keys first."),
      }),
      rest: `DELETE ${path}/{id}`,
      handle: ({ id, force = false }, call) => roles.remove(scopeOf(call), id, { force }),
    }),
  ];
}
