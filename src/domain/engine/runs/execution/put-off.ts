import type { Clock } from "../../../../kit/clock.ts";
import { sql } from "../../../../kit/sql.ts";
import type { Store } from "../../../../store/store.ts";
import { deniedCodes } from "../rules.ts";
import type { Fence, PutOff } from "../run.ts";
import type { RunReport } from "./report.ts";

/** The pause between two tries doubles from `putOffMsMin` to `putOffMsMax`. */
export const putOffMsMin = 1_000;
export const putOffMsMax = 5 * 60 * 1000;
/** Tries in a row, about eight minutes, after which the run fails. */
export const putOffTriesMax = 10;

export const putOffMs = (tries: number): number =>
  Math.min(putOffMsMax, putOffMsMin * 2 ** Math.min(30, tries - 1));

/**
 * Rows of history that are looked back on: each try leaves one when it is claimed and one when it goes back.
 */
const rowsLookedAt = 4 * putOffTriesMax;
/** History rows between two tries of a job that reached no worker. */
const between: ReadonlySet<string> = new Set(["run.started", "run.released", "run.lease_expired"]);

/**
 * How many times in a row the run was put off, read from its history: this is rare, and a count in
 * `executions` would cost every claim a column.
 */
async function putOffTries(store: Pick<Store, "all">, { runId }: Pick<Fence, "runId">): Promise<number> {
  const rows = await store.all<{ type: string; detail: string }>(sql`SELECT type, detail FROM run_history
    WHERE run_id = ${runId} ORDER BY sequence DESC LIMIT ${rowsLookedAt}`);
  for (const { type, detail } of rows) {
    if (!between.has(type)) return 0;
    const { tries } = JSON.parse(detail) as { tries?: number };
    if (type === "run.released" && tries !== undefined) return tries;
  }
  return 0;
}

/** Whether a policy kept the run from the worker that was to have it last. */
export async function wasDenied(store: Pick<Store, "one">, runId: string): Promise<boolean> {
  const row = await store.one<{ type: string; detail: string }>(sql`SELECT type, detail FROM run_history
    WHERE run_id = ${runId} ORDER BY sequence DESC LIMIT 1`);
  if (row?.type !== "run.released") return false;
  const { code } = JSON.parse(row.detail) as { code?: string };
  return code !== undefined && deniedCodes.includes(code);
}

export interface Unsent {
  /** The error's code, when the run fails. */
  code: string;
  message: string;
  /** The job is not to blame, as when the database does not answer: the run never fails by it. */
  isPassing: boolean;
}

export interface PutOffDeps {
  store: Pick<Store, "all">;
  clock: Pick<Clock, "now">;
  report: (report: RunReport) => Promise<void>;
  release: (fence: Fence & { environmentId: string }, putOff: PutOff) => Promise<void>;
}

/**
 * Returns a job that cannot be built to its queue, with a pause that doubles: without it the job would be
 * claimed at once again, and each claim adds rows to its history. The last try fails the run. Answers the
 * number of the try, and whether it was the last.
 */
export const openPutOff =
  ({ store, clock, report, release }: PutOffDeps) =>
  async (
    fence: Fence & { environmentId: string },
    { code, message, isPassing }: Unsent,
  ): Promise<{ tries: number; failed: boolean }> => {
    const tries = (await putOffTries(store, fence)) + 1;
    const failed = tries >= putOffTriesMax && !isPassing;
    if (failed) {
      const error = { message, code, retryable: false };
      await report({ ...fence, outcome: { kind: "failed", error }, steps: [], stepOffset: undefined });
    } else await release(fence, { code, tries, until: clock.now() + putOffMs(tries) });
    return { tries, failed };
  };
