import { Fault } from "../kit/fault.ts";
import type { Caller, Operation } from "../kit/operation.ts";
import { isAction, roleGrants } from "./actions.ts";

/** Throws unless the caller's roles grant the action (spec.md 'Policy evaluation' step 1). */
export function gate(caller: Caller, action: string): void {
  if (!isAction(action)) throw new Error(`unknown action ${action}`);
  if (!roleGrants(caller.roles, action)) throw new Fault("permission_denied", "Insufficient permissions");
}

/** At the start, so that a misspelt action is found before anyone asks for it. */
export function requireKnownActions(operations: readonly Operation[]): void {
  for (const { name, action } of operations) {
    if (action === null || action === "authenticated" || isAction(action)) continue;
    throw new Error(`operation ${name} asks for an unknown action: ${action}`);
  }
}
