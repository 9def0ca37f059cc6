import type { Breathe } from "../kit/breather.ts";
import { type Action, builtInRoles, roleGrants, roleIdOf } from "./actions.ts";
import { type CompiledPolicy, compilePolicy, type PolicyText } from "./policy.ts";

/** A role that an org created: it grants what its base grants, less what its policies deny. */
export interface CustomRole {
  /** Keys and users carry the id; the name may be given to another role later. */
  id: string;
  name: string;
  /** Name of a built-in role; empty: it grants nothing by itself. */
  base: string;
}

/** The roles and policies of one org at one `orgs.access_version`. */
export type AccessSnapshot = ReturnType<typeof snapshotOf>;

export interface SnapshotRows {
  orgId: string;
  version: number;
  roles: readonly CustomRole[];
  policies: readonly PolicyText[];
  /** Which policies each role has, by role id; built-in roles too. */
  assigned: readonly { roleId: string; policyId: string }[];
}

/** Cached for callers with the same roles. */
interface Combination {
  words: readonly string[];
  policies: readonly CompiledPolicy[];
  byAction: Map<string, readonly CompiledPolicy[]>;
}

const none: readonly CompiledPolicy[] = [];
const builtInNames = new Map<string, string>(builtInRoles.map((role) => [roleIdOf(role), role]));
const combinationsMax = 1_000;

/**
 * A stored policy that no longer compiles, because a newer release is stricter, denies every resource it is
 * asked about.
 */
function compileStored(policy: PolicyText): CompiledPolicy {
  try {
    return compilePolicy(policy);
  } catch {
    return compilePolicy({ ...policy, actions: "*", resources: "*", condition: "" });
  }
}

const textOf = ({ id, name, actions, resources, condition }: PolicyText): string =>
  JSON.stringify([id, name, actions, resources, condition]);

/**
 * Compiled policies of an org by text, kept for the next snapshot: a change usually touches one policy of
 * many.
 */
export type Compiled = ReadonlyMap<string, CompiledPolicy>;

/** Yields the event loop after each new policy: compiling hundreds at once would delay every other call. */
export async function compilePolicies(
  policies: readonly PolicyText[],
  before: Compiled,
  breathe: Breathe,
): Promise<Compiled> {
  const compiled = new Map<string, CompiledPolicy>();
  for (const policy of policies) {
    const text = textOf(policy);
    const known = before.get(text);
    compiled.set(text, known ?? compileStored(policy));
    if (!known) await breathe();
  }
  return compiled;
}

/** Roles by id. Names of built-in roles work too, as no other role can have them. */
const idOf = (role: string): string => (role.includes("_") ? role : `role_${role}`);

export function snapshotOf(rows: SnapshotRows, ready?: Compiled) {
  const custom = new Map(rows.roles.map((role) => [role.id, role]));
  const compiled = new Map(
    rows.policies.map((policy) => [policy.id, ready?.get(textOf(policy)) ?? compileStored(policy)]),
  );
  const ofRole = new Map<string, CompiledPolicy[]>();
  for (const { roleId, policyId } of rows.assigned) {
    const policy = compiled.get(policyId);
    if (!policy) continue;
    const list = ofRole.get(roleId);
    if (list) list.push(policy);
    else ofRole.set(roleId, [policy]);
  }
  const combinations = new Map<string, Combination>();
  const ofCaller = new WeakMap<readonly string[], Combination>();

  /** Keyed by the list itself: a caller has the same list object from call to call. */
  function combinationOf(roles: readonly string[]): Combination {
    let found = ofCaller.get(roles);
    if (found) return found;
    const key = roles.join("\n");
    found = combinations.get(key);
    if (!found) {
      const words = roles.flatMap((role) => [role, custom.get(role)?.name ?? builtInNames.get(role) ?? role]);
      const policies = new Set(roles.flatMap((role) => ofRole.get(idOf(role)) ?? []));
      found = { words: [...new Set(words)], policies: [...policies], byAction: new Map() };
      if (combinations.size >= combinationsMax) combinations.clear();
      combinations.set(key, found);
    }
    ofCaller.set(roles, found);
    return found;
  }

  return {
    orgId: rows.orgId,
    version: rows.version,
    grants: (roles: readonly string[], action: Action) =>
      roleGrants(roles, action) ||
      (custom.size > 0 &&
        roles.some((role) => {
          const found = custom.get(role);
          return found !== undefined && roleGrants([found.base], action);
        })),
    /** Names of the roles of the org's own that grant the action. */
    ownRolesGranting: (action: Action) =>
      rows.roles.flatMap(({ name, base }) => (roleGrants([base], action) ? name : [])),
    /** The roles as conditions may name them: by id and by name. */
    wordsOf: (roles: readonly string[]) => combinationOf(roles).words,
    /** Deny policies of these roles that name the action. */
    policiesOf(roles: readonly string[], action: string): readonly CompiledPolicy[] {
      if (ofRole.size === 0) return none;
      const { policies, byAction } = combinationOf(roles);
      let known = byAction.get(action);
      if (!known) {
        known = policies.filter((policy) => policy.actions.has(action));
        byAction.set(action, known);
      }
      return known;
    },
  };
}
