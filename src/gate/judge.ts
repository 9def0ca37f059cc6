import { type Breathe, breather } from "../kit/breather.ts";
import type { Clock } from "../kit/clock.ts";
import { invalid } from "../kit/fault.ts";
import type { Operation } from "../kit/operation.ts";
import type { Screen } from "../kit/screen.ts";
import { type AccessRefusal, type GatedCall, refusal } from "./gated-call.ts";
import { decisionOf } from "./policy.ts";
import type { Resource } from "./resource.ts";
import type { AccessSnapshot } from "./snapshot.ts";

/**
 * No resource has a longer name; policies are not asked about one, as every pattern may cost a look at every
 * letter.
 */
export const resourceNameCharsMax = 4 * 1024;
/** A call whose policies take longer than this to evaluate is refused. */
const decisionMsMax = 250;

/** The environment of a call as patterns name it. */
export interface EnvironmentScope {
  orgId: string;
  name: string;
  projectId: string | null;
}

/** Resources of one type, and the actions by which a policy may name what the call does to them. */
export interface Question {
  actions: readonly string[];
  type: string;
  ids: readonly string[];
  isPattern?: boolean | undefined;
  /** The environment of the resources; the call's own when left out. */
  environmentId?: string | undefined;
}

/** How long one call's decisions have held the event loop since its last pause, and in all. */
export interface DecisionPace {
  breathe: Breathe;
  since: number;
  spentMs: number;
}

/** A call yields the event loop only after its decisions have taken this long. */
const quickMs = 1;
/**
 * `refusalOf` reads the clock once per this many items that policies looked at: a read costs as much as some
 * of them.
 */
const uncheckedItemsMax = 25;

export type PolicyJudge = ReturnType<typeof openJudge>;

/** Asks an org's deny policies about resources. */
export function openJudge(deps: {
  scopeOf: (environmentId: string) => Promise<EnvironmentScope | undefined>;
  clock: Pick<Clock, "now" | "elapsed" | "sleep">;
}) {
  const { scopeOf, clock } = deps;

  return {
    paceOf({ caller }: GatedCall): DecisionPace {
      let own: Breathe | undefined;
      const breathe = () => {
        own ??= breather(clock, caller.orgId);
        return own();
      };
      return { breathe, since: clock.elapsed(), spentMs: 0 };
    },

    /** The refusal by the first deny policy that holds. Yields the event loop between bursts of decisions. */
    async refusalOf(
      snapshot: AccessSnapshot,
      call: GatedCall,
      { name, reads = false }: Operation,
      question: Question,
      pace: DecisionPace,
    ): Promise<AccessRefusal | undefined> {
      const { actions, type, ids, isPattern = false, environmentId = call.environmentId } = question;
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
            // Most decisions end within `quickMs`: they never reach a pause.
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
    },
  };
}

/** Names whose verdicts one screen remembers. */
const verdictsMax = 1_000;

/** Asks the deny policies about one name after another, and remembers the verdicts. */
export function screenFor(
  judge: PolicyJudge,
  snapshot: AccessSnapshot,
  call: GatedCall,
  operation: Operation,
  { actions, type }: Pick<Question, "actions" | "type">,
): Screen {
  const verdicts = new Map<string, AccessRefusal | undefined>();
  const pace = judge.paceOf(call);
  return {
    refusalOf(names, isPattern = false) {
      const key = `${isPattern ? "*" : ""}\n${names.join("\n")}`;
      if (verdicts.has(key)) return verdicts.get(key);
      // One call may ask for thousands of names, with pauses between them: the time limit is for each name.
      pace.spentMs = 0;
      const question = { actions, type, ids: names, isPattern };
      return judge.refusalOf(snapshot, call, operation, question, pace).then((refused) => {
        if (verdicts.size >= verdictsMax) verdicts.clear();
        verdicts.set(key, refused);
        return refused;
      });
    },
  };
}
