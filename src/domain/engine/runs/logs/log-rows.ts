import type { Instant } from "../../../../kit/clock.ts";
import { columnsOf } from "../../../../kit/columns.ts";
import { type Ctes, column, type Sql, sql } from "../../../../kit/sql.ts";
import type { Seams, Session, Store, SyncSession } from "../../../../store/store.ts";
import type { RowOf } from "../../../../store/tables/index.ts";
import type { LogRoom } from "../../logs/rules.ts";
import type { ExecutionChange } from "../execution/execution-change.ts";
import type { Fence } from "../run.ts";

interface Writing {
  execution_seq: number;
  attempt: number;
  worker_id: string | null;
}

const target =
  sql.raw(`run_logs (run_id, execution_seq, place, environment_id, attempt, worker_id, at, line_count,
  total, seen, bytes, lines)`);
const greatest = (one: string, other: string) => `CASE WHEN ${one} > ${other} THEN ${one} ELSE ${other} END`;
/** A report that was withdrawn after it was stored comes again, with more lines after the same ones. */
const longer = (name: string) =>
  `${name} = CASE WHEN excluded.line_count > run_logs.line_count THEN excluded.${name} ELSE run_logs.${name} END`;
const conflict = sql.raw(`ON CONFLICT (run_id, execution_seq, place) DO UPDATE SET
  total = ${greatest("run_logs.total", "excluded.total")}, seen = ${greatest("run_logs.seen", "excluded.seen")},
  ${longer("line_count")}, ${longer("bytes")}, ${longer("lines")}`);

const lineColumns = (list: readonly { change: ExecutionChange; report: number }[]) => ({
  report: column.bigint(list.map(({ report }) => report)),
  place: column.bigint(list.map(({ change }) => change.logs!.place)),
  line_count: column.bigint(list.map(({ change }) => change.logs!.count)),
  total: column.bigint(list.map(({ change }) => change.logs!.total)),
  seen: column.bigint(list.map(({ change }) => change.logs!.seen)),
  bytes: column.bigint(list.map(({ change }) => change.logs!.bytes)),
  lines: column.text(list.map(({ change }) => change.logs!.lines)),
});

const withLines = <One extends { change: ExecutionChange }>(list: readonly One[]) =>
  list.flatMap((one, at) => (one.change.logs ? { ...one, report: at + 1 } : []));

/** Stores the lines of the reports `valid`, as an expression of their statement; undefined for none. */
export function linesStored(
  changes: readonly ExecutionChange[],
  now: Instant,
  { rowsFrom }: Pick<Seams, "rowsFrom">,
): Ctes | undefined {
  const list = withLines(changes.map((change) => ({ change })));
  if (list.length === 0) return undefined;
  return {
    "written AS": sql`INSERT INTO ${target}
      SELECT v.run_id, v.execution_seq, l.place, v.environment_id, v.attempt, v.worker_id, ${sql.bigint(now)}, l.line_count,
        l.total, l.seen, l.bytes, l.lines
      FROM ${rowsFrom("l", lineColumns(list))} JOIN valid v ON v.ord = l.report
      ORDER BY v.run_id
      ${conflict}`,
  };
}

interface WithLines {
  change: ExecutionChange;
  row: Writing;
}

/** The same for libSQL, of reports whose fences hold. */
export function storeLines(session: SyncSession, valid: readonly WithLines[], now: Instant): void {
  const list = withLines(valid);
  if (list.length > 0) session.run(insertLines(session, list, now));
}

/** Of a report whose run was ended meanwhile, and whose steps are handed in. */
export async function storeLateLines(session: Session, late: WithLines, now: Instant): Promise<void> {
  const list = withLines([late]);
  if (list.length > 0) await session.run(insertLines(session, list, now));
}

const insertLines = (
  { seams }: Pick<Session, "seams">,
  list: readonly (WithLines & { report: number })[],
  now: Instant,
): Sql => sql`INSERT INTO ${target}
    SELECT l.run_id, l.execution_seq, l.place, l.environment_id, l.attempt, l.worker_id, ${sql.bigint(now)}, l.line_count, l.total, l.seen, l.bytes,
      l.lines
    FROM ${seams.rowsFrom("l", {
      ...lineColumns(list),
      ...columnsOf(
        list.map(({ row }) => row),
        { text: "worker_id", bigint: "execution_seq attempt" },
      ),
      run_id: column.text(list.map(({ change }) => change.runId)),
      environment_id: column.text(list.map(({ change }) => change.environmentId)),
    })} WHERE true ${conflict}`;

export interface WritingRun extends LogRoom {
  functionId: string;
  functionVersion: number;
}

/** Of runs whose reports bring lines: what they may write, and whose definition they follow; by run. */
export async function roomsOf(
  { all, seams }: Pick<Store, "all" | "seams">,
  fences: readonly (Fence & { environmentId: string })[],
): Promise<Map<string, WritingRun>> {
  const ids = column.text(fences.map(({ runId }) => runId));
  const found = await all<{
    run_id: string;
    function_id: string;
    function_version: number;
    lines: number;
    bytes: number;
  }>(sql`SELECT e.run_id, e.function_id, e.function_version,
      (SELECT CAST(COALESCE(sum(l.line_count), 0) AS BIGINT) FROM run_logs l WHERE l.run_id = e.run_id AND l.attempt = e.attempt) AS lines,
      (SELECT CAST(COALESCE(sum(l.bytes), 0) AS BIGINT) FROM run_logs l WHERE l.run_id = e.run_id) AS bytes
    FROM ${seams.rowsFrom("i", {
      run_id: ids,
      environment_id: column.text(fences.map(({ environmentId }) => environmentId)),
    })} JOIN executions e ON e.run_id = i.run_id AND e.environment_id || '' = i.environment_id ${seams.byKey("e.run_id", ids)}`);
  return new Map(
    found.map((row) => [
      row.run_id,
      {
        ...{ functionId: row.function_id, functionVersion: row.function_version },
        ...{ attemptLines: row.lines, runBytes: row.bytes },
      },
    ]),
  );
}

export interface LogRow
  extends RowOf<"run_logs", "execution_seq, place, attempt, worker_id, line_count, total"> {
  /** JSON text. */
  lines: string;
}

/** All of a run, which are bounded together; oldest first. */
export const logsOf = (
  { all }: Pick<Store, "all">,
  environmentId: string,
  runId: string,
): Promise<LogRow[]> =>
  all(sql`SELECT execution_seq, place, attempt, worker_id, line_count, total, lines FROM run_logs
    WHERE run_id = ${runId} AND environment_id || '' = ${environmentId} ORDER BY execution_seq, place`);
