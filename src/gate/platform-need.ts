import { Fault } from "../kit/fault.ts";
import type { Operation } from "../kit/operation.ts";
import { type Action, isAction } from "./actions.ts";
import { type GatedCall, isPlatform } from "./gated-call.ts";

/**
 * The action that a platform credential must hold. For itself it is the operation's platform action. While it
 * impersonates an org it is `platform:impersonate`, or `platform:impersonate:read` for a read. The last word
 * of the action decides what is a read; where the operation has no action, the HTTP method does.
 */
export function platformNeed(call: GatedCall, operation: Operation, action = operation.action): Action {
  const { caller, method } = call;
  const { platformAction } = operation;
  if (caller.impersonates) {
    const isRead =
      action === null || action === "authenticated"
        ? method === undefined || ["GET", "HEAD", "OPTIONS"].includes(method)
        : method !== "HEAD" && /:(read|list|subscribe)$/.test(action);
    return isRead ? "platform:impersonate:read" : "platform:impersonate";
  }
  // What an input costs of the platform besides is asked for by its own name.
  const own = action?.startsWith("platform:") ? action : (platformAction ?? action);
  if (own === null || !isAction(own) || !own.startsWith("platform:")) {
    call.refusedBy = "role";
    throw new Fault("permission_denied", "a platform credential must name an org: X-Svc-Org");
  }
  // On a path that also has a write, HEAD needs the right to write.
  const written = own.replace(/:read$/, ":manage");
  const isMapped = platformAction === undefined || own.startsWith("platform:keys:");
  return method === "HEAD" && isMapped && isAction(written) ? written : own;
}

/** Whether every platform credential may do this for itself. */
export const isOpenToPlatform = ({ caller }: GatedCall, { platformAction }: Operation): boolean =>
  platformAction === "authenticated" && caller.impersonates !== true;

/**
 * The actions by which a deny policy may name the call: the action, and the platform action that it needs.
 */
export function namesOf(call: GatedCall, operation: Operation, action: string): readonly string[] {
  if (!isPlatform(call)) return [action];
  const needed = platformNeed(call, operation, action);
  return needed === action ? [needed] : [action, needed];
}
