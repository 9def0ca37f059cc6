import { invalid } from "../../../../kit/fault.ts";
import { storedJson } from "../../../../kit/stored-json.ts";
import type { Store } from "../../../../store/store.ts";
import type { LogLine } from "../../logs/rules.ts";
import { logsOf } from "./log-rows.ts";

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
export async function readRunLogs(
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
