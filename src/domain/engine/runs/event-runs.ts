import type { Instant } from "../../../kit/clock.ts";
import { column, sql } from "../../../kit/sql.ts";
import type { Store } from "../../../store/store.ts";
import type { RowOf } from "../../../store/tables/row.ts";
import { statusOf } from "./rules.ts";
import type { ExecutionState, RunError, RunStatus, StepStatus, StepType } from "./run.ts";

/** A run beside the event that started it, without payloads. */
export interface EventRun {
  id: string;
  functionId: string;
  status: RunStatus;
  startedAt: Instant | null;
  endedAt: Instant | null;
  steps: EventRunStep[];
}

export interface EventRunStep {
  stepId: string;
  name: string;
  type: StepType;
  status: StepStatus;
  durationMs: number | null;
  error: string | null;
}

/** Shown of one page of events; of more, the first in the order of the events. */
const runsShownMax = 1_000;
const stepsShownMax = 5_000;

interface EventRunRow extends RowOf<"runs", "id, event_id, function_id, status, started_at, ended_at"> {
  state: ExecutionState | null;
}

interface EventRunStepRow extends RowOf<"steps", "run_id, step_id, name, duration_ms, error"> {
  type: StepType;
  status: StepStatus;
}

/** The runs that these events started, with their steps, by the event's id. */
export async function runsOfEvents(
  store: Pick<Store, "all" | "seams">,
  environmentId: string,
  eventIds: readonly string[],
): Promise<Map<string, EventRun[]>> {
  const byEvent = new Map<string, EventRun[]>();
  if (eventIds.length === 0) return byEvent;
  const { rowsFrom, byKey } = store.seams;
  const runs = await store.all<EventRunRow>(sql`SELECT r.id, r.event_id, r.function_id, r.status, e.state,
      COALESCE(e.started_at, r.started_at) AS started_at, r.ended_at
    FROM ${rowsFrom("i", { id: column.text(eventIds) })} JOIN runs r ON r.event_id = i.id
      LEFT JOIN executions e ON e.run_id = r.id
    WHERE r.environment_id = ${environmentId} ORDER BY i.ord, r.created_at, r.id LIMIT ${runsShownMax}`);
  const byId = new Map<string, EventRun>();
  for (const row of runs) {
    const { status } = statusOf(row.status, row.state);
    const { id, function_id: functionId, started_at: startedAt, ended_at: endedAt } = row;
    const run: EventRun = { id, functionId, status, startedAt, endedAt, steps: [] };
    byId.set(id, run);
    const others = byEvent.get(row.event_id);
    if (others) others.push(run);
    else byEvent.set(row.event_id, [run]);
  }
  if (byId.size === 0) return byEvent;
  const run_id = column.text([...byId.keys()]);
  const steps =
    await store.all<EventRunStepRow>(sql`SELECT s.run_id, s.step_id, s.name, s.type, s.status, s.duration_ms, s.error
    FROM ${rowsFrom("i", { run_id })} JOIN steps s ON s.run_id = i.run_id ${byKey("s.run_id", run_id)}
    ORDER BY i.ord, s.sequence, s.created_at LIMIT ${stepsShownMax}`);
  for (const { run_id, step_id: stepId, name, type, status, duration_ms: durationMs, error } of steps)
    byId.get(run_id)?.steps.push({
      ...{ stepId, name, type, status, durationMs },
      error: error === null ? null : (JSON.parse(error) as RunError).message,
    });
  return byEvent;
}
