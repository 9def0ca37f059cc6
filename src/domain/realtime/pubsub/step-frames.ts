import { type Clock, rfc3339 } from "../../../kit/clock.ts";
import { columnsOf } from "../../../kit/columns.ts";
import type { Log } from "../../../kit/log.ts";
import { column, sql } from "../../../kit/sql.ts";
import { stepRowId } from "../../../kit/step-id.ts";
import type { Store } from "../../../store/store.ts";
import type { RowOf } from "../../../store/tables/index.ts";
import type { RunError } from "../../engine/runs/run.ts";
import type { StepMove, StepMoves } from "../../engine/runs/step-moves.ts";
import { type Frames, openLookupQueue } from "./frames.ts";

/** Steps of one look: few, because each row carries its output. */
const stepsSliceMax = 100;

/** Called after the commit. Costs nothing while step frames have no readers on any node. */
export interface StepFrames extends StepMoves {
  /** A person changed the step's output. */
  patched(step: StepMove): void;
}

interface StepAnnouncement extends StepMove {
  isPatch: boolean;
}

interface StepFrameRow
  extends RowOf<"steps", "name, type, status, error, started_at, ended_at, created_at, updated_at"> {
  ord: number;
  /** JSON texts. */
  output: string | null;
}

/** The verb of a step that is over, by its status. */
const endVerbs: Record<string, string> = { completed: "completed", failed: "failed", timed_out: "failed" };

/**
 * The frames of a change. A step was created, ended, or otherwise updated. Most steps are reported when they
 * are over: such a step was created and ended at once. A completed step that is reported again has no frame.
 */
export function verbsOf(
  { isPatch, at }: Pick<StepAnnouncement, "isPatch" | "at">,
  row: Pick<StepFrameRow, "status" | "created_at" | "updated_at">,
): string[] {
  if (isPatch) return ["patched"];
  const began = row.created_at === at;
  const verb = endVerbs[row.status] ?? (began ? undefined : "updated");
  return [...(began ? ["created"] : []), ...(verb !== undefined && row.updated_at === at ? [verb] : [])];
}

function payloadOf({ runId, stepId, at }: StepAnnouncement, row: StepFrameRow): string {
  const error = row.error === null ? undefined : (JSON.parse(row.error) as RunError);
  const head = JSON.stringify({
    id: stepRowId(runId, stepId),
    stepId,
    runId,
    name: row.name,
    type: row.type,
    status: row.status,
    ...(error && { error: { message: error.message, code: error.code } }),
    ...(row.started_at !== null && { startedAt: rfc3339(row.started_at) }),
    ...(row.ended_at !== null && { endedAt: rfc3339(row.ended_at) }),
    timestamp: rfc3339(at),
  });
  return row.output === null ? head : `${head.slice(0, -1)},"output":${row.output}}`;
}

export interface StepFramesDeps {
  store: Pick<Store, "all" | "seams">;
  clock: Pick<Clock, "elapsed" | "sleep">;
  log: Log;
  frames: Pick<Frames, "wants" | "send">;
}

/** `system.run.{run id}.step.{the SDK's step id}.{created|updated|completed|failed|patched}`. */
export function openStepFrames({ store, clock, log, frames }: StepFramesDeps): StepFrames {
  const look = openLookupQueue<StepAnnouncement>({
    clock,
    sliceMax: stepsSliceMax,
    onFailed: (error) => log.debug("frames.steps_unread", { error }),
    async look(announcements) {
      const { rowsFrom, byKey } = store.seams;
      const run_id = column.text(announcements.map((one) => one.runId));
      const rows =
        await store.all<StepFrameRow>(sql`SELECT v.ord, s.name, s.type, s.status, s.output, s.error, s.started_at,
          s.ended_at, s.created_at, s.updated_at
        FROM ${rowsFrom("v", {
          run_id,
          ...columnsOf(announcements, { text: "stepId environmentId" }),
        })} JOIN steps s ON s.run_id = v.run_id AND s.step_id = v.step_id AND s.environment_id = v.environment_id
          ${byKey("s.run_id", run_id)}
        ORDER BY v.ord`);
      for (const row of rows) {
        const one = announcements[row.ord - 1]!;
        for (const verb of verbsOf(one, row))
          frames.send(one.environmentId, {
            topic: `system.run.${one.runId}.step.${one.stepId}.${verb}`,
            data: payloadOf(one, row),
            at: one.at,
          });
      }
    },
  });

  const announce = (moves: readonly StepMove[], isPatch: boolean) =>
    look(
      moves.flatMap((move): [string, StepAnnouncement][] =>
        frames.wants("steps", move.environmentId)
          ? [[`${move.runId}\n${move.stepId}\n${move.at}\n${isPatch}`, { ...move, isPatch }]]
          : [],
      ),
    );

  return {
    wanted: () => frames.wants("steps"),
    publish: (moves) => announce(moves, false),
    patched(step) {
      if (frames.wants("steps")) announce([step], true);
    },
  };
}
