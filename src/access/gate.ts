import { type Breathe, breather } from "../kit/breather.ts";
import type { Clock } from "../kit/clock.ts";
import { Fault, invalid } from "../kit/fault.ts";
import { decisionMsMax, resourceNameCharsMax } from "../kit/limits.ts";
import type { Caller, Operation, Screen } from "../kit/operation.ts";
import { type Action, isAction, roleGrants } from "./actions.ts";
import { decisionOf } from "./policy.ts";
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
export interface EnvironmentScope {
  orgId: string;
  name: string;
  projectId: string | null;
}

/** Whose roles and policies bind platform credentials. */
export const platformOrgId = "org_platform";

export interface GateDeps {
  snapshots: Snapshots;
  /** Undefined for an environment that is gone. */
  scopeOf: (environmentId: string) => Promise<EnvironmentScope | undefined>;
  clock: Pick<Clock, "now" | "elapsed" | "sleep">;
}

/** A call as the gate sees it. */
export interface GatedCall {
  caller: Caller;
  /** Empty outside any environment. */
  environmentId: string;
  /** Of the HTTP request. */
  method?: string;
  /** Which rule refused it, for the audit; set by the gate, as caller and environment of who impersonates another org are. */
  refusedBy?: string | undefined;
}

export interface Gate {
  /** Throws unless the caller's roles grant the operation's action. */
  gate(call: GatedCall, operation: Operation): void | Promise<void>;
  /**
   * Throws when a deny policy of the caller's roles holds for what the input is about (step 3), or when they do not grant what
   * the input costs besides.
   */
  guard(call: GatedCall, operation: Operation, input: unknown): void | Promise<void>;
  /** The deny policies that may keep things of a type from the caller, as of now; undefined when there are none. */
  screen(
    call: GatedCall,
    operation: Operation,
    asked: { action: string; type: string },
  ): Screen | undefined | Promise<Screen | undefined>;
}

/** A refusal by a rule, which the audit names. */
export class AccessRefusal extends Fault {
  readonly rule: string;

  constructor(message: string, rule: string) {
    super("permission_denied", message);
    this.rule = rule;
  }
}

/** Things of one type, and what policies may call what is done to them. */
interface Question {
  actions: readonly string[];
  type: string;
  ids: readonly string[];
  isPattern?: boolean | undefined;
  /** Where the things are; left out: where the call is. */
  environmentId?: string | undefined;
}

/** How long one call's decisions have held the event loop, and have taken in all. */
interface DecisionPace {
  breathe: Breathe;
  since: number;
  spentMs: number;
}

const free: readonly string[] = [];
/** A call yields the event loop only after its decisions have taken this long. */
const quickMs = 1;
/** The clock is looked at after policies have looked at so many items: a fraction of that time. */
const uncheckedItemsMax = 25;

export function openGate({ snapshots, scopeOf, clock }: GateDeps): Gate {
  const check = (snapshot: AccessSnapshot, call: GatedCall, action: string): void => {
    if (isAction(action) && snapshot.grants(call.caller.roles, action)) return;
    call.refusedBy = "role";
    throw refusal(call.caller, "role", `no role grants ${action}`);
  };

  const paceOf = ({ caller }: GatedCall): DecisionPace => {
    let own: Breathe | undefined;
    const breathe = () => {
      own ??= breather(clock, caller.orgId);
      return own();
    };
    return { breathe, since: clock.elapsed(), spentMs: 0 };
  };

  /** The refusal by the first policy that denies. Gives the event loop back after every burst. */
  async function judge(
    snapshot: AccessSnapshot,
    call: GatedCall,
    { name, reads = false }: Operation,
    { actions, type, ids, isPattern = false, environmentId = call.environmentId }: Question,
    pace: DecisionPace,
  ): Promise<AccessRefusal | undefined> {
    const { caller } = call;
    for (const action of actions) {
      const policies = snapshot.policiesOf(caller.roles, action);
      if (policies.length === 0) continue;
      const place = environmentId === "" ? undefined : await scopeOf(environmentId);
      const subject = { ...caller, roles: snapshot.wordsOf(caller.roles) };
      const decision = decisionOf(policies, { subject, action, operation: name, reads, at: clock.now() });
      let checkedAt = 0;
      for (const id of ids) {
        if (id.length > resourceNameCharsMax)
          throw invalid(type, `its name has at most ${resourceNameCharsMax} characters`);
        const resource: Resource = {
          orgId: caller.orgId,
          projectId: place?.projectId ?? "*",
          type,
          environmentId: environmentId || "*",
          environmentName: place?.name ?? "*",
          id,
          isPattern,
        };
        for (let at = 0; at < policies.length; at++) {
          const { denied, error } = decision.verdict(at, resource);
          if (denied) {
            const why = error === undefined ? "" : `, whose condition ${error}`;
            const { id: rule, name: policy } = policies[at]!;
            return refusal(caller, rule, `denied by policy "${policy}" (${rule})${why}`);
          }
          // Most decisions are over before anybody could wait for them.
          if (decision.items - checkedAt < uncheckedItemsMax) continue;
          checkedAt = decision.items;
          if (clock.elapsed() - pace.since < quickMs) continue;
          const pause = pace.breathe();
          if (!pause) continue;
          pace.spentMs += clock.elapsed() - pace.since;
          if (pace.spentMs > decisionMsMax)
            return refusal(
              caller,
              "policies",
              `the policies that name ${action} take longer than ${decisionMsMax} ms`,
            );
          await pause;
          pace.since = clock.elapsed();
        }
      }
    }
    return undefined;
  }

  const isPlatform = ({ caller }: GatedCall): boolean => caller.kind === "platform";
  /** Tenants' policies bind tenants; the platform's bind its credentials, wherever they act. */
  const orgOf = (call: GatedCall): string => (isPlatform(call) ? platformOrgId : call.caller.orgId);

  /** What is done may be named by its action, and by the platform action that this takes. */
  function wordsOf(call: GatedCall, operation: Operation, action: string): readonly string[] {
    if (!isPlatform(call)) return [action];
    const needed = platformNeed(call, operation, action);
    return needed === action ? [needed] : [action, needed];
  }

  /** The other environment that the input is about, when it is the caller's org's: about a foreign one nothing is told. */
  async function otherEnvironmentOf(
    { caller, environmentId }: GatedCall,
    { environmentOf }: Operation,
    input: unknown,
  ): Promise<string | undefined> {
    const named = environmentOf?.(input as never);
    if (!named || named === environmentId) return undefined;
    return (await scopeOf(named))?.orgId === caller.orgId ? named : undefined;
  }

  /** The call is one in the environment's org, for policies, audit and handler: it would escape the org's own otherwise. */
  async function follow(call: GatedCall, environmentId: string): Promise<void> {
    const place = await scopeOf(environmentId);
    if (!place || place.orgId === call.caller.orgId) return;
    call.caller = { ...call.caller, orgId: place.orgId };
    call.environmentId = environmentId;
  }

  function isUnbound(snapshot: AccessSnapshot, { caller }: GatedCall, actions: readonly string[]): boolean {
    for (const action of actions) if (snapshot.policiesOf(caller.roles, action).length > 0) return false;
    return true;
  }

  async function weigh(
    snapshot: AccessSnapshot,
    call: GatedCall,
    operation: Operation,
    { input, costs }: { input: unknown; costs: readonly string[] },
  ): Promise<void> {
    const { type, idsOf, thingsOf } = subjectOf(operation);
    const own = operation.action ?? "";
    const ids = idsOf(input);
    for (const action of costs) requireCost(snapshot, call, operation, action);
    const first = [...ids];
    const questions: Question[] = [{ actions: wordsOf(call, operation, own), type, ids: first }];
    for (const action of costs) questions.push({ actions: wordsOf(call, operation, action), type, ids });
    for (const thing of thingsOf(input)) {
      const isAlike = thing.type === type && (thing.action ?? own) === own && !thing.isPattern;
      if (isAlike) first.push(thing.id);
      else
        questions.push({
          actions: wordsOf(call, operation, thing.action ?? own),
          type: thing.type,
          ids: [thing.id],
          isPattern: thing.isPattern,
        });
    }
    const elsewhere = await otherEnvironmentOf(call, operation, input);
    if (elsewhere !== undefined)
      questions.push(...questions.map((question) => ({ ...question, environmentId: elsewhere })));
    const pace = paceOf(call);
    for (const question of questions) {
      const refused = await judge(snapshot, call, operation, question, pace);
      if (!refused) continue;
      call.refusedBy = refused.rule;
      throw refused;
    }
  }

  function requireCost(
    snapshot: AccessSnapshot,
    call: GatedCall,
    operation: Operation,
    action: string,
  ): void {
    const needed = isPlatform(call) ? platformNeed(call, operation, action) : action;
    if (!isAction(needed)) throw new Error(`unknown action ${needed}`);
    if (!roleGrants(call.caller.roles, needed)) check(snapshot, call, needed);
  }

  function screenBy(
    snapshot: AccessSnapshot,
    call: GatedCall,
    operation: Operation,
    { actions, type }: Pick<Question, "actions" | "type">,
  ): Screen | undefined {
    if (isUnbound(snapshot, call, actions)) return undefined;
    const verdicts = new Map<string, AccessRefusal | undefined>();
    const pace = paceOf(call);
    return {
      refusalOf(names) {
        const key = names.join("\n");
        if (verdicts.has(key)) return verdicts.get(key);
        // The loop is given back between many names too; each has its own time.
        pace.spentMs = 0;
        return judge(snapshot, call, operation, { actions, type, ids: names }, pace).then((refused) => {
          if (verdicts.size >= verdictsMax) verdicts.clear();
          verdicts.set(key, refused);
          return refused;
        });
      },
    };
  }

  /**
   * What a platform credential must hold: for itself what the operation says that takes, for a tenant the right to
   * impersonate, where reads by their action's word take the lesser one (proto/README.md 'Impersonation').
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
    const own = platformAction ?? action;
    if (own === null || !isAction(own) || !own.startsWith("platform:")) {
      call.refusedBy = "role";
      throw new Fault("permission_denied", "a platform credential must name an org: X-Svc-Org");
    }
    // Asking for the head of what one may read counts as a write (proto/README.md 'Impersonation'), where the
    // path has a write.
    const written = own.replace(/:read$/, ":manage");
    const isMapped = platformAction === undefined || own.startsWith("platform:keys:");
    return method === "HEAD" && isMapped && isAction(written) ? written : own;
  }

  /** What every credential of the platform may do for itself. */
  const isOpen = ({ caller }: GatedCall, { platformAction }: Operation): boolean =>
    platformAction === "authenticated" && caller.impersonates !== true;

  function gatePlatform(call: GatedCall, operation: Operation): void | Promise<void> {
    if (isOpen(call, operation)) return undefined;
    const needed = platformNeed(call, operation);
    if (call.caller.impersonates) requireEnvironment(call, operation);
    if (roleGrants(call.caller.roles, needed)) return undefined;
    const snapshot = snapshots.known(platformOrgId);
    if (snapshot) return check(snapshot, call, needed);
    return snapshots.of(platformOrgId).then((read) => check(read, call, needed));
  }

  function checkPolicies(call: GatedCall, operation: Operation, input: unknown): void | Promise<void> {
    const { action } = operation;
    if (action === null || (isPlatform(call) && isOpen(call, operation))) return undefined;
    const costs = operation.costs?.(input as never) ?? free;
    if (action === "authenticated" && costs.length === 0 && !isPlatform(call)) return undefined;
    const { actions } = subjectOf(operation);
    const asked = isPlatform(call) ? actions.flatMap((one) => wordsOf(call, operation, one)) : actions;
    const snapshot = snapshots.known(orgOf(call));
    if (!snapshot)
      return snapshots.of(orgOf(call)).then((read) => weigh(read, call, operation, { input, costs }));
    if (costs.length === 0 && isUnbound(snapshot, call, asked)) return undefined;
    return weigh(snapshot, call, operation, { input, costs });
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
      const crosses = operation.crossesOrgs && call.caller.impersonates;
      const named = crosses ? operation.environmentOf?.(input as never) : undefined;
      if (!named) return checkPolicies(call, operation, input);
      return follow(call, named).then(() => checkPolicies(call, operation, input));
    },

    screen(call, operation, { action, type }) {
      const asked = { actions: wordsOf(call, operation, action), type };
      const snapshot = snapshots.known(orgOf(call));
      if (snapshot) return screenBy(snapshot, call, operation, asked);
      return snapshots.of(orgOf(call)).then((read) => screenBy(read, call, operation, asked));
    },
  };
}

/** Names that one screen remembers its answers for. */
const verdictsMax = 1_000;

function requireEnvironment(call: GatedCall, operation: Operation): void {
  if (operation.scope === "none" || call.environmentId !== "") return;
  throw new Fault("permission_denied", "request has no environment scope");
}

/** Admins are told which rule it was; others get the bare words of the spec. */
function refusal(caller: Caller, rule: string, why: string): AccessRefusal {
  const isAdmin =
    roleGrants(caller.roles, "orgs:manage") || roleGrants(caller.roles, "platform:policies:manage");
  return new AccessRefusal(isAdmin ? `Insufficient permissions: ${why}` : "Insufficient permissions", rule);
}

/** At the start, so that a misspelt action is found before anyone asks for it. */
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
