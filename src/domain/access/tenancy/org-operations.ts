import { Type } from "@sinclair/typebox";
import { rfc3339 } from "../../../kit/clock.ts";
import { Fault } from "../../../kit/fault.ts";
import { type Call, listedById, type Operation, unary } from "../../../kit/operation.ts";
import type { Org, Project, Tenant } from "./org-rows.ts";
import type { Orgs, Provisioned } from "./orgs.ts";

const text = Type.String({ maxLength: 2_000 });
const instant = Type.String({ format: "date-time" });
const byId = { id: Type.String({ minLength: 1 }) };

const PreferencesShape = Type.Object({ default_timezone: Type.Optional(text) });
const OrgShape = Type.Object({
  id: text,
  name: text,
  created_at: instant,
  updated_at: instant,
  preferences: Type.Optional(PreferencesShape),
});
const ProjectShape = Type.Object({
  id: text,
  name: text,
  org_id: text,
  description: Type.Optional(text),
  created_at: instant,
  updated_at: instant,
});
const IdAndName = Type.Object({ id: text, name: text });

export const orgJson = (org: Org) => ({
  id: org.id,
  name: org.name,
  created_at: rfc3339(org.createdAt),
  updated_at: rfc3339(org.updatedAt),
  ...(org.preferences && { preferences: org.preferences }),
});

const projectJson = (project: Project) => ({
  id: project.id,
  name: project.name,
  org_id: project.orgId,
  ...(project.description !== undefined && { description: project.description }),
  created_at: rfc3339(project.createdAt),
  updated_at: rfc3339(project.updatedAt),
});

export const tenantJson = (tenant: Tenant) => ({
  id: tenant.id,
  name: tenant.name,
  created_at: rfc3339(tenant.createdAt),
  env_count: tenant.environments,
  key_count: tenant.keys,
});

const encode = (org: Org) => ({ status: 200, body: orgJson(org) });
const encodeNew = (org: Org) => ({ status: 201, body: orgJson(org) });
const encodeProject = (project: Project) => ({ status: 200, body: projectJson(project) });

/**
 * What lies across orgs is the platform's, which outside `/platform` acts by impersonation only
 * (proto/README.md 'Impersonation').
 */
function requirePlatform(call: Call): void {
  const { kind } = call.caller;
  if (kind !== "dev" && kind !== "platform")
    throw new Fault("permission_denied", "platform credential required");
  requireNamedOrg(call);
}

function requireNamedOrg({ caller }: Call): void {
  if (caller.kind === "platform" && !caller.impersonates)
    throw new Fault("permission_denied", "a platform credential must name an org: X-Svc-Org");
}

export const orgsOperations = (orgs: Orgs): Operation[] => [
  unary({
    name: "orgs.create",
    action: "platform:tenants:manage",
    tenantsToo: true,
    scope: "none",
    summary: "An org without anything in it. A tenant's admin sees it no further than this answer.",
    input: Type.Object({ name: text }),
    output: OrgShape,
    rest: { route: "POST /api/v1/orgs", status: 201, encode: encodeNew },
    handle({ name }, call) {
      requireNamedOrg(call);
      return orgs.create(name);
    },
  }),
  unary({
    name: "orgs.list",
    action: "orgs:read",
    scope: "none",
    reads: true,
    summary: "The caller's own org.",
    input: Type.Object({}),
    output: Type.Array(OrgShape),
    rest: "GET /api/v1/orgs",
    lists: listedById(),
    handle: async (_input, { caller: { orgId } }) => [orgJson(await orgs.get(orgId, orgId))],
  }),
  unary({
    name: "orgs.get",
    action: "orgs:read",
    scope: "none",
    reads: true,
    summary: "The caller's org; any other looks like none.",
    input: Type.Object(byId),
    output: OrgShape,
    rest: { route: "GET /api/v1/orgs/{id}", encode },
    handle: ({ id }, { caller }) => orgs.get(caller.orgId, id),
  }),
  unary({
    name: "orgs.update",
    action: "orgs:manage",
    scope: "none",
    summary: "Renames the org, or sets its preferences.",
    input: Type.Object({
      ...byId,
      name: Type.Optional(text),
      preferences: Type.Optional(Type.Composite([PreferencesShape], { additionalProperties: false })),
    }),
    output: OrgShape,
    rest: { route: "PATCH /api/v1/orgs/{id}", encode },
    handle: ({ id, name, preferences }, { caller }) =>
      orgs.update(caller.orgId, id, {
        ...(name !== undefined && { name }),
        ...(preferences !== undefined && {
          preferences:
            preferences.default_timezone === undefined
              ? {}
              : { default_timezone: preferences.default_timezone },
        }),
      }),
  }),
  unary({
    name: "orgs.delete",
    action: "orgs:manage",
    scope: "none",
    summary: "Deletes the org with everything it has.",
    input: Type.Object(byId),
    rest: "DELETE /api/v1/orgs/{id}",
    handle: ({ id }, { caller }) => orgs.remove(caller.orgId, id),
  }),
  unary({
    name: "tenants.list",
    action: "orgs:read",
    scope: "none",
    reads: true,
    summary: "Every org with the number of its environments and keys; by platform credentials.",
    input: Type.Object({}),
    output: Type.Array(
      Type.Object({
        id: text,
        name: text,
        created_at: instant,
        env_count: Type.Integer(),
        key_count: Type.Integer(),
      }),
    ),
    rest: "GET /api/v1/tenants",
    lists: listedById(),
    async handle(_input, call) {
      requirePlatform(call);
      return (await orgs.tenants()).map(tenantJson);
    },
  }),
  unary({
    name: "tenants.provision",
    action: "platform:tenants:manage",
    scope: "none",
    summary: "An org with project, environment and admin key, at once; by platform credentials.",
    input: Type.Object({ org_name: text, env_name: Type.Optional(text) }),
    output: Type.Object({
      org: IdAndName,
      environment: IdAndName,
      api_key: Type.Object({ key: text, roles: Type.Array(text) }),
    }),
    rest: {
      route: "POST /api/v1/tenants/provision",
      status: 201,
      encode: ({ org, environment, key, roles }: Provisioned) => ({
        status: 201,
        body: {
          org: { id: org.id, name: org.name },
          environment: { id: environment.id, name: environment.name },
          api_key: { key, roles },
        },
      }),
    },
    handle({ org_name, env_name }, call) {
      requirePlatform(call);
      return orgs.provision({ orgName: org_name, ...(env_name && { environmentName: env_name }) });
    },
  }),
];

export const projectsOperations = (orgs: Orgs): Operation[] => [
  unary({
    name: "projects.list",
    action: "functions:list",
    scope: "none",
    reads: true,
    summary: "Projects of the org, oldest first.",
    input: Type.Object({}),
    output: Type.Array(ProjectShape),
    rest: "GET /api/v1/projects",
    lists: listedById(),
    handle: async (_input, { caller }) => (await orgs.projects(caller.orgId)).map(projectJson),
  }),
  unary({
    name: "projects.create",
    action: "secrets:manage",
    scope: "none",
    summary: "A project of the org.",
    input: Type.Object({ name: text, description: Type.Optional(text) }),
    output: ProjectShape,
    rest: {
      route: "POST /api/v1/projects",
      status: 201,
      encode: (project: Project) => ({ status: 201, body: projectJson(project) }),
    },
    handle: ({ name, description }, { caller }) =>
      orgs.createProject(caller.orgId, { name, ...(description !== undefined && { description }) }),
  }),
  unary({
    name: "projects.update",
    action: "secrets:manage",
    scope: "none",
    summary: "Renames or describes a project.",
    input: Type.Object({ ...byId, name: Type.Optional(text), description: Type.Optional(text) }),
    output: ProjectShape,
    rest: { route: "PUT /api/v1/projects/{id}", encode: encodeProject },
    handle: ({ id, name, description }, { caller }) =>
      orgs.updateProject(caller.orgId, id, {
        ...(name !== undefined && { name }),
        ...(description !== undefined && { description }),
      }),
  }),
  unary({
    name: "projects.delete",
    action: "secrets:manage",
    scope: "none",
    summary: "Deletes a project with its environments.",
    input: Type.Object(byId),
    environmentOf: ({ environmentId }: { environmentId?: string }) => environmentId,
    output: Type.Object({ deleted: text }),
    rest: "DELETE /api/v1/projects/{id}",
    async handle({ id }, { caller }, permit) {
      for (const environmentId of await orgs.environmentsIn(caller.orgId, id))
        await permit({ id, environmentId });
      await orgs.removeProject(caller.orgId, id);
      return { deleted: id };
    },
  }),
];
