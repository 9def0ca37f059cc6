import { Fault } from "../kit/fault.ts";
import type { Caller } from "../kit/operation.ts";
import { roleGrants } from "./actions.ts";

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

/**
 * Only admins are told which rule refused a call: to others the rule's name would reveal the org's policies.
 */
export function refusal(caller: Caller, rule: string, why: string): AccessRefusal {
  const isAdmin =
    roleGrants(caller.roles, "orgs:manage") || roleGrants(caller.roles, "platform:policies:manage");
  return new AccessRefusal(isAdmin ? `Insufficient permissions: ${why}` : "Insufficient permissions", rule);
}
