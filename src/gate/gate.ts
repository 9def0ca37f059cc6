import type { Clock } from "../kit/clock.ts";
import { Fault } from "../kit/fault.ts";
import type { Operation } from "../kit/operation.ts";
import type { Screen } from "../kit/screen.ts";
import { type Action, isAction, roleGrants } from "./actions.ts";
import { decidingOrgOf, type GatedCall, isPlatform, platformOrgId, ungranted } from "./gated-call.ts";
import { type EnvironmentScope, openJudge, type Question, screenFor } from "./judge.ts";
import type { AccessSnapshot } from "./snapshot.ts";
import { subjectOf } from "./subject.ts";

/**
 * The action that a platform credential must hold. For itself it is the operation's platform action. While it
 * impersonates an org it is `platform:impersonate`, or `platform:impersonate:read` for a read. The last word
 * of the action decides what is a read; where the operation has no action, the HTTP method does.
 */
function platformNeed(call: GatedCall, operation: Operation, action = operation.action): Action {
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
const isOpenToPlatform = ({ caller }: GatedCall, { platformAction }: Operation): boolean =>
  platformAction === "authenticated" && caller.impersonates !== true;

/**
 * The actions by which a deny policy may name the call: the action, and the platform action that it needs.
 */
function namesOf(call: GatedCall, operation: Operation, action: string): readonly string[] {
  if (!isPlatform(call)) return [action];
  const needed = platformNeed(call, operation, action);
  return needed === action ? [needed] : [action, needed];
}

export { AccessRefusal, type GatedCall, platformOrgId } from "./gated-call.ts";
export type { EnvironmentScope } from "./judge.ts";

/** The roles and policies that decide over calls in an org, cached for half a second at most. */
export interface Snapshots {
  /** Without waiting, when the cache holds one that is recent enough. */
  known(orgId: string): AccessSnapshot | undefined;
  of(orgId: string): Promise<AccessSnapshot>;
}

export interface GateDeps {
  snapshots: Snapshots;
  /** Undefined for an environment that is gone. */
  scopeOf: (environmentId: string) => Promise<EnvironmentScope | undefined>;
  clock: Pick<Clock, "now" | "elapsed" | "sleep">;
}

const free: readonly string[] = [];

/**
 * The other environment that the input names. A foreign org's is left out: a verdict would reveal that it
 * exists.
 */
async function otherEnvironmentOf(
  scopeOf: GateDeps["scopeOf"],
  { caller, environmentId }: GatedCall,
  { environmentOf }: Operation,
  input: unknown,
): Promise<string | undefined> {
  const named = environmentOf?.(input as never);
  if (!named || named === environmentId) return undefined;
  return (await scopeOf(named))?.orgId === caller.orgId ? named : undefined;
}

/**
 * Every call passes here: `gate` and `guard` return no promise while the org's snapshot is cached and has no
 * policies.
 */
export function openGate({ snapshots, scopeOf, clock }: GateDeps) {
  const judge = openJudge({ scopeOf, clock });

  /**
   * Moves the call into the org of the environment, for policies, audit and handler. Otherwise a platform
   * credential that impersonates one org and names another's environment would escape the policies of the
   * other.
   */
  async function moveTo(call: GatedCall, environmentId: string): Promise<void> {
    const place = await scopeOf(environmentId);
    if (!place || place.orgId === call.caller.orgId) return;
    call.caller = { ...call.caller, orgId: place.orgId };
    call.environmentId = environmentId;
  }

  async function requireAllowed(
    snapshot: AccessSnapshot,
    call: GatedCall,
    operation: Operation,
    { input, costs }: { input: unknown; costs: readonly string[] },
  ): Promise<void> {
    for (const action of costs) requireCost(snapshot, call, operation, action);
    const questions = questionsOf(call, operation, input, costs);
    const elsewhere = await otherEnvironmentOf(scopeOf, call, operation, input);
    if (elsewhere !== undefined)
      questions.push(...questions.map((question) => ({ ...question, environmentId: elsewhere })));
    const pace = judge.paceOf(call);
    for (const question of questions) {
      const refused = await judge.refusalOf(snapshot, call, operation, question, pace);
      if (!refused) continue;
      call.refusedBy = refused.rule;
      throw refused;
    }
  }

  const screenBy = (
    snapshot: AccessSnapshot,
    call: GatedCall,
    operation: Operation,
    asked: Pick<Question, "actions" | "type">,
  ): Screen | undefined =>
    isUnbound(snapshot, call, asked.actions) ? undefined : screenFor(judge, snapshot, call, operation, asked);

  function gatePlatform(call: GatedCall, operation: Operation): void | Promise<void> {
    if (isOpenToPlatform(call, operation)) return undefined;
    const needed = platformNeed(call, operation);
    if (call.caller.impersonates) requireEnvironment(call, operation);
    if (roleGrants(call.caller.roles, needed)) return undefined;
    const snapshot = snapshots.known(platformOrgId);
    if (snapshot) return requireGrant(snapshot, call, needed);
    return snapshots.of(platformOrgId).then((read) => requireGrant(read, call, needed));
  }

  function checkPolicies(call: GatedCall, operation: Operation, input: unknown): void | Promise<void> {
    const { action } = operation;
    if (action === null || (isPlatform(call) && isOpenToPlatform(call, operation))) return undefined;
    const costs = operation.costs?.(input as never) ?? free;
    if (action === "authenticated" && costs.length === 0 && !isPlatform(call)) return undefined;
    const { actions } = subjectOf(operation);
    const asked = isPlatform(call) ? actions.flatMap((one) => namesOf(call, operation, one)) : actions;
    const snapshot = snapshots.known(decidingOrgOf(call));
    if (!snapshot)
      return snapshots
        .of(decidingOrgOf(call))
        .then((read) => requireAllowed(read, call, operation, { input, costs }));
    if (costs.length === 0 && isUnbound(snapshot, call, asked)) return undefined;
    return requireAllowed(snapshot, call, operation, { input, costs });
  }

  return {
    /** First: throws unless the caller's roles grant the operation's action. */
    gate(call: GatedCall, operation: Operation): void | Promise<void> {
      if (call.caller.kind === "platform") return gatePlatform(call, operation);
      requireEnvironment(call, operation);
      const { action } = operation;
      if (action === null || action === "authenticated") return undefined;
      if (!isAction(action)) throw new Error(`unknown action ${action}`);
      // A tenant's own role may claim a platform action: its credential still is no platform credential.
      const isForbidden = action.startsWith("platform:") && call.caller.kind !== "dev";
      if (isForbidden && operation.special?.rolesFirst !== true) throw notOfPlatform(call);
      // Built-in roles need nothing from the store.
      const isBuiltIn = roleGrants(call.caller.roles, action);
      if (isBuiltIn && isForbidden) throw notOfPlatform(call);
      if (isBuiltIn) return undefined;
      const require = (read: AccessSnapshot) => {
        requireGrant(read, call, action);
        if (isForbidden) throw notOfPlatform(call);
      };
      const snapshot = snapshots.known(call.caller.orgId);
      return snapshot ? require(snapshot) : snapshots.of(call.caller.orgId).then(require);
    },

    /**
     * Then, with the input read: throws when a deny policy of the caller's roles holds for a resource that
     * the input names, or when the roles do not grant an action that the input costs besides the operation's
     * own.
     */
    guard(call: GatedCall, operation: Operation, input: unknown): void | Promise<void> {
      const crosses = operation.special?.crossesOrgs && call.caller.impersonates;
      const named = crosses ? operation.environmentOf?.(input as never) : undefined;
      if (!named) return checkPolicies(call, operation, input);
      return moveTo(call, named).then(() => checkPolicies(call, operation, input));
    },

    /**
     * The deny policies that may hide resources of a type from the caller, as of now; undefined when there
     * are none.
     */
    screen(call: GatedCall, operation: Operation, { action, type }: { action: string; type: string }) {
      const asked = { actions: namesOf(call, operation, action), type };
      const snapshot = snapshots.known(decidingOrgOf(call));
      if (snapshot) return screenBy(snapshot, call, operation, asked);
      return snapshots.of(decidingOrgOf(call)).then((read) => screenBy(read, call, operation, asked));
    },
  };
}

function notOfPlatform(call: GatedCall): Fault {
  call.refusedBy = "role";
  return new Fault("permission_denied", "platform credential required");
}

function requireEnvironment(call: GatedCall, operation: Operation): void {
  if (operation.scope === "none" || call.environmentId !== "") return;
  throw new Fault("permission_denied", "request has no environment scope");
}

function requireGrant(snapshot: AccessSnapshot, call: GatedCall, action: string): void {
  if (isAction(action) && snapshot.grants(call.caller.roles, action)) return;
  call.refusedBy = "role";
  throw ungranted(snapshot, call, action);
}

function requireCost(snapshot: AccessSnapshot, call: GatedCall, operation: Operation, action: string): void {
  const needed = isPlatform(call) ? platformNeed(call, operation, action) : action;
  if (!isAction(needed)) throw new Error(`unknown action ${needed}`);
  if (!roleGrants(call.caller.roles, needed)) requireGrant(snapshot, call, needed);
}

/** Whether no deny policy of the caller's roles names any of the actions. */
function isUnbound(snapshot: AccessSnapshot, { caller }: GatedCall, actions: readonly string[]): boolean {
  for (const action of actions) if (snapshot.policiesOf(caller.roles, action).length > 0) return false;
  return true;
}

/**
 * What deny policies are asked about an input: its subject, under each action, and the other resources that
 * it names.
 */
function questionsOf(
  call: GatedCall,
  operation: Operation,
  input: unknown,
  costs: readonly string[],
): Question[] {
  const { type, idsOf, thingsOf } = subjectOf(operation);
  const own = operation.action ?? "";
  const ids = idsOf(input);
  const first = [...ids];
  const questions: Question[] = [{ actions: namesOf(call, operation, own), type, ids: first }];
  for (const action of costs) questions.push({ actions: namesOf(call, operation, action), type, ids });
  for (const thing of thingsOf(input)) {
    const isAlike = thing.type === type && (thing.action ?? own) === own && !thing.isPattern;
    if (isAlike) first.push(thing.id);
    else
      questions.push({
        actions: namesOf(call, operation, thing.action ?? own),
        type: thing.type,
        ids: [thing.id],
        isPattern: thing.isPattern,
        // What stands outside any environment reaches all of them, whatever the caller's own is.
        ...(thing.isPattern && operation.scope === "none" && { environmentId: "" }),
      });
  }
  return questions;
}

/** Runs at the start: a misspelt action would otherwise be found only by the first call that needs it. */
export function requireKnownActions(operations: readonly Operation[]): void {
  for (const { name, action, platformAction, alsoAsks = [] } of operations) {
    for (const also of alsoAsks)
      if (!isAction(also)) throw new Error(`operation ${name} asks for an unknown action: ${also}`);
    if (platformAction !== undefined && platformAction !== "authenticated" && !isAction(platformAction))
      throw new Error(`operation ${name} asks for an unknown action: ${platformAction}`);
    if (action === null || action === "authenticated" || isAction(action)) continue;
    throw new Error(`operation ${name} asks for an unknown action: ${action}`);
  }
}
