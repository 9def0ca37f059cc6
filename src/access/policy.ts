import type { CelProgram } from "../kit/cel.ts";
import { type Action, actions } from "./actions.ts";
import { type ConditionFacts, compileCondition, conditionContext, evaluateCondition } from "./condition.ts";
import { type PatternPlace, parsePattern, part, type ResourcePattern } from "./resource.ts";

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
  /** Whether it denies; a condition that fails denies too, and says why. */
  denies(facts: ConditionFacts, context: () => Record<string, unknown>): { denied: boolean; error?: string };
}

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

/** No pattern of use is longer, and every star may cost a look at every letter behind it. */
const actionPatternCharsMax = 64;

const isActionPattern = (pattern: string): boolean =>
  pattern.length <= actionPatternCharsMax && /^[a-z*:_-]+$/.test(pattern);

/** The actions that a pattern names; `*` stands for any run of characters. */
export function actionsMatching(pattern: string): Action[] {
  return isActionPattern(pattern) ? allActions.filter(part(pattern)) : [];
}

/** Throws PolicyError that names the field and what is wrong with it. */
export function compilePolicy(policy: PolicyText): CompiledPolicy {
  const actionPatterns = splitList(policy.actions);
  if (actionPatterns.length === 0) throw new PolicyError("actions", "at least one action");
  if (actionPatterns.length > patternsMax)
    throw new PolicyError("actions", `at most ${patternsMax} patterns`);
  const named = new Set<string>();
  for (const pattern of actionPatterns) {
    if (!isActionPattern(pattern))
      throw new PolicyError("actions", `"${pattern.slice(0, 80)}" is no action, and no pattern of any`);
    for (const action of actionsMatching(pattern)) named.add(action);
  }
  const resources = patternsOf(policy.resources);
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
    denies(facts, context) {
      if (!resources.some((pattern) => pattern.matches(facts.resource))) return { denied: false };
      if (!condition) return { denied: true };
      // Of all that a pattern stands for, one may be what the condition looks for.
      if (facts.resource.isPattern && policy.condition.includes("resource")) return { denied: true };
      const { holds, error } = evaluateCondition(condition, context());
      return error === undefined ? { denied: holds } : { denied: true, error };
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
        `"${one.slice(0, 80)}" is neither * nor irn:svc:{org}:{project}:{type}:{environment}:{resource}`,
      );
    return pattern;
  });
}

/** What of the policy can match nothing, in words for who wrote it: it is kept, and denies less than it seems to. */
export function policyWarnings(
  { actions: actionText, resources }: Pick<PolicyText, "actions" | "resources">,
  where: PatternPlace,
): string[] {
  const quoted = (pattern: string) => `"${pattern.slice(0, 80)}"`;
  return [
    ...splitList(actionText).flatMap((pattern) =>
      actionsMatching(pattern).length === 0 ? `actions: ${quoted(pattern)} names no action` : [],
    ),
    ...splitList(resources).flatMap((text) => {
      const warning = parsePattern(text)?.warning(where);
      return warning === undefined ? [] : `resources: ${quoted(text)} ${warning}`;
    }),
  ];
}

export interface Denial {
  policy: CompiledPolicy;
  /** Why the condition could not be judged. */
  error?: string;
}

/** The first policy that denies, of those that are looked at; answers after each whether it was one. */
export function* denials(
  policies: readonly CompiledPolicy[],
  facts: ConditionFacts,
): Generator<Denial | undefined> {
  let context: Record<string, unknown> | undefined;
  const lazily = () => {
    context ??= conditionContext(facts);
    return context;
  };
  for (const policy of policies) {
    const { denied, error } = policy.denies(facts, lazily);
    yield denied ? (error === undefined ? { policy } : { policy, error }) : undefined;
  }
}
