import type { ConditionFacts } from "../../../gate/condition.ts";
import { compilePolicy, deniesAlone } from "../../../gate/policy.ts";
import type { Resource } from "../../../gate/resource.ts";
import type { Instant } from "../../../kit/clock.ts";
import type { Policy } from "./rows.ts";

export interface DryRun {
  /**
   * A stored policy to try; fields given here replace its own. A condition alone is tried on every action and
   * resource.
   */
  policyId?: string;
  actions?: string;
  resources?: string;
  condition?: string;
  subject: { id: string; kind: string; roles: readonly string[] };
  request: { action?: string; operation: string };
  resource: Omit<Resource, "orgId">;
  /** Which of the org's audited calls to try it on, besides. */
  past?: PastAsked;
}

export interface DryRunAnswer {
  /** Whether the policy would deny the call. */
  matched: boolean;
  conditionSource: string;
  compileError?: string;
  evalError?: string;
  past?: PastOutcome;
  /** Patterns that cannot match anything. */
  warnings: string[];
}

/** What the policy would have done to past calls. */
export interface PastOutcome {
  decisions: number;
  denied: number;
  /** Ids of the keys and users it would have denied. */
  subjects: string[];
}

/** The newest of an org's audited calls, from an instant on where there is one. */
export interface PastAsked {
  limit: number;
  since?: Instant;
}

/** A past call, from the audit. */
export interface PastDecision {
  facts: ConditionFacts;
  allowed: boolean;
}

const subjectsShown = 20;

/** The text to try: what the caller wrote, else the stored policy's, else everything. */
export const textToTry = (asked: DryRun, stored: Policy | undefined) => ({
  actions: asked.actions ?? stored?.actions ?? "*",
  resources: asked.resources ?? stored?.resources ?? "*",
  condition: (asked.condition ?? stored?.condition ?? "").trim(),
});

/** Tries a policy on a made-up call, and on past calls when `pastDecisions` is given; stores nothing. */
export async function tryPolicy(
  text: ReturnType<typeof textToTry>,
  asked: DryRun,
  {
    orgId,
    at,
    pastDecisions,
  }: {
    orgId: string;
    at: Instant;
    pastDecisions: (() => Promise<readonly PastDecision[]>) | undefined;
  },
): Promise<Pick<DryRunAnswer, "matched" | "compileError" | "evalError" | "past">> {
  const facts: ConditionFacts = {
    subject: { ...asked.subject, orgId },
    action: asked.request.action ?? "",
    operation: asked.request.operation,
    reads: /:(read|list|subscribe)$/.test(asked.request.action ?? ""),
    resource: { ...asked.resource, orgId },
    at,
  };
  let compiled: ReturnType<typeof compilePolicy>;
  try {
    compiled = compilePolicy({ id: "", name: "", ...text });
  } catch (error) {
    return { matched: false, compileError: (error as Error).message };
  }
  const named = asked.request.action === undefined || compiled.actions.has(asked.request.action);
  const { denied, error } = deniesAlone(compiled, facts);
  const past = pastDecisions && outcomeOf(compiled, await pastDecisions());
  return {
    matched: named && denied,
    ...(error !== undefined && { evalError: error }),
    ...(past && { past }),
  };
}

function outcomeOf(
  compiled: ReturnType<typeof compilePolicy>,
  decisions: readonly PastDecision[],
): PastOutcome {
  const subjects = new Set<string>();
  let denied = 0;
  for (const { facts, allowed } of decisions) {
    if (!allowed || !compiled.actions.has(facts.action)) continue;
    if (!deniesAlone(compiled, facts).denied) continue;
    denied++;
    if (subjects.size < subjectsShown) subjects.add(facts.subject.id);
  }
  return { decisions: decisions.length, denied, subjects: [...subjects] };
}
