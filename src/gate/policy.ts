import { CelBudget, type CelProgram } from "../kit/cel/cel.ts";
import { type Action, actions } from "./actions.ts";
import { type ConditionFacts, compileCondition, conditionContext, evaluateCondition } from "./condition.ts";
import { type PatternScope, parsePattern, part, type Resource, type ResourcePattern } from "./resource.ts";

/** A deny policy as it is stored. */
export interface PolicyText {
  id: string;
  name: string;
  /** Comma-separated action patterns: `runs:*, functions:register`. */
  actions: string;
  /** Comma-separated IRN patterns, or `*`. */
  resources: string;
  /** CEL; empty = always. */
  condition: string;
}

export interface CompiledPolicy {
  readonly id: string;
  readonly name: string;
  readonly actions: ReadonlySet<string>;
  /** The number of resource patterns, for the cost of a decision. */
  readonly patterns: number;
  /** Whether the condition reads `resource`; if not, its verdict for one resource holds for all. */
  readonly looksAtResource: boolean;
  isAbout(resource: Resource): boolean;
  /** Evaluates the condition, at the cost of `spent`. A condition that fails denies, and gives the reason. */
  denies(facts: ConditionFacts, context: () => Record<string, unknown>, spent?: CelBudget): PolicyVerdict;
}

export interface PolicyVerdict {
  denied: boolean;
  /** Why the condition could not be evaluated. */
  error?: string;
}

const denied: PolicyVerdict = { denied: true };
const allowed: PolicyVerdict = { denied: false };

export class PolicyError extends Error {
  readonly field: "actions" | "resources" | "condition";

  constructor(field: PolicyError["field"], message: string) {
    super(message);
    this.name = "PolicyError";
    this.field = field;
  }
}

const allActions = Object.keys(actions) as Action[];
const patternsMax = 50;

export const splitList = (text: string): string[] =>
  text
    .split(",")
    .map((one) => one.trim())
    .filter((one) => one !== "");

/**
 * Longer than any useful pattern. Each star may cost a scan of the letters after it, so the length bounds the
 * time.
 */
const actionPatternCharsMax = 64;

const isActionPattern = (pattern: string): boolean =>
  pattern.length <= actionPatternCharsMax && /^[a-z*:_-]+$/.test(pattern);

/** The actions that a pattern matches; `*` is any run of characters. */
export function actionsMatching(pattern: string): Action[] {
  return isActionPattern(pattern) ? allActions.filter(part(pattern)) : [];
}

/** Throws a PolicyError with the field and what is wrong with it. */
export function compilePolicy(policy: PolicyText): CompiledPolicy {
  const actionPatterns = splitList(policy.actions);
  if (actionPatterns.length === 0) throw new PolicyError("actions", "at least one action");
  if (actionPatterns.length > patternsMax)
    throw new PolicyError("actions", `at most ${patternsMax} patterns`);
  const named = new Set<string>();
  for (const pattern of actionPatterns) {
    if (!isActionPattern(pattern))
      throw new PolicyError(
        "actions",
        `invalid action pattern "${pattern.slice(0, 80)}" (an action such as runs:cancel, or runs:*)`,
      );
    for (const action of actionsMatching(pattern)) named.add(action);
  }
  const resources = patternsOf(policy.resources);
  const looksAtResource = policy.condition.includes("resource");
  let condition: CelProgram | undefined;
  if (policy.condition !== "")
    try {
      condition = compileCondition(policy.condition);
    } catch (error) {
      throw new PolicyError("condition", (error as Error).message);
    }
  return {
    id: policy.id,
    name: policy.name,
    actions: named,
    patterns: resources.length,
    looksAtResource,
    isAbout(resource) {
      for (const pattern of resources) if (pattern.matches(resource)) return true;
      return false;
    },
    denies(facts, context, spent) {
      if (!condition) return denied;
      // A pattern means many resources: the condition may hold for one of them.
      if (facts.resource.isPattern && looksAtResource) return denied;
      const { holds, error } = evaluateCondition(condition, context(), spent);
      return error !== undefined ? { denied: true, error } : holds ? denied : allowed;
    },
  };
}

function patternsOf(text: string): ResourcePattern[] {
  const texts = splitList(text);
  if (texts.length === 0) throw new PolicyError("resources", "at least one resource");
  if (texts.length > patternsMax) throw new PolicyError("resources", `at most ${patternsMax} patterns`);
  return texts.map((one) => {
    const pattern = parsePattern(one);
    if (!pattern)
      throw new PolicyError(
        "resources",
        `invalid resource pattern "${one.slice(0, 80)}" (* or irn:svc:{org}:{project}:{type}:{environment}:{resource})`,
      );
    return pattern;
  });
}

/**
 * Warnings about patterns that cannot match anything. The policy is stored, but it denies less than its
 * author expects.
 */
export function policyWarnings(
  { actions: actionText, resources }: Pick<PolicyText, "actions" | "resources">,
  where: PatternScope,
): string[] {
  const quoted = (pattern: string) => `"${pattern.slice(0, 80)}"`;
  return [
    ...splitList(actionText).flatMap((pattern) =>
      actionsMatching(pattern).length === 0 ? `actions: ${quoted(pattern)} matches no known action` : [],
    ),
    ...splitList(resources).flatMap((text) => {
      const warning = parsePattern(text)?.warning(where);
      return warning === undefined ? [] : `resources: ${quoted(text)} ${warning}`;
    }),
  ];
}

/** Whether one policy alone denies one resource. */
export const deniesAlone = (policy: CompiledPolicy, facts: ConditionFacts): PolicyVerdict =>
  policy.isAbout(facts.resource) ? policy.denies(facts, () => conditionContext(facts)) : allowed;

/** More than any call may spend: this budget counts, and never refuses. */
const uncounted = 1_000_000_000;
/** Patterns that are compared in the time of one item of a condition. */
const patternsAnItem = 8;

export interface Decision {
  /** What the policies looked at so far, in items of conditions. */
  readonly items: number;
  /** The verdict of the policy at this index of the list. */
  verdict(at: number, resource: Resource): PolicyVerdict;
}

/** Judges one action of one caller by deny policies, for one resource after the other. */
export function decisionOf(
  policies: readonly CompiledPolicy[],
  common: Omit<ConditionFacts, "resource">,
): Decision {
  const ofAll: (PolicyVerdict | undefined)[] = [];
  const spent = new CelBudget(uncounted);
  let context: Record<string, unknown> | undefined;
  let lookedAt: Resource | undefined;
  return {
    get items() {
      return uncounted - spent.left;
    },
    verdict(at, resource) {
      const policy = policies[at]!;
      spent.spend(policy.patterns / patternsAnItem);
      if (!policy.isAbout(resource)) return allowed;
      const known = ofAll[at];
      if (known) return known;
      const facts: ConditionFacts = { ...common, resource };
      const verdict = policy.denies(
        facts,
        () => {
          if (lookedAt !== resource) context = conditionContext(facts, context);
          lookedAt = resource;
          return context!;
        },
        spent,
      );
      if (!policy.looksAtResource) ofAll[at] = verdict;
      return verdict;
    },
  };
}
