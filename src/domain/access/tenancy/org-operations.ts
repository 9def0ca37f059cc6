import { Type } from "@sinclair/typebox";
import { actsForPlatform, requireOperator } from "../../../kit/caller.ts";
import { recordJson, stated } from "../../../kit/cases.ts";
import { described, shape } from "../../../kit/described.ts";
import { Fault } from "../../../kit/fault.ts";
import { type Call, listedById, type Operation, unary } from "../../../kit/operation.ts";
import type { Org, Project, Tenant } from "./org-rows.ts";
import type { Orgs, Provisioned } from "./orgs.ts";

const text = Type.String({ maxLength: 2_000 });
const instant = Type.String({ format: "date-time" });
const byId = {
  id: Type.String({ minLength: 1, description: "Id of the org (`org_…`) or project (`proj_…`)." }),
};

const PreferencesShape = Type.Object({
  default_timezone: Type.Optional(
    described(text, "Zone of the IANA time zone database in which times are shown."),
  ),
});
const OrgShape = Type.Object({
  id: described(text, "Id of the org (`org_…`)."),
  name: described(text, "Name of the org, such as `Example`."),
  created_at: instant,
  updated_at: instant,
  preferences: Type.Optional(described(PreferencesShape, "What the dashboard goes by.")),
});
const ProjectShape = Type.Object({
  id: described(text, "Id of the project (`proj_…`)."),
  name: described(text, "Name of the project."),
  org_id: text,
  description: Type.Optional(described(text, "What the project is for.")),
  created_at: instant,
  updated_at: instant,
});
const IdAndName = (id: string, name: string) =>
  Type.Object({ id: described(text, id), name: described(text, name) });
const MadeOrg = IdAndName("Id of the org (`org_…`).", "Name of the org, such as `Example`.");
const MadeEnvironment = IdAndName("Id of the environment (`env_…`).", "Its name, such as `production`.");

export const orgJson = (org: Org) => recordJson(org, "id name createdAt updatedAt preferences");

const projectJson = (project: Project) =>
  recordJson(project, "id name orgId description createdAt updatedAt");

export const tenantJson = (tenant: Tenant) => ({
  ...recordJson(tenant, "id name createdAt"),
  ...{ env_count: tenant.environments, key_count: tenant.keys },
});

/** Operations across orgs need a platform credential, which outside `/platform` must impersonate an org. */
function requirePlatform(call: Call): void {
  requireOperator(call.caller);
  requireNamedOrg(call);
}

function requireNamedOrg({ caller }: Call): void {
  if (actsForPlatform(caller))
    throw new Fault("permission_denied", "a platform credential must name an org: X-Svc-Org");
}

const read = { action: "orgs:read", scope: "none", reads: true } as const;
const manage = { action: "secrets:manage", scope: "none" } as const;

/** Every org of the installation, for platform credentials. */
const tenantsOperations = (orgs: Orgs): Operation[] => [
  unary({
    name: "tenants.list",
    ...read,
    summary: "Every org with the number of its environments and keys; by platform credentials.",
    input: Type.Object({}),
    output: Type.Array(
      Type.Object({
        id: described(text, "Id of the org (`org_…`)."),
        name: described(text, "Name of the org, such as `Example`."),
        created_at: instant,
        env_count: shape.count("How many environments the org has."),
        key_count: shape.count("How many API keys the org has."),
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
    input: Type.Object({
      org_name: described(text, "Name of the org, at most 200 characters."),
      env_name: Type.Optional(
        described(text, "Name of its environment, at most 63 bytes; `default` when left out."),
      ),
    }),
    output: Type.Object({
      org: described(MadeOrg, "The new org."),
      environment: described(MadeEnvironment, "The environment of the org."),
      api_key: Type.Object(
        {
          key: described(text, "Text of the key, such as `ifkey_of-an-example`; no later answer has it."),
          roles: Type.Array(text, { description: "Roles of the key." }),
        },
        { description: "The admin key of the org." },
      ),
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

export const orgsOperations = (orgs: Orgs): Operation[] => [
  unary({
    name: "orgs.create",
    action: "platform:tenants:manage",
    special: { rolesFirst: true },
    scope: "none",
    summary: "An org without anything in it; by platform credentials.",
    input: Type.Object({ name: described(text, "Name of the org, at most 200 characters.") }),
    output: OrgShape,
    rest: { route: "POST /api/v1/orgs", status: 201, json: orgJson },
    handle({ name }, call) {
      requirePlatform(call);
      return orgs.create(name);
    },
  }),
  unary({
    name: "orgs.list",
    ...read,
    summary: "The caller's own org.",
    input: Type.Object({}),
    output: Type.Array(OrgShape),
    rest: "GET /api/v1/orgs",
    lists: listedById(),
    handle: async (_input, { caller: { orgId } }) => [orgJson(await orgs.get(orgId, orgId))],
  }),
  unary({
    name: "orgs.get",
    ...read,
    summary: "The caller's org; any other looks like none.",
    input: Type.Object(byId),
    output: OrgShape,
    rest: { route: "GET /api/v1/orgs/{id}", json: orgJson },
    handle: ({ id }, { caller }) => orgs.get(caller.orgId, id),
  }),
  unary({
    name: "orgs.update",
    action: "orgs:manage",
    scope: "none",
    summary: "Renames the org, or sets its preferences.",
    input: Type.Object({
      ...byId,
      name: Type.Optional(described(text, "Name of the org, at most 200 characters.")),
      preferences: Type.Optional(
        Type.Composite([PreferencesShape], {
          additionalProperties: false,
          description: "What the dashboard goes by; replaced as a whole.",
        }),
      ),
    }),
    output: OrgShape,
    rest: { route: "PATCH /api/v1/orgs/{id}", json: orgJson },
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
  ...tenantsOperations(orgs),
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
    ...manage,
    summary: "A project of the org.",
    input: Type.Object({
      name: described(text, "Name of the project, at most 200 characters."),
      description: Type.Optional(described(text, "What the project is for.")),
    }),
    output: ProjectShape,
    rest: { route: "POST /api/v1/projects", status: 201, json: projectJson },
    handle: ({ name, description }, { caller }) =>
      orgs.createProject(caller.orgId, { name, ...(description !== undefined && { description }) }),
  }),
  unary({
    name: "projects.update",
    ...manage,
    summary: "Renames or describes a project.",
    input: Type.Object({
      ...byId,
      name: Type.Optional(described(text, "Name of the project, at most 200 characters.")),
      description: Type.Optional(described(text, "What the project is for.")),
    }),
    output: ProjectShape,
    rest: { route: "PUT /api/v1/projects/{id}", json: projectJson },
    handle: ({ id, name, description }, { caller }) =>
      orgs.updateProject(caller.orgId, id, {
        ...stated({ name, description }),
      }),
  }),
  unary({
    name: "projects.delete",
    ...manage,
    summary: "Deletes a project with its environments.",
    input: Type.Object(byId),
    environmentOf: ({ environmentId }: { environmentId?: string }) => environmentId,
    output: Type.Object({ deleted: described(text, "Id of the project that is gone.") }),
    rest: "DELETE /api/v1/projects/{id}",
    async handle({ id }, { caller }, permit) {
      for (const environmentId of await orgs.environmentsIn(caller.orgId, id))
        await permit({ id, environmentId });
      await orgs.removeProject(caller.orgId, id);
      return { deleted: id };
    },
  }),
];
