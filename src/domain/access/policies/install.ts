import { roleIdOf } from "../../../gate/actions.ts";
import {
  type ConditionFacts,
  compileCondition,
  conditionContext,
  evaluateCondition,
} from "../../../gate/condition.ts";
import { actionsMatching, splitList } from "../../../gate/policy.ts";
import type { Clock } from "../../../kit/clock.ts";
import { Fault, missing } from "../../../kit/fault.ts";
import type { RoleScope, Roles } from "../roles/service.ts";
import { nameTaken, type PolicyChanges } from "./changes.ts";
import * as rows from "./rows.ts";
import * as rules from "./rules.ts";
import { policyTemplates } from "./templates.ts";

export interface InstalledTemplate {
  templateId: string;
  version: string;
  policies: rows.Policy[];
}

/**
 * Creates the policies of a template, or raises them to its version, and assigns them to the roles that it
 * names.
 */
export async function installTemplate(
  deps: { clock: Clock; changes: PolicyChanges; roles: Pick<Roles, "assign"> },
  scope: RoleScope,
  templateId: string,
  authorId: string,
): Promise<InstalledTemplate> {
  const { clock, changes, roles } = deps;
  const template = policyTemplates.find((one) => one.id === templateId);
  if (!template) throw missing("policy template", templateId);
  requireSound(template);
  const installed: rows.Policy[] = [];
  for (const { name, roles: wanted, ...text } of template.policies) {
    const policy = await changes.write(scope, authorId, async (session) => {
      const before = (await rows.policiesOf(session, scope.orgId)).find((one) => one.name === name);
      if (before && before.templateId !== template.id) throw nameTaken(name);
      if (!before) await changes.requireRoom(session, scope.orgId);
      const made = before
        ? { ...before, ...text, version: before.version + 1, updatedAt: clock.now() }
        : changes.newPolicy(scope, { name, ...text });
      return {
        policy: { ...made, templateId: template.id, templateVersion: template.version },
        isNew: before === undefined,
        changeReason: `template ${template.id} ${template.version}`,
      };
    });
    for (const role of wanted) await roles.assign(scope, roleIdOf(role), policy.id);
    installed.push(policy);
  }
  return { templateId, version: template.version, policies: installed };
}

/**
 * Checks every part before anything is written: a template that fails halfway would leave some of its
 * policies.
 */
function requireSound(template: (typeof policyTemplates)[number]): void {
  for (const { name, roles: _, ...text } of template.policies) {
    rules.readName(name);
    rules.requirePolicy(text);
    for (const pattern of splitList(text.actions))
      if (actionsMatching(pattern).length === 0)
        throw new Fault("failed_precondition", `template ${template.id}: unknown action "${pattern}"`);
    if (text.condition !== "") {
      const outcome = evaluateCondition(compileCondition(text.condition), conditionContext(sample));
      if (outcome.error !== undefined)
        throw new Fault("failed_precondition", `template ${template.id}: condition ${outcome.error}`);
    }
  }
}

const sample: ConditionFacts = {
  subject: { id: "ak_sample", kind: "key", orgId: "org_sample", roles: ["role_developer"] },
  action: "functions:register",
  operation: "functions.register",
  reads: false,
  resource: {
    orgId: "org_sample",
    projectId: "proj_sample",
    type: "function",
    environmentId: "env_sample",
    environmentName: "production",
    id: "sample",
  },
  at: 0,
};
