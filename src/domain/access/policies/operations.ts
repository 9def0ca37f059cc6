import { type Static, Type } from "@sinclair/typebox";
import { recordJson, stated } from "../../../kit/cases.ts";
import { rfc3339 } from "../../../kit/clock.ts";
import { described } from "../../../kit/described.ts";
import { invalid } from "../../../kit/fault.ts";
import { type Call, listedById, type Operation, unary } from "../../../kit/operation.ts";
import { timeBound } from "../../../kit/page.ts";
import { namedScope, platformScope, type ScopedRoutes, tenantScope } from "../roles/rules.ts";
import type { Roles } from "../roles/service.ts";
import { dryRunDecisionsMax, policyTextCharsMax } from "./limits.ts";
import type { DryRun, DryRunAnswer, Policies, Policy, PolicyVersion } from "./service.ts";
import {
  DryRunInput,
  DryRunShape,
  InstalledShape,
  PolicyShape,
  TemplateShape,
  VersionShape,
} from "./shapes.ts";
import { policyTemplates } from "./templates.ts";

const text = Type.String();
const bounded = Type.String({ maxLength: policyTextCharsMax });
const byId = {
  id: Type.String({ minLength: 1, description: "Id of the policy (`pol_…`), role (`role_…`) or template." }),
};

export const policyJson = (policy: Policy, warnings: readonly string[]) => ({
  ...recordJson(policy, "id orgId name"),
  effect: "deny",
  ...recordJson(policy, "actions resources condition version createdAt updatedAt"),
  ...(warnings.length > 0 && { warnings }),
});

const versionJson = (version: PolicyVersion, next: PolicyVersion | undefined) => ({
  id: `${version.policyId}_v${version.version}`,
  ...{ policy_id: version.policyId, version_num: version.version, name: version.name, effect: "deny" },
  ...recordJson(version, "actions resources condition"),
  enabled: next === undefined,
  ...recordJson(version, "createdAt authorId changeReason templateId templateVersion"),
  valid_from: rfc3339(version.createdAt),
  ...(next && { valid_until: rfc3339(next.createdAt) }),
});

export interface ScopedPolicies extends ScopedRoutes {
  rolesPath: string;
  /** The actions of the routes under `rolesPath`. */
  rolesRead: string;
  rolesManage: string;
}

export const tenantPolicies: ScopedPolicies = {
  name: "policies",
  path: "/api/v1/policies",
  rolesPath: "/api/v1/roles",
  read: "orgs:read",
  manage: "orgs:manage",
  rolesRead: "orgs:read",
  rolesManage: "orgs:manage",
  scopeOf: tenantScope,
};

/** Assigning a policy changes a role: `platform:policies:*` alone does not allow it. */
export const platformPolicies: ScopedPolicies = {
  name: "platform.policies",
  path: "/api/v1/platform/policies",
  rolesPath: "/api/v1/platform/roles",
  read: "platform:policies:read",
  manage: "platform:policies:manage",
  rolesRead: "platform:roles:read",
  rolesManage: "platform:roles:manage",
  scopeOf: ({ caller }) => platformScope(caller),
};

type PolicyBody = ReturnType<typeof policyJson>;
const encode = (body: PolicyBody) => ({ status: 200, body });

/** The answer's form of a policy, with its warnings. */
const showing =
  (policies: Pick<Policies, "warningsOf">, scopeOf: ScopedPolicies["scopeOf"]) =>
  (call: Call, policy: Policy): PolicyBody =>
    policyJson(policy, policies.warningsOf(scopeOf(call), policy));

/** List, get, create, update, delete, and which roles have which. */
export function policiesOperations(policies: Policies, roles: Roles, scoped: ScopedPolicies): Operation[] {
  const { name, path, read, manage, scopeOf } = scoped;
  const show = showing(policies, scopeOf);
  return [
    unary({
      name: `${name}.list`,
      action: read,
      scope: "none",
      reads: true,
      summary: "Deny policies of the org.",
      input: Type.Object({ org_id: Type.Optional(text) }),
      output: Type.Array(Type.Composite([PolicyShape, Type.Object({ role_count: Type.Integer() })])),
      lists: listedById(),
      rest: `GET ${path}`,
      handle: async ({ org_id }, call) =>
        (await policies.list(namedScope(scopeOf(call), org_id))).map((policy) => ({
          ...show(call, policy),
          role_count: policy.roleCount,
        })),
    }),
    unary({
      name: `${name}.get`,
      action: read,
      scope: "none",
      reads: true,
      summary: "One deny policy.",
      input: Type.Object(byId),
      output: PolicyShape,
      rest: { route: `GET ${path}/{id}`, encode },
      handle: async ({ id }, call) => show(call, await policies.get(scopeOf(call), id)),
    }),
    unary({
      name: `${name}.create`,
      action: manage,
      scope: "none",
      summary:
        "A deny policy: comma-separated action and IRN patterns, and a CEL condition over subject, request, resource and time.",
      input: Type.Object({
        name: described(bounded, "Name of the policy, at most 100 characters."),
        org_id: Type.Optional(text),
        effect: text,
        actions: bounded,
        resources: bounded,
        condition: Type.Optional(bounded),
      }),
      output: PolicyShape,
      rest: {
        route: `POST ${path}`,
        status: 201,
        encode: (body: PolicyBody) => ({ status: 201, body }),
      },
      handle: async ({ org_id, ...input }, call) =>
        show(call, await policies.create(namedScope(scopeOf(call), org_id), input, call.caller.id)),
    }),
    unary({
      name: `${name}.update`,
      action: manage,
      scope: "none",
      summary: "Changes a policy; every change is a new version.",
      input: Type.Object({
        ...byId,
        name: Type.Optional(described(bounded, "Name of the policy, at most 100 characters.")),
        effect: Type.Optional(text),
        actions: Type.Optional(bounded),
        resources: Type.Optional(bounded),
        condition: Type.Optional(bounded),
        change_reason: Type.Optional(Type.String({ maxLength: 1_000 })),
      }),
      output: PolicyShape,
      rest: ["PATCH", "PUT"].map((verb) => ({ route: `${verb} ${path}/{id}`, encode })),
      async handle({ id, change_reason, ...change }, call) {
        const wanted = { ...change, ...(change_reason !== undefined && { changeReason: change_reason }) };
        return show(call, await policies.update(scopeOf(call), id, wanted, call.caller.id));
      },
    }),
    unary({
      name: `${name}.delete`,
      action: manage,
      scope: "none",
      summary: "Deletes a policy with its versions and takes it from every role.",
      input: Type.Object(byId),
      rest: `DELETE ${path}/{id}`,
      handle: ({ id }, call) => policies.remove(scopeOf(call), id),
    }),
    ...rolePoliciesOperations(policies, roles, scoped),
  ];
}

/** Which deny policies a role has. */
const rolePoliciesOperations = (policies: Policies, roles: Roles, scoped: ScopedPolicies): Operation[] => {
  const { name, rolesPath, rolesRead, rolesManage, scopeOf } = scoped;
  const show = showing(policies, scopeOf);
  return [
    unary({
      name: `${name}.ofRole`,
      action: rolesRead,
      scope: "none",
      reads: true,
      summary: "Deny policies of a role.",
      input: Type.Object(byId),
      output: Type.Object({ policies: Type.Array(PolicyShape, { description: "Policies of the role." }) }),
      rest: `GET ${rolesPath}/{id}/policies`,
      handle: async ({ id }, call) => ({
        policies: (await policies.ofRole(scopeOf(call), id)).map((policy) => show(call, policy)),
      }),
    }),
    unary({
      name: `${name}.assign`,
      action: rolesManage,
      scope: "none",
      summary: "Gives a role a deny policy.",
      input: Type.Object({ ...byId, policy_id: Type.String({ minLength: 1 }) }),
      rest: `POST ${rolesPath}/{id}/policies`,
      handle: ({ id, policy_id }, call) => roles.assign(scopeOf(call), id, policy_id),
    }),
    unary({
      name: `${name}.unassign`,
      action: rolesManage,
      scope: "none",
      summary: "Takes a deny policy from a role.",
      input: Type.Object({ ...byId, policy_id: Type.String({ minLength: 1 }) }),
      rest: `DELETE ${rolesPath}/{id}/policies/{policy_id}`,
      handle: ({ id, policy_id }, call) => roles.unassign(scopeOf(call), id, policy_id),
    }),
  ];
};

const readDryRun = (input: Static<typeof DryRunInput>): DryRun => {
  const { policy_id, subject = {}, request = {}, last, since } = input;
  const from = timeBound("since", since);
  if (policy_id === undefined && input.condition === undefined && input.actions === undefined)
    throw invalid("condition", "a condition, actions or a policy_id is required");
  return {
    ...stated({ policyId: policy_id, actions: input.actions, resources: input.resources }),
    ...stated({ condition: input.condition }),
    ...((last !== undefined || from !== undefined) && {
      past: { limit: last ?? dryRunDecisionsMax, ...(from !== undefined && { since: from }) },
    }),
    subject: { id: subject.id ?? "", kind: subject.kind ?? "key", roles: subject.roles ?? [] },
    request: {
      operation: request.operation ?? "",
      ...(request.action !== undefined && { action: request.action }),
    },
    resource: {
      projectId: request.project_id ?? "*",
      type: request.type ?? "*",
      environmentId: request.environment_id ?? "*",
      environmentName: request.environment ?? "*",
      id: request.resource ?? "*",
    },
  };
};

const dryRunJson = ({ matched, conditionSource, compileError, evalError, past, warnings }: DryRunAnswer) => ({
  matched,
  condition_source: conditionSource,
  ...stated({ compile_error: compileError, eval_error: evalError }),
  ...(past && { past }),
  ...(warnings.length > 0 && { warnings }),
});

/** Versions, dry runs and templates, for tenants only. */
export function policyToolsOperations(policies: Policies): Operation[] {
  const { path, read, manage, scopeOf } = tenantPolicies;
  const show = showing(policies, scopeOf);
  return [
    unary({
      name: "policies.dryRun",
      action: read,
      scope: "none",
      reads: true,
      summary:
        "What a policy would do to a made-up call, and to the org's last audited ones; stores nothing.",
      input: DryRunInput,
      output: DryRunShape,
      rest: { route: `POST ${path}/dry-run`, json: dryRunJson },
      handle: (input, call) => policies.dryRun(scopeOf(call), readDryRun(input)),
    }),
    unary({
      name: "policies.versions",
      action: read,
      scope: "none",
      reads: true,
      summary: "Every version of a policy, newest first.",
      input: Type.Object(byId),
      output: Type.Array(VersionShape),
      rest: `GET ${path}/{id}/versions`,
      handle: async ({ id }, call) => {
        const versions = await policies.versions(scopeOf(call), id);
        return versions.map((version, at) => versionJson(version, versions[at - 1]));
      },
    }),
    unary({
      name: "policies.rollback",
      action: manage,
      scope: "none",
      summary: "Writes the content of an earlier version as the next one.",
      input: Type.Object({
        ...byId,
        version: Type.Integer({ minimum: 1, description: "The version to go back to." }),
      }),
      output: PolicyShape,
      rest: { route: `POST ${path}/{id}/rollback/{version}`, encode },
      handle: async ({ id, version }, call) =>
        show(call, await policies.rollback(scopeOf(call), id, version, call.caller.id)),
    }),
    unary({
      name: "policyTemplates.list",
      action: read,
      scope: "none",
      reads: true,
      summary: "Bundles of deny policies that come with svc.",
      input: Type.Object({}),
      output: Type.Array(TemplateShape),
      rest: "GET /api/v1/policy-templates",
      handle: () =>
        policyTemplates.map(({ id, name, version, description, policies: bundle }) => ({
          id,
          template_id: id,
          name,
          version,
          description,
          bundle_json: JSON.stringify({ policies: bundle }),
          created_at: rfc3339(0),
          updated_at: rfc3339(0),
        })),
    }),
    unary({
      name: "policyTemplates.install",
      action: manage,
      scope: "none",
      summary:
        "Creates the policies of a bundle, or brings them up to its version, and gives them to its roles.",
      input: Type.Object(byId),
      output: InstalledShape,
      rest: "POST /api/v1/policy-templates/{id}/install",
      handle: async ({ id }, call) => {
        const installed = await policies.install(scopeOf(call), id, call.caller.id);
        return {
          template_id: installed.templateId,
          version: installed.version,
          policies: installed.policies.map((policy) => show(call, policy)),
          policies_count: installed.policies.length,
        };
      },
    }),
  ];
}
