import { invalid, missing } from "../../../kit/fault.ts";
import { sql } from "../../../kit/sql.ts";
import { storedJson } from "../../../kit/stored-json.ts";
import type { Store } from "../../../store/store.ts";
import type { LogLine } from "../logs/rules.ts";
import { type AttemptNote, attemptsOf, triesOf } from "./attempts.ts";
import { logsOf } from "./logs/log-rows.ts";
import { getRun } from "./rows.ts";

export interface ShownLine extends LogLine {
  attempt: number;
  /** The worker that had the run. */
  workerId: string;
}

export interface WrittenLines {
  /** Oldest first. */
  lines: ShownLine[];
  /** Lines that were written beyond the bounds. */
  leftOut: number;
  /** Where to go on: later lines stand behind it. */
  cursor: string;
}

const cursorForm = /^(\d{1,10})\.(\d{1,10})$/;

function placeOf(cursor: string): [execution: number, place: number] {
  const [, execution, place] = cursorForm.exec(cursor) ?? [];
  if (execution === undefined) throw invalid("after", "is not the cursor of an earlier answer");
  return [Number(execution), Number(place)];
}

/** The lines of a run behind `after`; all of them are bounded. Empty of a run that is missing. */
async function readRunLogs(
  store: Pick<Store, "all">,
  environmentId: string,
  { runId, after }: { runId: string; after?: string | undefined },
): Promise<WrittenLines> {
  const from = after ? placeOf(after) : ([0, 0] as const);
  const rows = await logsOf(store, environmentId, runId);
  const totals = new Map<number, number>();
  let stored = 0;
  let end: readonly [number, number] = from;
  const lines: ShownLine[] = [];
  for (const row of rows) {
    totals.set(row.execution_seq, Math.max(totals.get(row.execution_seq) ?? 0, row.total));
    stored += row.line_count;
    const { attempt, worker_id: workerId } = row;
    for (const [at, line] of (storedJson<LogLine[]>(row.lines) ?? []).entries()) {
      const place = [row.execution_seq, row.place + at + 1] as const;
      if (place[0] < from[0] || (place[0] === from[0] && place[1] <= from[1])) continue;
      lines.push({ ...line, attempt, workerId: workerId ?? "" });
      end = place;
    }
  }
  const written = [...totals.values()].reduce((sum, total) => sum + total, 0);
  return {
    lines,
    leftOut: Math.min(2 ** 31 - 1, Math.max(0, written - stored)),
    cursor: `${end[0]}.${end[1]}`,
  };
}

/** Of a run that has more of them the newest are told; a row of tries may have 64 KiB. */
const notesMax = { attempts: 1_000, tries: 200 };

const ofAttempts =
  sql.raw(`type IN ('run.started', 'run.retrying', 'run.compensating', 'run.lease_expired', 'run.resumed',
  'run.paused', 'run.released', 'run.completed', 'run.failed', 'run.cancelled')`);
const ofTries = sql.raw(`(type = 'run.started' OR detail LIKE '%"failed":[{%')`);

async function notesOf(
  { all }: Pick<Store, "all">,
  { environmentId, runId, of }: { environmentId: string; runId: string; of: keyof typeof notesMax },
): Promise<AttemptNote[]> {
  const found = await all<AttemptNote>(sql`SELECT type, at, detail FROM run_history
    WHERE run_id = ${runId} AND environment_id = ${environmentId} AND ${of === "tries" ? ofTries : ofAttempts}
    ORDER BY sequence DESC LIMIT ${notesMax[of]}`);
  return found.reverse();
}

export const openStory = (store: Store) => ({
  attempts: async (environmentId: string, runId: string) =>
    attemptsOf(await notesOf(store, { environmentId, runId, of: "attempts" })),
  /** Tries of its steps that failed, by the step's id. */
  tries: async (environmentId: string, runId: string) =>
    triesOf(await notesOf(store, { environmentId, runId, of: "tries" })),
  /** What its handler wrote, behind the cursor `after`. */
  async logs(environmentId: string, runId: string, after?: string): Promise<WrittenLines> {
    const logs = await readRunLogs(store, environmentId, { runId, after });
    if (logs.lines.length === 0 && !(await getRun(store, environmentId, runId))) throw missing("run", runId);
    return logs;
  },
});
