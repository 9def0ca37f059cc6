import { Fault } from "../../../../kit/fault.ts";
import { roundRobin, type SharedWork, type Slice, type WorkScope } from "../../../../kit/round-robin.ts";
import { invokeKey } from "../../../../kit/step-id.ts";
import type { Basics } from "../../../../store/store.ts";
import { childrenSliceMax } from "../limits.ts";
import type { QueueHint } from "../wakes/due.ts";
import * as rows from "./children-rows.ts";
import type { ResolvedRuns } from "./invokes.ts";

export interface ChildrenDeps extends Basics<"store" | "clock" | "log"> {
  /**
   * Logs an event for the function and starts its run; a repeated key answers the first. Faults say why it
   * will not.
   */
  invoke: (
    draft: {
      functionId: string;
      /** JSON text. */
      data: string;
      value: unknown;
      metadata: string | null;
      idempotencyKey: string | null;
      /** The key is the server's own: no caller can name it. */
      ownKey: true;
      /** The run that starts it, with that run's own depth. */
      parent: { runId: string; stepId: string; depth: number };
      /** Also one with event triggers. */
      anyFunction: boolean;
    },
    origin: { environmentId: string; source: string; runId: string | undefined },
  ) => Promise<{ runIds: string[] }>;
  onQueued: (lanes: readonly QueueHint[]) => void;
  onFailed: (runs: ResolvedRuns["failed"]) => void;
  /** Called after the commit when children ended that runs may wait for as a state. */
  onEnded: () => void;
}

/** Another node may claim an invocation this long after a node that has not finished it. */
const invocationClaimMs = 10_000;
const againMs = 1_000;

/** Refusals that a retry would meet again. */
const isRefusal = (error: unknown): error is Fault =>
  error instanceof Fault &&
  ["not_found", "failed_precondition", "invalid_argument", "already_exists", "permission_denied"].includes(
    error.kind,
  );

/** Runs that steps start: each is started once, and its end brings its parent on. */
export function openChildren(deps: ChildrenDeps) {
  const { store, clock, log, onQueued, onFailed, onEnded } = deps;

  const onResolved = (moved: ResolvedRuns) => {
    if (moved.lanes.length > 0) onQueued(moved.lanes);
    onFailed(moved.failed);
  };

  async function start(
    one: rows.Invocation,
  ): Promise<{ childRunId: string } | { refused: string } | undefined> {
    // Yielded again: its child is known.
    if (one.child_run_id !== null)
      return (await rows.isKept(store, one.child_run_id))
        ? { childRunId: one.child_run_id }
        : { refused: `the run ${one.child_run_id} that it started was deleted` };
    const data = one.input ?? "{}";
    try {
      const startedBefore =
        one.started_at <= clock.now() - invocationClaimMs / 2
          ? await rows.childStartedBefore(store, one, invokeKey(one.parent_run_id, one.step_id))
          : undefined;
      if (startedBefore !== undefined) return { childRunId: startedBefore };
      const { runIds } = await deps.invoke(
        {
          functionId: one.function_id,
          data,
          value: JSON.parse(data),
          metadata: null,
          idempotencyKey: invokeKey(one.parent_run_id, one.step_id),
          ownKey: true,
          parent: { runId: one.parent_run_id, stepId: one.step_id, depth: one.parent_depth },
          anyFunction: one.any_function !== null,
        },
        { environmentId: one.environment_id, source: "invoke", runId: one.parent_run_id },
      );
      const [childRunId] = runIds;
      return childRunId === undefined ? { refused: "no run was started" } : { childRunId };
    } catch (error) {
      if (isRefusal(error)) return { refused: error.message };
      log.warn("run.child_not_started", { runId: one.parent_run_id, functionId: one.function_id, error });
      return undefined;
    }
  }

  async function startSome(slice: Slice): Promise<number[]> {
    const now = clock.now();
    const { claimed, counts } = await store.write((session) =>
      rows.claimInvocations(session, { now, until: now + invocationClaimMs, slice }),
    );
    if (claimed.length === 0) return counts;
    const outcomes = await Promise.all(
      claimed.map(async (one) => ({ one, outcome: one.is_wanted === null ? undefined : await start(one) })),
    );
    const moved = await store.write((session) => rows.finishInvocations(session, outcomes, { now, againMs }));
    onResolved(moved);
    return counts;
  }

  async function resolveSome(slice: Slice): Promise<number[]> {
    const { counts, moved, isAwaited } = await store.write((session) =>
      rows.resolveParents(session, slice, clock.now()),
    );
    onResolved(moved);
    if (isAwaited) onEnded();
    return counts;
  }

  const work = (
    some: (slice: Slice) => Promise<number[]>,
    places: () => Promise<WorkScope[]>,
  ): SharedWork => ({
    async oldest(limit) {
      const [count = 0] = await some({ oldest: limit });
      return { found: count, taken: count };
    },
    scopes: places,
    claim: (turns) => some({ turns }),
  });
  const starts = work(startSome, () => rows.invocationEnvironments(store, clock.now()));
  const ends = work(resolveSome, () => rows.childEndEnvironments(store));

  return {
    /** The tick of loop `runs.children`: starts children, tells parents of ends. */
    async moveOnce() {
      await roundRobin([starts, ends], { clock, limit: childrenSliceMax });
    },
  };
}
