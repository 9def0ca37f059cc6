import { Type } from "@sinclair/typebox";
import { recordJson, stated } from "../../../kit/cases.ts";
import { rfc3339 } from "../../../kit/clock.ts";
import { described, maybe, shape } from "../../../kit/described.ts";
import { listedById, type Operation, unary } from "../../../kit/operation.ts";
import type { PlatformAudit, PlatformEvent } from "./audit.ts";
import { platformEventTypes, readBound } from "./rules.ts";
import type { PlatformOrg, PlatformOrgs, PlatformUser, PlatformUsers } from "./service.ts";

const text = Type.String({ maxLength: 2_000 });
const given = Type.String({ minLength: 1, maxLength: 2_000 });
const instant = Type.String({ format: "date-time" });
const byId = {
  id: Type.String({ minLength: 1, description: "Id of the platform user (`puser_…`) or tenant (`org_…`)." }),
};
const roleIds = Type.Array(text, { maxItems: 50 });

const UserShape = Type.Object({
  id: described(text, "Id of the platform user (`puser_…`)."),
  email: text,
  name: described(text, "Name of the user, for people, such as `Ada`."),
  is_active: Type.Boolean(),
  break_glass: Type.Boolean(),
  role_ids: Type.Array(text),
  created_at: instant,
  updated_at: instant,
  last_login_at: Type.Optional(instant),
});

const userJson = (user: PlatformUser) => ({
  ...recordJson(user, "id email name isActive breakGlass"),
  role_ids: user.roles,
  ...recordJson(user, "createdAt updatedAt lastLoginAt"),
});

const path = "/api/v1/platform/users";
const read = { action: "platform:users:read", scope: "none" as const, reads: true };
const manage = { action: "platform:users:manage", scope: "none" as const };

/** Bootstrap, and users of the platform. */
export const platformUsersOperations = (users: PlatformUsers): Operation[] => [
  unary({
    name: "platform.bootstrap",
    action: "orgs:manage",
    scope: "none",
    summary: "The first platform user, a platform_admin; for an admin key of the default org, once.",
    input: Type.Object({
      email: given,
      password: given,
      name: described(given, "Name of the user, for people, such as `Ada`."),
    }),
    output: Type.Object({
      id: described(text, "Id of the platform user (`puser_…`)."),
      email: text,
      name: described(text, "Name of the user, for people, such as `Ada`."),
    }),
    rest: {
      route: "POST /api/v1/platform/bootstrap",
      status: 201,
      json: ({ id, email, name }: PlatformUser) => ({ id, email, name }),
    },
    handle: (input, call) => users.bootstrap(call.caller, input),
  }),
  unary({
    ...read,
    name: "platform.users.list",
    summary: "Users of the platform.",
    input: Type.Object({}),
    output: Type.Array(UserShape),
    rest: `GET ${path}`,
    lists: listedById(),
    handle: async () => (await users.list()).map(userJson),
  }),
  unary({
    ...read,
    name: "platform.users.get",
    summary: "One user of the platform.",
    input: Type.Object(byId),
    output: UserShape,
    rest: { route: `GET ${path}/{id}`, json: userJson },
    handle: ({ id }) => users.get(id),
  }),
  unary({
    ...manage,
    name: "platform.users.create",
    summary: "A user of the platform, who logs in with a password and may do what the roles say.",
    input: Type.Object({
      email: given,
      password: given,
      name: described(given, "Name of the user, for people: at most 200 characters."),
      role_ids: Type.Optional(roleIds),
    }),
    output: UserShape,
    rest: { route: `POST ${path}`, status: 201, json: userJson },
    handle: ({ role_ids, ...input }, call) =>
      users.create(call.caller, { ...input, ...(role_ids !== undefined && { roleIds: role_ids }) }),
  }),
  unary({
    ...manage,
    name: "platform.users.update",
    summary: "Changes a user of the platform; another password or inactivity ends every session of theirs.",
    input: Type.Object({
      ...byId,
      name: Type.Optional(described(given, "Name of the user, for people: at most 200 characters.")),
      email: Type.Optional(given),
      password: Type.Optional(given),
      is_active: Type.Optional(Type.Boolean()),
      break_glass: Type.Optional(Type.Boolean()),
      role_ids: Type.Optional(roleIds),
    }),
    output: UserShape,
    rest: ["PUT", "PATCH"].map((verb) => ({ route: `${verb} ${path}/{id}`, json: userJson })),
    handle: ({ id, is_active, break_glass, role_ids, ...change }, call) =>
      users.update(call.caller, id, {
        ...change,
        ...stated({ isActive: is_active, breakGlass: break_glass, roleIds: role_ids }),
      }),
  }),
  unary({
    ...manage,
    name: "platform.users.delete",
    summary: "Deletes a user of the platform; their sessions end. The last active platform_admin stays.",
    input: Type.Object(byId),
    rest: `DELETE ${path}/{id}`,
    handle: ({ id }, call) => users.delete(call.caller, id),
  }),
];

export const OrgShape = Type.Object({
  id: described(text, "Id of the org (`org_…`)."),
  name: described(text, "Name of the org, such as `Example`."),
  created_at: instant,
  updated_at: instant,
});

const orgJson = (org: PlatformOrg) => recordJson(org, "id name createdAt updatedAt");

const tenantsPath = "/api/v1/platform/tenants";
const tenantsRead = { action: "platform:tenants:read", scope: "none" as const, reads: true };
const tenantsManage = { action: "platform:tenants:manage", scope: "none" as const };

/** Orgs, as the platform sees them: tenants. */
export const platformTenantsOperations = (orgs: PlatformOrgs): Operation[] => [
  unary({
    ...tenantsRead,
    name: "platform.tenants.list",
    summary: "Every tenant; the platform's own org is none.",
    input: Type.Object({}),
    output: Type.Array(OrgShape),
    rest: `GET ${tenantsPath}`,
    lists: listedById(),
    handle: async () => (await orgs.list()).map(orgJson),
  }),
  unary({
    ...tenantsRead,
    name: "platform.tenants.get",
    summary: "One tenant.",
    input: Type.Object(byId),
    output: OrgShape,
    rest: `GET ${tenantsPath}/{id}`,
    handle: async ({ id }) => orgJson(await orgs.get(id)),
  }),
  unary({
    ...tenantsManage,
    name: "platform.tenants.create",
    summary: "A tenant, without any project or environment yet.",
    input: Type.Object({ name: described(text, "Name of the org, at most 200 characters.") }),
    output: OrgShape,
    rest: [tenantsPath, "/api/v1/platform/orgs"].map((path) => ({
      route: `POST ${path}`,
      status: 201,
      json: orgJson,
    })),
    handle: ({ name }) => orgs.create(name),
  }),
  unary({
    ...tenantsManage,
    name: "platform.tenants.delete",
    summary: "Deletes a tenant with all that is its own; not the platform's own org.",
    input: Type.Object(byId),
    rest: `DELETE ${tenantsPath}/{id}`,
    handle: ({ id }) => orgs.delete(id),
  }),
];

const EventShape = Type.Object({
  id: described(text, "Id of the row (`paud_…`)."),
  event_type: described(text, "What happened, such as `platform.user.created`."),
  scope: described(text, "Always `platform`."),
  platform_key_id: text,
  platform_user_id: text,
  impersonated_org_id: text,
  payload: Type.Record(Type.String(), Type.Unknown(), { description: "What else is known of the action." }),
  created_at: instant,
});

const eventJson = (event: PlatformEvent) => ({
  id: event.id,
  event_type: event.type,
  scope: "platform",
  platform_key_id: event.keyId,
  platform_user_id: event.userId,
  impersonated_org_id: event.impersonatedOrgId,
  payload: event.payload,
  created_at: rfc3339(event.createdAt),
});

export const platformAuditOperations = (audit: PlatformAudit): Operation[] => [
  unary({
    name: "platform.audit.list",
    action: "platform:audit:read",
    scope: "none",
    reads: true,
    summary:
      "What platform credentials changed, and their calls in tenants' orgs, newest first; `total` counts to 10,000.",
    input: Type.Object({
      event_type: Type.Optional(
        Type.Union(
          platformEventTypes.map((type) => Type.Literal(type)),
          { description: "Only rows of this type." },
        ),
      ),
      from: Type.Optional(described(text, "Nothing before this time, RFC 3339.")),
      to: Type.Optional(described(text, "Nothing after this time, RFC 3339.")),
      platform_key_id: Type.Optional(text),
      impersonated_org_id: Type.Optional(text),
      cursor: Type.Optional(text),
      limit: maybe.count("How many at most: 100 unless it says otherwise, never more than 200."),
    }),
    output: Type.Object({
      events: Type.Array(EventShape, { description: "Rows, newest first." }),
      total: shape.count("How many rows the whole list has."),
      total_capped: shape.flag("There may be more than were counted."),
      truncated: shape.flag(
        "The page ended because so many rows had been looked at: its cursor goes on behind them.",
      ),
      scanned: shape.count("How many rows were looked at, where truncated."),
      next_cursor: Type.Optional(text),
    }),
    rest: "GET /api/v1/platform/audit",
    async handle({ event_type, from, to, platform_key_id, impersonated_org_id, cursor, limit }) {
      const filter = {
        ...(event_type !== undefined && { type: event_type }),
        ...(from !== undefined && { from: readBound("from", from) }),
        ...(to !== undefined && { to: readBound("to", to) }),
        ...stated({ keyId: platform_key_id, impersonatedOrgId: impersonated_org_id }),
      };
      const page = await audit.list(filter, { cursor: cursor || undefined, limit });
      return {
        events: page.events.map(eventJson),
        total: page.total,
        ...{ total_capped: page.isTotalCut, truncated: page.scanned > 0, scanned: page.scanned },
        ...(page.nextCursor !== undefined && { next_cursor: page.nextCursor }),
      };
    },
  }),
];
