import type { Caller } from "../kit/caller.ts";
import { Fault } from "../kit/fault.ts";
import { isAction, roleGrants, rolesGranting } from "./actions.ts";
import type { AccessSnapshot } from "./snapshot.ts";

/** Whose roles and policies bind platform credentials. */
export const platformOrgId = "org_platform";

/** A call as the gate sees it. */
export interface GatedCall {
  /** The gate replaces it when a platform credential impersonates a user of another org. */
  caller: Caller;
  /** Empty outside any environment. The gate replaces it together with the caller. */
  environmentId: string;
  /** Of the HTTP request. */
  method?: string;
  /** The rule that refused the call, for the audit; the gate sets it. */
  refusedBy?: string | undefined;
}

export const isPlatform = ({ caller }: GatedCall): boolean => caller.kind === "platform";

/** The org whose roles and policies decide: the platform's own for its credentials, wherever they act. */
export const decidingOrgOf = (call: GatedCall): string =>
  isPlatform(call) ? platformOrgId : call.caller.orgId;

/** A refusal by a rule, which the audit names. */
export class AccessRefusal extends Fault {
  readonly rule: string;

  constructor(message: string, rule: string) {
    super("permission_denied", message);
    this.rule = rule;
  }
}

/** Only admins see which rule refused a call: to others the rule's name would reveal the org's policies. */
export function refusal(caller: Caller, rule: string, why: string): AccessRefusal {
  const isAdmin =
    roleGrants(caller.roles, "orgs:manage") || roleGrants(caller.roles, "platform:policies:manage");
  return new AccessRefusal(isAdmin ? `Insufficient permissions: ${why}` : "Insufficient permissions", rule);
}

/**
 * No role of the caller grants the action: names the built-in roles that do, and the org's own ones to
 * callers that may list them.
 */
export function ungranted(snapshot: AccessSnapshot, call: GatedCall, action: string): AccessRefusal {
  const ofPlatform = isPlatform(call);
  const builtIn = rolesGranting(action).filter((role) => role.startsWith("platform_") === ofPlatform);
  const mayList = snapshot.grants(call.caller.roles, ofPlatform ? "platform:roles:read" : "orgs:read");
  const own = mayList && isAction(action) ? snapshot.ownRolesGranting(action) : [];
  const roles = [...builtIn, ...own];
  const who = roles.length === 0 ? "no role of an org" : roles.join(", ");
  return new AccessRefusal(`Insufficient permissions: ${action} is granted by ${who}`, "role");
}
