import type { Instant } from "../../../kit/clock.ts";
import type { Session, Store } from "../../../store/store.ts";
import type { ExecutionChange } from "./execution/commit-reports.ts";

/** A step that came to be, or changed, at the time that its row has. */
export interface StepMove {
  environmentId: string;
  runId: string;
  /** The SDK's. */
  stepId: string;
  at: Instant;
}

/** Whoever wants to know of them. */
export interface StepMoves {
  wanted(): boolean;
  /** After the commit. */
  publish(moves: readonly StepMove[]): void;
}

/** What a flush of reports wrote. */
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

/** What a transaction that is under way did to steps, where somebody wants to know. */
const noted = new WeakMap<Session, StepMove[]>();

/** Beside every change of a step in a transaction: told once it is committed. */
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

/** A store that tells what its transactions did to steps, after the commit; while nobody wants that, the store as it is. */
export const publishingSteps = (store: Store, steps: StepMoves): Store => ({
  ...store,
  async write(work) {
    if (!steps.wanted()) return store.write(work);
    let moves: StepMove[] = [];
    const result = await store.write(async (session) => {
      // Of the try that is committed alone.
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
