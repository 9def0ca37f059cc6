import type { Snapshots } from "../../../gate/gate.ts";
import { policyWarnings } from "../../../gate/policy.ts";
import { type AccessSnapshot, type Compiled, compilePolicies, snapshotOf } from "../../../gate/snapshot.ts";
import { breather } from "../../../kit/breather.ts";
import type { Clock } from "../../../kit/clock.ts";
import { missing } from "../../../kit/fault.ts";
import { ttlCache } from "../../../kit/ttl-cache.ts";
import type { Basics, Store } from "../../../store/store.ts";
import type { RoleScope, Roles } from "../roles/service.ts";
import { openPolicyChanges } from "./changes.ts";
import {
  type DryRun,
  type DryRunAnswer,
  type PastAsked,
  type PastDecision,
  textToTry,
  tryPolicy,
} from "./dry-run.ts";
import { installTemplate } from "./install.ts";
import { accessKeptMs, accessOrgsMax } from "./limits.ts";
import * as rows from "./rows.ts";
import * as rules from "./rules.ts";

export type { DryRun, DryRunAnswer, PastAsked, PastDecision } from "./dry-run.ts";
export type { Policy, PolicyVersion } from "./rows.ts";

export type Policies = ReturnType<typeof openPolicies>;

export interface PoliciesDeps extends Basics<"store" | "clock" | "ids"> {
  roles: Pick<Roles, "get" | "assign" | "raiseAccess">;
  /** Drops this node's cached snapshot of the org. */
  changed: (orgId: string) => void;
  /** Every type of resource that some operation is about. */
  resourceTypes: () => ReadonlySet<string>;
  /** Audited calls of the org, newest first. */
  pastDecisions?: (orgId: string, asked: PastAsked) => Promise<readonly PastDecision[]>;
}

export function openPolicies(deps: PoliciesDeps) {
  const { store, clock, roles } = deps;
  const changes = openPolicyChanges(deps);

  // A platform policy binds the platform's credentials in every org: a pattern that names any org can match.
  const warningsOf = ({ orgId, kind }: RoleScope, policy: Pick<rows.Policy, "actions" | "resources">) =>
    policyWarnings(policy, {
      orgId: kind === "platform" ? undefined : orgId,
      types: deps.resourceTypes(),
    });

  return {
    /** Patterns of the policy that cannot match anything; usually empty. */
    warningsOf,

    async list(scope: RoleScope): Promise<(rows.Policy & { roleCount: number })[]> {
      const [policies, counts] = await Promise.all([
        rows.policiesOf(store, scope.orgId),
        rows.roleCounts(store, scope.orgId),
      ]);
      return policies.map((policy) => ({ ...policy, roleCount: counts.get(policy.id) ?? 0 }));
    },

    get: (scope: RoleScope, id: string) => changes.find(store, scope, id),

    async ofRole(scope: RoleScope, roleId: string): Promise<rows.Policy[]> {
      await roles.get(scope, roleId);
      return rows.policiesOfRole(store, scope.orgId, roleId);
    },

    async create(scope: RoleScope, input: rules.PolicyInput, authorId: string): Promise<rows.Policy> {
      rules.requireDeny(input.effect);
      const policy = changes.newPolicy(scope, {
        name: rules.readName(input.name),
        actions: input.actions,
        resources: input.resources,
        condition: (input.condition ?? "").trim(),
      });
      rules.requirePolicy(policy);
      return changes.write(scope, authorId, async (session) => {
        await changes.requireRoom(session, scope.orgId);
        return { policy, isNew: true, changeReason: null };
      });
    },

    async update(
      scope: RoleScope,
      id: string,
      wanted: Partial<rules.PolicyInput> & { changeReason?: string },
      authorId: string,
    ): Promise<rows.Policy> {
      if (wanted.effect !== undefined) rules.requireDeny(wanted.effect);
      return changes.write(scope, authorId, async (session) => {
        const before = await changes.find(session, scope, id);
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
      });
    },

    remove: changes.remove,

    /** Newest first. */
    async versions(scope: RoleScope, id: string): Promise<rows.PolicyVersion[]> {
      await changes.find(store, scope, id);
      return rows.versionsOf(store, scope.orgId, id);
    },

    /** Writes the content of that version as the next one. */
    async rollback(scope: RoleScope, id: string, version: number, authorId: string): Promise<rows.Policy> {
      return changes.write(scope, authorId, async (session) => {
        const before = await changes.find(session, scope, id);
        const then = (await rows.versionsOf(session, scope.orgId, id)).find((one) => one.version === version);
        if (!then) throw missing("policy version", `${id}/${version}`);
        const { name, actions, resources, condition, templateId, templateVersion } = then;
        const policy: rows.Policy = {
          ...before,
          ...{ name, actions, resources, condition, templateId, templateVersion },
          version: before.version + 1,
          updatedAt: clock.now(),
        };
        return { policy, isNew: false, changeReason: `rollback to version ${version}` };
      });
    },

    async dryRun(scope: RoleScope, asked: DryRun): Promise<DryRunAnswer> {
      const stored =
        asked.policyId === undefined ? undefined : await changes.find(store, scope, asked.policyId);
      const text = textToTry(asked, stored);
      const { past } = asked;
      const pastDecisions = past && (async () => (await deps.pastDecisions?.(scope.orgId, past)) ?? []);
      return {
        conditionSource: text.condition,
        warnings: warningsOf(scope, text),
        ...(await tryPolicy(text, asked, { orgId: scope.orgId, at: clock.now(), pastDecisions })),
      };
    },

    /** Creates the policies of the template, or raises them to its version. */
    install: (scope: RoleScope, templateId: string, authorId: string) =>
      installTemplate({ clock, changes, roles }, scope, templateId, authorId),
  };
}

export interface OrgSnapshots extends Snapshots {
  /** This node changed roles or policies of the org. */
  forget(orgId: string): void;
}

/**
 * Snapshots of roles and policies by org, cached for half a second. After that `openSnapshots` reads the
 * org's version, and the rest only when the version has grown. Every node obeys a change within a second,
 * also without the bus.
 */
export function openSnapshots({ store, clock }: { store: Store; clock: Clock }): OrgSnapshots {
  const last = new Map<string, { snapshot: AccessSnapshot; compiled: Compiled }>();
  const nothingCompiled: Compiled = new Map();

  const kept = ttlCache<AccessSnapshot>({
    clock,
    keptMs: accessKeptMs,
    entriesMax: accessOrgsMax,
    async read(orgId) {
      const version = await rows.accessVersion(store, orgId);
      const before = last.get(orgId);
      if (before && before.snapshot.version === version) return before.snapshot;
      const read = version === undefined ? undefined : await rows.readSnapshot(store, orgId);
      last.delete(orgId);
      if (!read) return undefined;
      const known = before?.compiled ?? nothingCompiled;
      const compiled = await compilePolicies(read.policies, known, breather(clock, orgId));
      const snapshot = snapshotOf(read, compiled);
      if (last.size >= accessOrgsMax) last.delete(last.keys().next().value!);
      last.set(orgId, { snapshot, compiled });
      return snapshot;
    },
  });
  // An org that is gone grants nothing.
  const nothing = (orgId: string) => snapshotOf({ orgId, version: 0, roles: [], policies: [], assigned: [] });
  return {
    known: kept.peek,
    of: async (orgId) => (await kept.get(orgId)) ?? nothing(orgId),
    forget: kept.forget,
  };
}
