import type { Instant } from "../../../kit/clock.ts";
import { type Ctes, column, type Sql, sql } from "../../../kit/sql.ts";
import type { Session, SyncSession } from "../../../store/store.ts";
import type { NewGate } from "../functions/start-options.ts";
import { ofSingleton } from "./deadlines.ts";
import type { NewRun } from "./run.ts";

/**
 * Gates let some of the runs that a flush asks for begin, and skip the others: at most so many in a period,
 * or one at a time. A gate is the row of a function and a key. The upsert locks it and reads its newest
 * version, so that the decision is exact on any number of nodes; it comes after the heads, sorted by gate.
 */
export const gateColumns = (runs: readonly NewRun[]) => ({
  gate_id: column.text(runs.map(({ gate }) => gate?.id ?? null)),
  gate_kind: column.text(runs.map(({ gate }) => gate?.kind ?? null)),
  gate_most: column.bigint(runs.map(({ gate }) => gate?.most ?? null)),
  gate_period_ms: column.bigint(runs.map(({ gate }) => gate?.periodMs ?? null)),
  gate_slice_ms: column.bigint(runs.map(({ gate }) => gate?.sliceMs ?? null)),
});

export const isGated = (runs: readonly NewRun[]): boolean => runs.some(({ gate }) => gate !== undefined);

/**
 * The rows of `asked_run` that pass, as `into`, and `passed` (id, granted, replaced). A start is noted at the
 * end of its slice of time, so that no window of the period ever has more than its limit. A singleton's run
 * whose row changed since the snapshot was started a moment ago: it counts as running.
 */
export const passGates = (into: "run" | "new_run", columns: readonly string[], now: Instant): Ctes => {
  const at = sql.bigint(now);
  return {
    "gate AS MATERIALIZED": sql`SELECT gate_id AS id, min(environment_id) AS environment_id, min(function_id) AS function_id,
        min(gate_kind) AS kind, count(*) AS asked, max(gate_most) AS most, max(gate_period_ms) AS period_ms,
        ${at} + max(gate_slice_ms) - 1 - (${at} + max(gate_slice_ms) - 1) % max(gate_slice_ms) AS slice_at,
        CASE min(gate_kind) WHEN 'skip' THEN (array_agg(id ORDER BY position, id))[1]
          WHEN 'cancel' THEN (array_agg(id ORDER BY position DESC, id DESC))[1] END AS run_id
      FROM asked_run WHERE gate_id IS NOT NULL GROUP BY gate_id ORDER BY gate_id`,
    "passed AS": sql`INSERT INTO start_gates AS g
        (id, environment_id, function_id, starts_at, starts, run_id, replaced, granted, expires_at)
      SELECT id, environment_id, function_id, '{' || slice_at || '}', '{' || LEAST(asked, most) || '}', run_id, NULL,
        LEAST(asked, most), slice_at + period_ms
      FROM gate ORDER BY id
      ON CONFLICT (id) DO UPDATE SET (starts_at, starts, run_id, replaced, granted, expires_at) = (
        SELECT CAST(CASE WHEN give.count > 0 THEN kept.ats || x.slice_at ELSE kept.ats END AS text),
          CAST(CASE WHEN give.count > 0 THEN kept.counts || give.count ELSE kept.counts END AS text),
          CASE WHEN give.count > 0 THEN x.run_id ELSE g.run_id END,
          CASE WHEN x.kind = 'cancel' THEN g.run_id END, give.count, x.slice_at + x.period_ms
        FROM gate x CROSS JOIN LATERAL (
          SELECT COALESCE(array_agg(u.at ORDER BY u.at), '{}') AS ats,
            COALESCE(array_agg(u.count ORDER BY u.at), '{}') AS counts, CAST(COALESCE(sum(u.count), 0) AS bigint) AS used
          FROM unnest(g.starts_at::bigint[], g.starts::bigint[]) u(at, count)
          WHERE x.kind = 'rate' AND u.at > ${at} - x.period_ms) kept
        CROSS JOIN LATERAL (SELECT CASE
          WHEN x.kind = 'rate' THEN GREATEST(LEAST(x.asked, x.most - kept.used), 0)
          WHEN x.kind = 'skip' AND (EXISTS (SELECT 1 FROM executions e WHERE e.run_id = g.run_id)
            OR g.run_id IS DISTINCT FROM (SELECT s.run_id FROM start_gates s WHERE s.id = g.id)) THEN 0
          ELSE 1 END AS count) give
        WHERE x.id = g.id)
      RETURNING g.id, g.environment_id, g.granted, g.replaced`,
    "replaced AS": insertReplaced(sql.raw("passed p"), now),
    [`${into} AS MATERIALIZED`]: sql`SELECT ${sql.raw(columns.map((name) => `b.${name}`).join(", "))} FROM (
        SELECT r.*, row_number() OVER (PARTITION BY r.gate_id
          ORDER BY CASE WHEN r.gate_kind = 'cancel' THEN -r.position ELSE r.position END, r.id) AS turn
        FROM asked_run r) b LEFT JOIN passed p ON p.id = b.gate_id
      WHERE b.gate_id IS NULL OR b.turn <= p.granted ORDER BY b.id`,
  };
};

/** `source`: rows `p` of gates that were passed. A run that is over by then is left alone. */
const insertReplaced = (source: Sql, now: Instant): Sql => sql`INSERT INTO run_deadlines
    (run_id, environment_id, cause, due_at)
  SELECT p.replaced, p.environment_id, ${sql.raw(`'${ofSingleton}'`)}, ${sql.bigint(now)} FROM ${source}
  WHERE p.replaced IS NOT NULL ON CONFLICT (run_id, cause) DO NOTHING`;

/** Ids of the runs of event `a.id` that did not pass. */
export const skippedRuns = sql.raw(`(SELECT json_agg(n.id) FROM asked_run n
      WHERE n.event_id = a.id AND n.gate_id IS NOT NULL AND n.id NOT IN (SELECT id FROM run)) AS skipped`);

interface GateRow {
  starts_at: string;
  starts: string;
  run_id: string | null;
}

/** The same for libSQL, of runs in the order of their events: answers the ids of those that do not pass. */
export function passGatesSync(session: SyncSession, runs: readonly NewRun[], now: Instant): Set<string> {
  const skipped = new Set<string>();
  const byGate = Map.groupBy(
    runs.filter(({ gate }) => gate !== undefined),
    ({ gate }) => gate!.id,
  );
  for (const [id, asked] of byGate) {
    const gate = asked[0]!.gate!;
    const row = session.one<GateRow>(sql`SELECT starts_at, starts, run_id FROM start_gates WHERE id = ${id}`);
    const kept = gate.kind === "rate" && row ? keptStarts(row, now - gate.periodMs) : [];
    const count = grantedSync(session, { gate, asked: asked.length, kept, runId: row?.run_id ?? null });
    const passing =
      gate.kind === "cancel" ? asked.slice(asked.length - count) : asked.slice(0, Math.max(0, count));
    for (const run of asked) if (!passing.includes(run)) skipped.add(run.id);
    const sliceAt = Math.ceil(now / gate.sliceMs) * gate.sliceMs;
    const starts = count > 0 ? [...kept, { at: sliceAt, count }] : kept;
    const holder = gate.kind !== "rate" && count > 0 ? passing[0]!.id : (row?.run_id ?? null);
    const { environmentId, functionId } = asked[0]!;
    session.run(sql`INSERT INTO start_gates
        (id, environment_id, function_id, starts_at, starts, run_id, replaced, granted, expires_at)
      VALUES (${id}, ${environmentId}, ${functionId}, ${textOf(starts.map((one) => one.at))},
        ${textOf(starts.map((one) => one.count))}, ${holder}, NULL, ${count}, ${sliceAt + gate.periodMs})
      ON CONFLICT (id) DO UPDATE SET starts_at = excluded.starts_at, starts = excluded.starts,
        replaced = CASE WHEN ${gate.kind} = 'cancel' THEN start_gates.run_id END, run_id = excluded.run_id,
        granted = excluded.granted, expires_at = excluded.expires_at`);
    if (gate.kind === "cancel" && row)
      session.run(insertReplaced(sql`(SELECT * FROM start_gates WHERE id = ${id}) p`, now));
  }
  return skipped;
}

function grantedSync(
  session: SyncSession,
  asked: { gate: NewGate; asked: number; kept: readonly { count: number }[]; runId: string | null },
): number {
  const { kind, most } = asked.gate;
  if (kind === "cancel") return 1;
  if (kind === "rate") {
    const used = asked.kept.reduce((sum, { count }) => sum + count, 0);
    return Math.max(0, Math.min(asked.asked, most - used));
  }
  const running =
    asked.runId !== null && session.one(sql`SELECT run_id FROM executions WHERE run_id = ${asked.runId}`);
  return running ? 0 : 1;
}

const textOf = (numbers: readonly number[]): string => `{${numbers.join(",")}}`;
const numbersOf = (text: string): number[] => JSON.parse(`[${text.slice(1, -1)}]`) as number[];

function keptStarts(row: GateRow, after: Instant): { at: number; count: number }[] {
  const counts = numbersOf(row.starts);
  return numbersOf(row.starts_at).flatMap((at, place) => (at > after ? { at, count: counts[place]! } : []));
}

/** Deletes at most `most` gates that count nothing any more; answers how many. */
export async function forgetGates(session: Session, now: Instant, most: number): Promise<number> {
  const over = await session.all<{ id: string }>(sql`SELECT id FROM start_gates g WHERE expires_at < ${now}
      AND NOT EXISTS (SELECT 1 FROM executions e WHERE e.run_id = g.run_id)
    ORDER BY id LIMIT ${most} ${session.seams.skipLocked}`);
  if (over.length === 0) return 0;
  return session.run(sql`DELETE FROM start_gates WHERE id IN ${sql.list(over.map((row) => row.id))}`);
}
