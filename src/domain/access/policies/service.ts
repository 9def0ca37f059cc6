import { roleIdOf } from "../../../access/actions.ts";
import {
  type ConditionFacts,
  compileCondition,
  conditionContext,
  evaluateCondition,
} from "../../../access/condition.ts";
import {
  actionsMatching,
  compilePolicy,
  deniesAlone,
  policyWarnings,
  splitList,
} from "../../../access/policy.ts";
import type { Resource } from "../../../access/resource.ts";
import type { Clock } from "../../../kit/clock.ts";
import { Fault, missing } from "../../../kit/fault.ts";
import type { Ids } from "../../../kit/ids.ts";
import { policiesMax, policyVersionsMax } from "../../../kit/limits.ts";
import { type Session, type Store, StoreError } from "../../../store/store.ts";
import type { RoleScope, Roles } from "../roles/service.ts";
import * as rows from "./rows.ts";
import * as rules from "./rules.ts";
import { policyTemplates } from "./templates.ts";

export type { Policy, PolicyVersion } from "./rows.ts";

export interface DryRun {
  /** The policy to try: stored, or written here; a condition alone is tried against everything. */
  policyId?: string;
  actions?: string;
  resources?: string;
  condition?: string;
  subject: { id: string; kind: string; roles: readonly string[] };
  request: { action?: string; operation: string };
  resource: Omit<Resource, "orgId">;
  /** Of the org's last audited calls, how many to try it on. */
  last?: number;
}

export interface DryRunAnswer {
  /** Whether it would deny. */
  matched: boolean;
  conditionSource: string;
  compileError?: string;
  evalError?: string;
  past?: PastOutcome;
  /** What of it can match nothing. */
  warnings: string[];
}

/** What the policy would have done to calls that were made. */
export interface PastOutcome {
  decisions: number;
  denied: number;
  /** Ids of the keys and users it would have denied. */
  subjects: string[];
}

/** A call as the audit has it. */
export interface PastDecision {
  facts: ConditionFacts;
  allowed: boolean;
}

export interface Policies {
  list(scope: RoleScope): Promise<(rows.Policy & { roleCount: number })[]>;
  get(scope: RoleScope, id: string): Promise<rows.Policy>;
  ofRole(scope: RoleScope, roleId: string): Promise<rows.Policy[]>;
  create(scope: RoleScope, input: rules.PolicyInput, authorId: string): Promise<rows.Policy>;
  update(
    scope: RoleScope,
    id: string,
    change: Partial<rules.PolicyInput> & { changeReason?: string },
    authorId: string,
  ): Promise<rows.Policy>;
  remove(scope: RoleScope, id: string): Promise<void>;
  /** Newest first. */
  versions(scope: RoleScope, id: string): Promise<rows.PolicyVersion[]>;
  /** Writes what stood at that version as the next one. */
  rollback(scope: RoleScope, id: string, version: number, authorId: string): Promise<rows.Policy>;
  dryRun(scope: RoleScope, asked: DryRun): Promise<DryRunAnswer>;
  /** What of a policy can match nothing; empty for most. */
  warningsOf(scope: RoleScope, policy: Pick<rows.Policy, "actions" | "resources">): string[];
  /** Creates what the template holds, or brings it up to its version; answers its policies. */
  install(
    scope: RoleScope,
    templateId: string,
    authorId: string,
  ): Promise<{ templateId: string; version: string; policies: rows.Policy[] }>;
}

export interface PoliciesDeps {
  store: Store;
  clock: Clock;
  ids: Ids;
  roles: Pick<Roles, "get" | "assign" | "raiseAccess">;
  /** This node forgets what it believed of the org. */
  changed: (orgId: string) => void;
  /** Every type of resource that some operation is about. */
  resourceTypes: () => ReadonlySet<string>;
  /** The org's last audited calls, newest first. */
  pastDecisions?: (orgId: string, limit: number) => Promise<readonly PastDecision[]>;
}

const subjectsShown = 20;

export function openPolicies(deps: PoliciesDeps): Policies {
  const { store, clock, ids, roles, changed } = deps;

  const nameTaken = (name: string) =>
    new Fault("already_exists", `a policy named "${name}" exists`, { field: "name" });

  async function find(
    reader: Pick<Store, "one" | "all">,
    scope: RoleScope,
    id: string,
  ): Promise<rows.Policy> {
    const policy = await rows.policyById(reader, scope.orgId, id);
    if (!policy) throw missing("policy", id);
    return policy;
  }

  /** Every change of a policy ends here: checked, with the next version, under the lock of its org. */
  async function change(
    scope: RoleScope,
    work: (session: Session) => Promise<{ policy: rows.Policy; isNew: boolean; changeReason: string | null }>,
    authorId: string,
  ): Promise<rows.Policy> {
    let name = "";
    try {
      const policy = await store.write(async (session) => {
        await roles.raiseAccess(session, scope.orgId);
        const { policy, isNew, changeReason } = await work(session);
        name = policy.name;
        rules.requirePolicy(policy);
        if (policy.version > policyVersionsMax)
          throw new Fault("resource_exhausted", `at most ${policyVersionsMax} versions of a policy`);
        const written = isNew
          ? await rows.insertPolicy(session, policy)
          : await rows.updatePolicy(session, policy);
        if (written === 0) throw nameTaken(name);
        await rows.insertVersion(session, policy, { authorId, changeReason });
        return policy;
      });
      changed(scope.orgId);
      return policy;
    } catch (error) {
      if (error instanceof StoreError && error.trouble === "unique") throw nameTaken(name);
      throw error;
    }
  }

  async function requireRoom(session: Session, orgId: string): Promise<void> {
    if ((await rows.policiesOf(session, orgId)).length >= policiesMax)
      throw new Fault("resource_exhausted", `at most ${policiesMax} policies`);
  }

  const fresh = (
    scope: RoleScope,
    text: Pick<rows.Policy, "name" | "actions" | "resources" | "condition">,
  ) => {
    const at = clock.now();
    const policy: rows.Policy = {
      id: ids.next("pol"),
      orgId: scope.orgId,
      version: 1,
      templateId: null,
      templateVersion: null,
      createdAt: at,
      updatedAt: at,
      ...text,
    };
    return policy;
  };

  // Policies of the platform bind its credentials wherever they act.
  const warningsOf: Policies["warningsOf"] = ({ orgId, kind }, policy) =>
    policyWarnings(policy, {
      orgId: kind === "platform" ? undefined : orgId,
      types: deps.resourceTypes(),
    });

  return {
    warningsOf,

    async list(scope) {
      const [policies, counts] = await Promise.all([
        rows.policiesOf(store, scope.orgId),
        rows.roleCounts(store, scope.orgId),
      ]);
      return policies.map((policy) => ({ ...policy, roleCount: counts.get(policy.id) ?? 0 }));
    },

    get: (scope, id) => find(store, scope, id),

    async ofRole(scope, roleId) {
      await roles.get(scope, roleId);
      return rows.policiesOfRole(store, scope.orgId, roleId);
    },

    async create(scope, input, authorId) {
      rules.requireDeny(input.effect);
      const policy = fresh(scope, {
        name: rules.readName(input.name),
        actions: input.actions,
        resources: input.resources,
        condition: (input.condition ?? "").trim(),
      });
      rules.requirePolicy(policy);
      return change(
        scope,
        async (session) => {
          await requireRoom(session, scope.orgId);
          return { policy, isNew: true, changeReason: null };
        },
        authorId,
      );
    },

    async update(scope, id, wanted, authorId) {
      if (wanted.effect !== undefined) rules.requireDeny(wanted.effect);
      return change(
        scope,
        async (session) => {
          const before = await find(session, scope, id);
          const policy: rows.Policy = {
            ...before,
            name: wanted.name === undefined ? before.name : rules.readName(wanted.name),
            actions: wanted.actions ?? before.actions,
            resources: wanted.resources ?? before.resources,
            condition: (wanted.condition ?? before.condition).trim(),
            version: before.version + 1,
            updatedAt: clock.now(),
          };
          return { policy, isNew: false, changeReason: wanted.changeReason ?? null };
        },
        authorId,
      );
    },

    async remove(scope, id) {
      await store.write(async (session) => {
        await roles.raiseAccess(session, scope.orgId);
        await find(session, scope, id);
        await rows.deletePolicy(session, scope.orgId, id);
      });
      changed(scope.orgId);
    },

    async versions(scope, id) {
      await find(store, scope, id);
      return rows.versionsOf(store, scope.orgId, id);
    },

    async rollback(scope, id, version, authorId) {
      return change(
        scope,
        async (session) => {
          const before = await find(session, scope, id);
          const then = (await rows.versionsOf(session, scope.orgId, id)).find(
            (one) => one.version === version,
          );
          if (!then) throw missing("policy version", `${id}/${version}`);
          const { name, actions, resources, condition, templateId, templateVersion } = then;
          const policy: rows.Policy = {
            ...before,
            ...{ name, actions, resources, condition, templateId, templateVersion },
            version: before.version + 1,
            updatedAt: clock.now(),
          };
          return { policy, isNew: false, changeReason: `rollback to version ${version}` };
        },
        authorId,
      );
    },

    async dryRun(scope, asked) {
      const stored = asked.policyId === undefined ? undefined : await find(store, scope, asked.policyId);
      const text = {
        actions: asked.actions ?? stored?.actions ?? "*",
        resources: asked.resources ?? stored?.resources ?? "*",
        condition: (asked.condition ?? stored?.condition ?? "").trim(),
      };
      const answer = { conditionSource: text.condition, warnings: warningsOf(scope, text) };
      const refused = (error: unknown): DryRunAnswer => ({
        ...answer,
        matched: false,
        compileError: (error as Error).message,
      });
      const facts: ConditionFacts = {
        subject: { ...asked.subject, orgId: scope.orgId },
        action: asked.request.action ?? "",
        operation: asked.request.operation,
        reads: /:(read|list|subscribe)$/.test(asked.request.action ?? ""),
        resource: { ...asked.resource, orgId: scope.orgId },
        at: clock.now(),
      };
      let compiled: ReturnType<typeof compilePolicy>;
      try {
        compiled = compilePolicy({ id: "", name: "", ...text });
      } catch (error) {
        return refused(error);
      }
      const named = asked.request.action === undefined || compiled.actions.has(asked.request.action);
      const { denied, error } = deniesAlone(compiled, facts);
      const past = asked.last === undefined ? undefined : await tryPast(scope, compiled, asked.last);
      return {
        ...answer,
        matched: named && denied,
        ...(error !== undefined && { evalError: error }),
        ...(past && { past }),
      };
    },

    async install(scope, templateId, authorId) {
      const template = policyTemplates.find((one) => one.id === templateId);
      if (!template) throw missing("policy template", templateId);
      lint(template);
      const installed: rows.Policy[] = [];
      for (const { name, roles: wanted, ...text } of template.policies) {
        const policy = await change(
          scope,
          async (session) => {
            const before = (await rows.policiesOf(session, scope.orgId)).find((one) => one.name === name);
            if (before && before.templateId !== template.id) throw nameTaken(name);
            if (!before) await requireRoom(session, scope.orgId);
            const made = before
              ? { ...before, ...text, version: before.version + 1, updatedAt: clock.now() }
              : fresh(scope, { name, ...text });
            return {
              policy: { ...made, templateId: template.id, templateVersion: template.version },
              isNew: before === undefined,
              changeReason: `template ${template.id} ${template.version}`,
            };
          },
          authorId,
        );
        for (const role of wanted) await roles.assign(scope, roleIdOf(role), policy.id);
        installed.push(policy);
      }
      return { templateId, version: template.version, policies: installed };
    },
  };

  async function tryPast(
    scope: RoleScope,
    compiled: ReturnType<typeof compilePolicy>,
    last: number,
  ): Promise<PastOutcome> {
    const decisions = (await deps.pastDecisions?.(scope.orgId, last)) ?? [];
    const subjects = new Set<string>();
    let denied = 0;
    for (const { facts, allowed } of decisions) {
      if (!allowed || !compiled.actions.has(facts.action)) continue;
      if (!deniesAlone(compiled, facts).denied) continue;
      denied++;
      if (subjects.size < subjectsShown) subjects.add(facts.subject.id);
    }
    return { decisions: decisions.length, denied, subjects: [...subjects] };
  }
}

/** A template must be sound whatever release brought it: every part is looked at before anything is written. */
function lint(template: (typeof policyTemplates)[number]): void {
  for (const { name, roles: _, ...text } of template.policies) {
    rules.readName(name);
    rules.requirePolicy(text);
    for (const pattern of splitList(text.actions))
      if (actionsMatching(pattern).length === 0)
        throw new Fault("failed_precondition", `template ${template.id}: "${pattern}" names no action`);
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
