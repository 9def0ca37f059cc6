import { missing } from "../../../kit/fault.ts";
import { sql } from "../../../kit/sql.ts";
import type { Store } from "../../../store/store.ts";
import { type AttemptNote, attemptsOf, triesOf } from "./attempts.ts";
import { readRunLogs, type WrittenLines } from "./logs/read-logs.ts";
import { getRun } from "./rows.ts";

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

/** What a run tells of itself. */
export type RunStory = ReturnType<typeof openStory>;

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
