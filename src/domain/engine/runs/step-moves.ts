import type { Instant } from "../../../kit/clock.ts";
import { type Sql, sql } from "../../../kit/sql.ts";
import type { Session, Store } from "../../../store/store.ts";
import type { ExecutionChange } from "./execution/execution-change.ts";

/** A step that was created or changed; `at` is its `updated_at`. */
export interface StepMove {
  environmentId: string;
  runId: string;
  /** The id that the SDK made. */
  stepId: string;
  at: Instant;
}

/** Tells a step of one run from those of others. */
export const stepKey = (runId: string, stepId: string | null): string => `${runId}\n${stepId}`;

/** The receiver of changed steps. */
export interface StepMoves {
  wanted(): boolean;
  /** Called after the commit. */
  publish(moves: readonly StepMove[]): void;
}

/** Publishes the steps that a flush of reports wrote. */
export function publishReportedSteps(
  moves: StepMoves,
  changes: readonly ExecutionChange[],
  at: Instant,
): void {
  if (!moves.wanted()) return;
  moves.publish(
    changes.flatMap(({ environmentId, runId, steps, pending }) =>
      [...steps, ...(pending ? [pending] : [])].map(({ stepId }) => ({ environmentId, runId, stepId, at })),
    ),
  );
}

/** Steps that a running transaction changed; only while they are wanted. */
const noted = new WeakMap<Session, StepMove[]>();

/** Call this beside every change of a step in a transaction: the step is published after the commit. */
export function noteSteps(
  session: Session,
  moves: readonly { run_id: string; environment_id: string; step_id: string | null }[],
  at: Instant,
): void {
  const list = noted.get(session);
  if (!list) return;
  for (const { run_id: runId, environment_id: environmentId, step_id: stepId } of moves)
    if (stepId !== null) list.push({ runId, environmentId, stepId, at });
}

/** Wraps the store: each `write` publishes the steps it changed after its commit, while they are wanted. */
export const publishingSteps = (store: Store, steps: StepMoves): Store => ({
  ...store,
  async write(work) {
    if (!steps.wanted()) return store.write(work);
    let moves: StepMove[] = [];
    const result = await store.write(async (session) => {
      // A retried transaction starts over: only steps of the try that commits are published.
      moves = [];
      noted.set(session, moves);
      try {
        return await work(session);
      } finally {
        noted.delete(session);
      }
    });
    if (moves.length > 0) steps.publish(moves);
    return result;
  },
});

/**
 * How long a step took that ends at `now`: none where it began later by the clock of its worker, or by that
 * of a node which knows the time less well.
 */
export const tookUntil = (now: Instant): Sql => {
  const at = sql.bigint(now);
  return sql`CASE WHEN steps.started_at > ${at} THEN 0 ELSE ${at} - steps.started_at END`;
};
