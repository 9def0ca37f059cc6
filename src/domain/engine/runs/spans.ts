import type { Log } from "../../../kit/log.ts";
import { column, sql } from "../../../kit/sql.ts";
import { spanIdOf, type Tracer, traceIn } from "../../../kit/trace.ts";
import type { Store } from "../../../store/store.ts";
import type { RowOf } from "../../../store/tables/index.ts";
import { spanRunsMax, spanStepsMax, spansWaitingMax } from "./limits.ts";

interface TracedRun extends RowOf<"runs", "id, environment_id, status, attempt, created_at, ended_at"> {
  metadata: string | null;
}

type TracedStep = RowOf<"steps", "run_id, step_id, type, status, sequence, created_at, started_at, ended_at">;

/**
 * Spans of runs and their steps, made from what is stored once the run is over: its parts ran at any node,
 * and no node's memory holds days of waiting. A node that dies after the commit leaves the run without spans.
 */
export function openRunSpans({ store, tracer, log }: { store: Store; tracer: Tracer; log: Log }) {
  if (!tracer.on) return { ended() {}, drain: async () => {} };
  const waiting = new Set<string>();
  let looking: Promise<void> | undefined;

  async function look(runIds: readonly string[]): Promise<void> {
    const ids = store.seams.among(column.text(runIds));
    const runs =
      await store.all<TracedRun>(sql`SELECT r.id, r.environment_id, r.status, r.attempt, r.created_at, r.ended_at,
        v.metadata FROM runs r JOIN events v ON v.id = r.event_id WHERE r.id ${ids} AND v.metadata IS NOT NULL`);
    const traced = new Map(
      runs.flatMap((run) => {
        const trace = traceIn(run.metadata);
        return trace?.sampled && run.ended_at !== null ? [[run.id, { run, trace }] as const] : [];
      }),
    );
    if (traced.size === 0) return;
    for (const { run, trace } of traced.values())
      tracer.record({
        ...{ name: "run", parent: trace, spanId: spanIdOf(run.id) },
        ...{ startedAt: run.created_at, endedAt: run.ended_at ?? run.created_at },
        attributes: {
          "svc.run_id": run.id,
          "svc.environment_id": run.environment_id,
          "svc.run.status": run.status,
          "svc.run.attempts": run.attempt,
        },
        failed: run.status === "failed" ? "failed" : undefined,
      });
    const ofTraced = store.seams.among(column.text([...traced.keys()]));
    const steps =
      await store.all<TracedStep>(sql`SELECT run_id, step_id, type, status, sequence, created_at, started_at, ended_at
      FROM steps WHERE run_id ${ofTraced} ORDER BY run_id, sequence LIMIT ${spanStepsMax}`);
    for (const step of steps) {
      const { run, trace } = traced.get(step.run_id)!;
      const startedAt = step.started_at ?? step.created_at;
      tracer.record({
        name: "step",
        parent: { ...trace, spanId: spanIdOf(run.id) },
        spanId: spanIdOf(run.id, step.step_id),
        startedAt,
        endedAt: Math.max(startedAt, step.ended_at ?? run.ended_at ?? startedAt),
        attributes: {
          "svc.run_id": run.id,
          "svc.step.type": step.type,
          "svc.step.status": step.status,
          "svc.step.sequence": step.sequence,
        },
        failed: step.status === "failed" || step.status === "timed_out" ? step.status : undefined,
      });
    }
  }

  async function lookAll(): Promise<void> {
    while (waiting.size > 0) {
      const slice = [...waiting].slice(0, spanRunsMax);
      for (const id of slice) waiting.delete(id);
      await look(slice).catch((error) => log.warn("traces.runs_unread", { runs: slice.length, error }));
    }
    looking = undefined;
  }

  return {
    /** Called after the commit that ended the runs. */
    ended(runIds: readonly string[]) {
      for (const id of runIds) if (waiting.size < spansWaitingMax) waiting.add(id);
      if (!looking && waiting.size > 0) looking = lookAll();
    },
    /** Resolves once the spans of what has ended are made. */
    async drain() {
      await looking;
    },
  };
}
