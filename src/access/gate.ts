import { Fault } from "../kit/fault.ts";
import type { Caller } from "../kit/operation.ts";
import { isAction, roleGrants } from "./actions.ts";

/** Throws unless the caller's roles grant the action (spec.md 'Policy evaluation' step 1). */
export function gate(caller: Caller, action: string): void {
  if (!isAction(action)) throw new Error(`unknown action ${action}`);
  if (!roleGrants(caller.roles, action)) throw new Fault("permission_denied", "Insufficient permissions");
}
