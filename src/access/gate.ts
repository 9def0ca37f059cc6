import type { Clock } from "../kit/clock.ts";
import { Fault, invalid } from "../kit/fault.ts";
import { decisionBurstMs, decisionMsMax, resourceNameCharsMax } from "../kit/limits.ts";
import type { Caller, Operation } from "../kit/operation.ts";
import { type Action, isAction, roleGrants } from "./actions.ts";
import { denials } from "./policy.ts";
import type { Resource } from "./resource.ts";
import type { AccessSnapshot } from "./snapshot.ts";
import { subjectOf } from "./subject.ts";

/** What decides over calls in an org; believed for half a second at most. */
export interface Snapshots {
  /** Without waiting, when it is in memory and still believed. */
  known(orgId: string): AccessSnapshot | undefined;
  of(orgId: string): Promise<AccessSnapshot>;
}

/** The environment of a call as patterns name it. */
export interface Place {
  name: string;
  projectId: string | null;
}

/** Whose roles and policies bind platform credentials. */
export const platformOrgId = "org_platform";

export interface GateDeps {
  snapshots: Snapshots;
  /** Undefined for an environment that is gone. */
  placeOf: (environmentId: string) => Promise<Place | undefined>;
  clock: Pick<Clock, "now" | "elapsed" | "sleep">;
}

/** A call as the gate sees it. */
export interface GatedCall {
  caller: Caller;
  /** Empty outside any environment. */
  environmentId: string;
  /** Of the HTTP request. */
  method?: string;
  /** Which rule refused it, for the audit; set by the gate. */
  refusedBy?: string | undefined;
}

export interface Gate {
  /** Throws unless the caller's roles grant the operation's action (spec.md 'Policy evaluation' step 1). */
  gate(call: GatedCall, operation: Operation): void | Promise<void>;
  /** Throws when a deny policy of the caller's roles holds for what the input is about (step 3). */
  guard(call: GatedCall, operation: Operation, input: unknown): void | Promise<void>;
}

export function openGate({ snapshots, placeOf, clock }: GateDeps): Gate {
  const check = (snapshot: AccessSnapshot, call: GatedCall, action: string): void => {
    if (isAction(action) && snapshot.grants(call.caller.roles, action)) return;
    call.refusedBy = "role";
    throw refusal(call.caller, `no role grants ${action}`);
  };

  async function deny(
    snapshot: AccessSnapshot,
    call: GatedCall,
    operation: Operation,
    { input, action }: { input: unknown; action: string },
  ): Promise<void> {
    const policies = snapshot.policiesOf(call.caller.roles, action);
    if (policies.length === 0) return;
    const { caller, environmentId } = call;
    const place = environmentId === "" ? undefined : await placeOf(environmentId);
    const { type, idsOf } = subjectOf(operation);
    const { name, reads = false } = operation;
    let since = clock.elapsed();
    let spentMs = 0;
    for (const id of idsOf(input)) {
      if (id.length > resourceNameCharsMax)
        throw invalid(type, `its name has at most ${resourceNameCharsMax} characters`);
      const resource: Resource = {
        orgId: caller.orgId,
        projectId: place?.projectId ?? "*",
        type,
        environmentId: environmentId || "*",
        environmentName: place?.name ?? "*",
        id,
      };
      const facts = { subject: caller, action, operation: name, reads, resource, at: clock.now() };
      for (const denial of denials(policies, facts)) {
        if (denial) {
          call.refusedBy = denial.policy.id;
          const why = denial.error === undefined ? "" : `, whose condition ${denial.error}`;
          throw refusal(caller, `denied by policy "${denial.policy.name}" (${denial.policy.id})${why}`);
        }
        const burstMs = clock.elapsed() - since;
        if (burstMs < decisionBurstMs) continue;
        spentMs += burstMs;
        if (spentMs > decisionMsMax) {
          call.refusedBy = "policies";
          throw refusal(caller, `the policies that name ${action} take longer than ${decisionMsMax} ms`);
        }
        // Others' turn.
        await clock.sleep(0);
        since = clock.elapsed();
      }
    }
  }

  async function denyAny(
    snapshot: AccessSnapshot,
    call: GatedCall,
    operation: Operation,
    { input, actions }: { input: unknown; actions: readonly string[] },
  ): Promise<void> {
    for (const action of actions) await deny(snapshot, call, operation, { input, action });
  }

  /**
   * What a platform credential must hold: for itself what the operation says that takes, for a tenant the right to
   * impersonate, where reads by their action's word take the lesser one (spec.md 'Impersonation actions').
   */
  function platformNeed(call: GatedCall, operation: Operation): Action {
    const { caller, method } = call;
    const { action, platformAction } = operation;
    if (caller.impersonates) {
      const isRead =
        action === null || action === "authenticated"
          ? method === undefined || ["GET", "HEAD", "OPTIONS"].includes(method)
          : method !== "HEAD" && /:(read|list|subscribe)$/.test(action);
      return isRead ? "platform:impersonate:read" : "platform:impersonate";
    }
    const own = platformAction ?? action;
    if (own === null || !isAction(own) || !own.startsWith("platform:")) {
      call.refusedBy = "role";
      throw new Fault("permission_denied", "a platform credential must name an org: X-Svc-Org");
    }
    // Asking for the head of what one may read counts as a write (spec.md), where the path has a write.
    const written = own.replace(/:read$/, ":manage");
    const isMapped = platformAction === undefined || own.startsWith("platform:keys:");
    return method === "HEAD" && isMapped && isAction(written) ? written : own;
  }

  function gatePlatform(call: GatedCall, operation: Operation): void | Promise<void> {
    const needed = platformNeed(call, operation);
    if (call.caller.impersonates) requireEnvironment(call, operation);
    if (roleGrants(call.caller.roles, needed)) return undefined;
    const snapshot = snapshots.known(platformOrgId);
    if (snapshot) return check(snapshot, call, needed);
    return snapshots.of(platformOrgId).then((read) => check(read, call, needed));
  }

  return {
    gate(call, operation) {
      if (call.caller.kind === "platform") return gatePlatform(call, operation);
      requireEnvironment(call, operation);
      const { action } = operation;
      if (action === null || action === "authenticated") return undefined;
      if (!isAction(action)) throw new Error(`unknown action ${action}`);
      // Whatever roles a tenant's credential carries, it is none of the platform's.
      if (action.startsWith("platform:") && call.caller.kind !== "dev" && operation.tenantsToo !== true) {
        call.refusedBy = "role";
        throw new Fault("permission_denied", "platform credential required");
      }
      // Built-in roles need nothing from the store.
      if (roleGrants(call.caller.roles, action)) return undefined;
      const snapshot = snapshots.known(call.caller.orgId);
      if (snapshot) return check(snapshot, call, action);
      return snapshots.of(call.caller.orgId).then((read) => check(read, call, action));
    },

    guard(call, operation, input) {
      if (operation.action === null) return undefined;
      if (operation.action === "authenticated" && call.caller.kind !== "platform") return undefined;
      // Tenants' policies bind tenants; the platform's bind its credentials, wherever they act.
      const { roles, kind } = call.caller;
      const isPlatform = kind === "platform";
      const orgId = isPlatform ? platformOrgId : call.caller.orgId;
      // They may be named by what they do, and by the platform action that this takes.
      const needed = isPlatform ? platformNeed(call, operation) : operation.action;
      const actions = needed === operation.action ? [needed] : [operation.action, needed];
      const snapshot = snapshots.known(orgId);
      if (!snapshot)
        return snapshots.of(orgId).then((read) => denyAny(read, call, operation, { input, actions }));
      if (actions.every((action) => snapshot.policiesOf(roles, action).length === 0)) return undefined;
      return denyAny(snapshot, call, operation, { input, actions });
    },
  };
}

function requireEnvironment(call: GatedCall, operation: Operation): void {
  if (operation.scope === "none" || call.environmentId !== "") return;
  throw new Fault("permission_denied", "request has no environment scope");
}

/** Admins are told which rule it was; others get the bare words of the spec. */
function refusal(caller: Caller, rule: string): Fault {
  const isAdmin =
    roleGrants(caller.roles, "orgs:manage") || roleGrants(caller.roles, "platform:policies:manage");
  return new Fault(
    "permission_denied",
    isAdmin ? `Insufficient permissions: ${rule}` : "Insufficient permissions",
  );
}

/** At the start, so that a misspelt action is found before anyone asks for it. */
export function requireKnownActions(operations: readonly Operation[]): void {
  for (const { name, action, platformAction } of operations) {
    if (platformAction !== undefined && !isAction(platformAction))
      throw new Error(`operation ${name} asks for an unknown action: ${platformAction}`);
    if (action === null || action === "authenticated" || isAction(action)) continue;
    throw new Error(`operation ${name} asks for an unknown action: ${action}`);
  }
}
