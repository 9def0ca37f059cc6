import type { GrantedActions } from "../domain/access/sessions/operations.ts";
import { type Action, impersonated, knownActions } from "../gate/actions.ts";
import { openGate, platformOrgId } from "../gate/gate.ts";
import { ungranted } from "../gate/gated-call.ts";
import type { Call } from "../kit/operation.ts";
import type { IdentityPart } from "./identity.ts";
import type { Host } from "./part.ts";

export type AppRights = ReturnType<typeof openRights>;

/** What roles grant to callers, and what deny policies keep from them, for the gate and parts that ask. */
export function openRights(
  { clock }: Pick<Host, "clock">,
  { snapshots, tenancy }: Pick<IdentityPart, "snapshots" | "tenancy">,
) {
  /**
   * For a second right that an operation needs; a caller that impersonates needed the right to do so already.
   */
  const grants = async ({ caller }: Call, action: Action): Promise<boolean> =>
    caller.impersonates === true || (await snapshots.of(caller.orgId)).grants(caller.roles, action);
  const refusalOf = async (call: Call, action: Action, { type, id }: { type: string; id: string }) => {
    if (!(await grants(call, action))) return ungranted(await snapshots.of(call.caller.orgId), call, action);
    const screen = await call.screen(action, type);
    return screen?.refusalOf([id]);
  };
  const granted: GrantedActions = async ({ caller }) => {
    const isPlatform = caller.kind === "platform";
    const snapshot = await snapshots.of(isPlatform ? platformOrgId : caller.orgId);
    const own = knownActions.filter((action) => snapshot.grants(caller.roles, action));
    return caller.impersonates === true ? [...own, ...impersonated(own)] : own;
  };
  return {
    /** What every call passes before it is handled. */
    gate: openGate({ snapshots, scopeOf: tenancy.findEnvironment, clock }),
    granted,
    /**
     * Whether the caller's roles grant the action in the org that it acts in, and no deny policy keeps the
     * thing from it.
     */
    may: async (...asked: Parameters<typeof refusalOf>): Promise<boolean> =>
      (await refusalOf(...asked)) === undefined,
    /** The same; throws why not. */
    async require(...asked: Parameters<typeof refusalOf>): Promise<void> {
      const refused = await refusalOf(...asked);
      if (refused) throw refused;
    },
    /** Whether the caller runs the installation, or an org of it. */
    seesDetails: async (call: Call): Promise<boolean> =>
      call.caller.kind === "platform" || grants(call, "cluster:rotate-token"),
  };
}
