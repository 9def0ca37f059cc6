/** A permission: roles grant it, operations need it. */
export type Action = keyof typeof actions;

/** Built-in tenant roles, strongest first; admin holds every tenant action. */
const writers = ["admin", "developer"] as const;
const readers = ["admin", "developer", "viewer"] as const;
const admins = ["admin"] as const;

const platformReaders = ["platform_admin", "platform_operator", "platform_viewer"] as const;
const platformOperators = ["platform_admin", "platform_operator"] as const;
const platformAdmins = ["platform_admin"] as const;

/** Every action with the built-in roles that grant it. */
export const actions = {
  "functions:register": writers,
  "functions:invoke": writers,
  "functions:list": readers,
  "functions:read": readers,
  "runs:read": readers,
  "runs:cancel": writers,
  "runs:delete": writers,
  "runs:redact": admins,
  "runs:signal": writers,
  "events:emit": writers,
  "events:subscribe": readers,
  "events:redact": admins,
  "usage:read": readers,
  "attributes:read": readers,
  "attributes:manage": writers,
  "outbox:manage": writers,
  "streams:read": readers,
  "entities:read": readers,
  "entities:append": writers,
  "projections:read": readers,
  "projections:manage": writers,
  "schemas:read": readers,
  "schemas:manage": writers,
  "secrets:read": readers,
  "secrets:manage": writers,
  "webhooks:read": readers,
  "webhooks:manage": writers,
  "alerts:read": readers,
  "alerts:manage": writers,
  "users:read": admins,
  "users:manage": admins,
  "apikeys:read": admins,
  "apikeys:manage": admins,
  "orgs:read": admins,
  "orgs:manage": admins,
  "agent:tools:register": writers,
  "agent:tools:invoke": writers,
  "agent:tools:unregister": writers,
  "agent:tools:read": readers,
  "org:export": admins,
  "cluster:rotate-token": admins,
  // A tenant's admin holds it, and is told at `POST /api/v1/orgs` that only a platform credential may use it.
  "platform:tenants:manage": ["admin", ...platformOperators],
  "platform:tenants:read": platformReaders,
  "platform:users:read": platformReaders,
  "platform:users:manage": platformAdmins,
  "platform:keys:read": platformReaders,
  "platform:keys:manage": platformAdmins,
  "platform:roles:read": platformReaders,
  "platform:roles:manage": platformAdmins,
  "platform:policies:read": platformReaders,
  "platform:policies:manage": platformAdmins,
  "platform:audit:read": platformReaders,
  "platform:impersonate:read": platformReaders,
  "platform:impersonate": platformOperators,
} as const satisfies Record<string, readonly BuiltInRole[]>;

export const builtInRoles = [...readers, ...platformReaders] as const;

export type BuiltInRole = (typeof readers)[number] | (typeof platformReaders)[number];

/** Id of a built-in role; keys carry ids. */
export const roleIdOf = (role: BuiltInRole): string => `role_${role}`;

const grants = new Map<string, ReadonlySet<string>>(
  builtInRoles.flatMap((role) => {
    const held = new Set(
      Object.entries(actions).flatMap(([action, roles]) =>
        (roles as readonly BuiltInRole[]).includes(role) ? [action] : [],
      ),
    );
    // Keys name roles by id, users by name.
    return [
      [role, held],
      [roleIdOf(role), held],
    ] as const;
  }),
);

/** Actions of a tenant that a platform credential may take in its org, by the platform's actions it holds. */
export function impersonated(held: readonly Action[]): Action[] {
  const reads = held.includes("platform:impersonate:read");
  const writes = held.includes("platform:impersonate");
  return knownActions.filter(
    (action) => !action.startsWith("platform:") && (/:(read|list|subscribe)$/.test(action) ? reads : writes),
  );
}

export const knownActions = Object.keys(actions) as Action[];

export const isAction = (text: string): text is Action => Object.hasOwn(actions, text);

/** The built-in roles that grant the action, strongest first. */
export const rolesGranting = (action: string): readonly BuiltInRole[] =>
  isAction(action) ? actions[action] : [];

/**
 * Whether one of the roles, by name or by id, grants the action. Roles that are not built in grant nothing
 * here.
 */
export function roleGrants(roles: readonly string[], action: Action): boolean {
  for (const role of roles) if (grants.get(role)?.has(action)) return true;
  return false;
}
