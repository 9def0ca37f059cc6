import type { Instant } from "../kit/clock.ts";
import { Fault } from "../kit/fault.ts";
import type { Caller, Operation } from "../kit/operation.ts";
import { isAction, roleGrants } from "./actions.ts";
import { firstDenial } from "./policy.ts";
import type { Resource } from "./resource.ts";
import type { AccessSnapshot } from "./snapshot.ts";
import { subjectOf } from "./subject.ts";

/** What decides over calls in an org; believed for a second at most. */
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

export interface GateDeps {
  snapshots: Snapshots;
  /** Undefined for an environment that is gone. */
  placeOf: (environmentId: string) => Promise<Place | undefined>;
  now: () => Instant;
}

/** A call as the gate sees it. */
export interface GatedCall {
  caller: Caller;
  /** Empty outside any environment. */
  environmentId: string;
  /** Which rule refused it, for the audit; set by the gate. */
  refusedBy?: string | undefined;
}

export interface Gate {
  /** Throws unless the caller's roles grant the action (spec.md 'Policy evaluation' step 1). */
  gate(call: GatedCall, action: string): void | Promise<void>;
  /** Throws when a deny policy of the caller's roles holds for what the input is about (step 3). */
  guard(call: GatedCall, operation: Operation, input: unknown): void | Promise<void>;
}

export function openGate({ snapshots, placeOf, now }: GateDeps): Gate {
  const check = (snapshot: AccessSnapshot, call: GatedCall, action: string): void => {
    if (isAction(action) && snapshot.grants(call.caller.roles, action)) return;
    call.refusedBy = "role";
    throw refusal(call.caller, `no role grants ${action}`);
  };

  async function deny(
    snapshot: AccessSnapshot,
    call: GatedCall,
    operation: Operation,
    input: unknown,
  ): Promise<void> {
    const action = operation.action as string;
    const policies = snapshot.policiesOf(call.caller.roles, action);
    if (policies.length === 0) return;
    const { caller, environmentId } = call;
    const place = environmentId === "" ? undefined : await placeOf(environmentId);
    const { type, idsOf } = subjectOf(operation);
    for (const id of idsOf(input)) {
      const resource: Resource = {
        orgId: caller.orgId,
        projectId: place?.projectId ?? "*",
        type,
        environmentId: environmentId || "*",
        environmentName: place?.name ?? "*",
        id,
      };
      const { name, reads = false } = operation;
      const denial = firstDenial(policies, {
        subject: caller,
        action,
        operation: name,
        reads,
        resource,
        at: now(),
      });
      if (!denial) continue;
      call.refusedBy = denial.policy.id;
      const why = denial.error === undefined ? "" : `, whose condition ${denial.error}`;
      throw refusal(caller, `denied by policy "${denial.policy.name}" (${denial.policy.id})${why}`);
    }
  }

  return {
    gate(call, action) {
      if (!isAction(action)) throw new Error(`unknown action ${action}`);
      // Built-in roles need nothing from the store.
      if (roleGrants(call.caller.roles, action)) return undefined;
      const snapshot = snapshots.known(call.caller.orgId);
      if (snapshot) return check(snapshot, call, action);
      return snapshots.of(call.caller.orgId).then((read) => check(read, call, action));
    },

    guard(call, operation, input) {
      if (operation.action === null || operation.action === "authenticated") return undefined;
      const { orgId, roles } = call.caller;
      const snapshot = snapshots.known(orgId);
      if (!snapshot) return snapshots.of(orgId).then((read) => deny(read, call, operation, input));
      if (snapshot.policiesOf(roles, operation.action).length === 0) return undefined;
      return deny(snapshot, call, operation, input);
    },
  };
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
  for (const { name, action } of operations) {
    if (action === null || action === "authenticated" || isAction(action)) continue;
    throw new Error(`operation ${name} asks for an unknown action: ${action}`);
  }
}
