import { type CelBudget, CelError, type CelProgram, compileCel } from "../kit/cel/cel.ts";
import type { Instant } from "../kit/clock.ts";
import { irnOf, type Resource } from "./resource.ts";

/** The names that a condition may use; each is a map, see `conditionContext`. */
export const conditionVariables = ["subject", "request", "resource", "time"] as const;

export interface PolicySubject {
  /** Key or user id. */
  id: string;
  kind: string;
  orgId: string;
  roles: readonly string[];
}

export interface ConditionFacts {
  subject: PolicySubject;
  action: string;
  /** `runs.cancel`. */
  operation: string;
  /** Whether the operation changes nothing. */
  reads: boolean;
  resource: Resource;
  at: Instant;
}

/** A tenth of a filter's limit: one call may evaluate hundreds of conditions. */
const conditionItemsMax = 1_000;

/** Throws a CelError with the reason when the text is refused. */
export const compileCondition = (text: string): CelProgram =>
  compileCel(text, { variables: conditionVariables, result: "bool", itemsMax: conditionItemsMax });

const resourceContext = (resource: Resource) => ({
  irn: irnOf(resource),
  type: resource.type,
  id: resource.id,
  org_id: resource.orgId,
  project_id: resource.projectId,
  environment_id: resource.environmentId,
  environment: resource.environmentName,
});

/**
 * Names as users write them: `subject.roles`, `request.action`, `resource.environment`,
 * `time.now.getHours("Europe/Paris")`. `before` is the context of the same call for another resource, which
 * is reused.
 */
export function conditionContext(
  facts: ConditionFacts,
  before?: Record<string, unknown>,
): Record<string, unknown> {
  const { subject, resource, at } = facts;
  if (before) return { ...before, resource: resourceContext(resource) };
  const now = new Date(at);
  return {
    subject: { id: subject.id, kind: subject.kind, org_id: subject.orgId, roles: subject.roles },
    request: { action: facts.action, operation: facts.operation, reads: facts.reads },
    resource: resourceContext(resource),
    // UTC; `now` knows zones: `time.now.getHours("America/New_York")`.
    time: {
      now,
      hour: BigInt(now.getUTCHours()),
      minute: BigInt(now.getUTCMinutes()),
      weekday: BigInt(now.getUTCDay()),
    },
  };
}

export type ConditionOutcome = { holds: boolean; error?: string };

/**
 * A condition that cannot be evaluated counts as true: otherwise an error would allow what the policy denies.
 */
export function evaluateCondition(
  program: CelProgram,
  context: Record<string, unknown>,
  spent?: CelBudget,
): ConditionOutcome {
  try {
    const value = program.run(context, spent);
    if (typeof value === "boolean") return { holds: value };
    return { holds: true, error: "does not answer true or false" };
  } catch (error) {
    return { holds: true, error: error instanceof CelError ? error.message : "cannot be evaluated" };
  }
}
