import { sql } from "../../src/kit/sql.ts";
import type { Store } from "../../src/store/store.ts";
import { inputOf, type Program, resultOf } from "./run-program.ts";

type Read = Pick<Store, "all">;

/** What people did to a run; a cancel only once the server said yes to it. */
export interface Steered {
  cancelled: boolean;
  /** What was written over the output of a step, each in place of what the step would say. */
  patched: { own: string; instead: string }[];
}

/** A run with its event's data, as checkers read it. */
export interface RunRow {
  id: string;
  function_id: string;
  status: string;
  output: string | null;
  error: string | null;
  data: string;
  parent_run_id: string | null;
  /** How often somebody let it go on after it had failed. */
  revived?: number;
  /** How often a resume ran steps again that had started a child. */
  remade?: number;
}

/** Whether a resume ran the step of an ancestor again: that step has another child then. */
function isAnotherChild(run: RunRow, byId: ReadonlyMap<string, RunRow>): boolean {
  const parent = run.parent_run_id === null ? undefined : byId.get(run.parent_run_id);
  return parent !== undefined && ((parent.remade ?? 0) > 0 || isAnotherChild(parent, byId));
}

/** Runs that are over have their program's result, or were cancelled by the person who did so; no input runs twice. */
export async function checkResults(
  store: Read,
  { programs, steered }: { programs: ReadonlyMap<string, Program>; steered: ReadonlyMap<string, Steered> },
): Promise<string[]> {
  const runs = await store.all<RunRow>(sql`SELECT r.id, r.function_id, r.status, r.output, r.error,
      r.parent_run_id, e.data, (SELECT COUNT(*) FROM run_history h WHERE h.run_id = r.id
        AND h.type = 'run.resumed' AND h.detail LIKE '{"from":"failed"%') AS revived,
      (SELECT COUNT(*) FROM run_history h WHERE h.run_id = r.id
        AND h.type = 'run.resumed' AND h.detail LIKE '%"type":"invoke_function"%') AS remade
    FROM runs r JOIN events e ON e.id = r.event_id ORDER BY r.id`);
  const breaches: string[] = [];
  const inputs = new Map<string, string>();
  const byId = new Map(runs.map((run) => [run.id, run]));
  for (const run of runs) {
    const program = programs.get(run.function_id);
    if (!program) continue;
    const input = inputOf(run.data);
    const key = `${run.function_id} ${input}`;
    const twin = inputs.get(key);
    if (twin && !isAnotherChild(run, byId)) breaches.push(`${key} runs twice: ${twin} and ${run.id}`);
    inputs.set(key, run.id);
    const { cancelled = false, patched = [] } = steered.get(run.id) ?? {};
    const byParent = run.parent_run_id !== null && steered.get(run.parent_run_id)?.cancelled === true;
    const wanted = resultOf(program, input, programs, run.revived);
    if (cancelled || (byParent && run.status === "cancelled")) {
      if (run.status !== "cancelled") breaches.push(`${run.id} (${key}) was cancelled and is ${run.status}`);
      continue;
    }
    if (run.status !== wanted.status) {
      breaches.push(`${run.id} (${key}) is ${run.status} instead of ${wanted.status}: ${run.error}`);
      continue;
    }
    if (wanted.status !== "completed") continue;
    // A patch may come after its step was read for the last time.
    const own = patched.reduce(
      (text, { own: said, instead }) => text.replaceAll(JSON.stringify(instead), JSON.stringify(said)),
      run.output ?? "",
    );
    if (own !== JSON.stringify(wanted.output))
      breaches.push(`${run.id} (${key}) answers ${run.output} instead of ${JSON.stringify(wanted.output)}`);
  }
  return breaches;
}

/** Lanes in which more runs are leased than their function's limit. */
export async function overfullLanes(store: Read): Promise<string[]> {
  const rows = await store.all<{ lane_id: string; count: number; lane_limit: number }>(sql`SELECT e.lane_id,
      count(*) AS count, max(f.lane_limit) AS lane_limit
    FROM executions e JOIN functions f ON f.environment_id = e.environment_id AND f.id = e.function_id
    WHERE e.state = 'leased' AND e.lane_id IS NOT NULL GROUP BY e.lane_id HAVING count(*) > max(f.lane_limit)`);
  return rows.map(({ lane_id, count, lane_limit }) => `${count} runs hold lane ${lane_id} of ${lane_limit}`);
}

/** Every ledger of cron balances, counts every slot since it began, and each slot that it calls fired has one run. */
export async function checkLedgers(store: Read): Promise<string[]> {
  const rows = await store.all<{
    function_id: string;
    expected: number;
    fired: number;
    missed: number;
    runs: number;
  }>(sql`SELECT s.function_id, s.expected_count AS expected, s.fired_count AS fired, s.missed_count AS missed,
      (SELECT COUNT(*) FROM runs r JOIN events e ON e.id = r.event_id WHERE r.function_id = s.function_id
        AND e.environment_id = s.environment_id AND e.source = 'cron'
        AND (s.next_at IS NULL OR CAST(SUBSTR(e.idempotency_key,
          LENGTH('cron:' || s.function_id || ':' || s.place || ':') + 1) AS BIGINT) < s.next_at)) AS runs
    FROM schedules s`);
  return rows.flatMap(({ function_id, expected, fired, missed, runs }) => [
    ...(expected === fired + missed
      ? []
      : [`cron of ${function_id}: ${expected} is not ${fired} + ${missed}`]),
    ...(runs === fired ? [] : [`cron of ${function_id}: ${fired} fired, ${runs} runs`]),
  ]);
}

/** How far the ledger of a function that is due every so many seconds is behind or before the time that has passed. */
export async function checkEverySlot(store: Read, functionId: string, seconds = 1): Promise<string[]> {
  const rows = await store.all<{ created_at: number; next_at: number; expected: number }>(
    sql`SELECT created_at, next_at, expected_count AS expected FROM schedules WHERE function_id = ${functionId}`,
  );
  return rows.flatMap(({ created_at, next_at, expected }) => {
    const everyMs = seconds * 1_000;
    const first = (Math.floor(created_at / everyMs) + 1) * everyMs;
    const slots = (next_at - first) / everyMs;
    return Math.abs(slots - expected) <= 1
      ? []
      : [`cron of ${functionId}: ${slots} slots, ${expected} counted`];
  });
}

/** Each burst that was quiet since has one run, for its last event; one more for each pause as long as the period. */
export async function checkDebounced(
  store: Read,
  {
    functionId,
    event,
    periodMs,
    bursts,
  }: {
    functionId: string;
    event: string;
    periodMs: number;
    /** Acked ids by the value at `data.burst`. */
    bursts: ReadonlyMap<string, readonly string[]>;
  },
): Promise<string[]> {
  const rows = await store.all<{ id: string; at: number; data: string; fired: string | null }>(
    sql`SELECT e.id, e.at, e.data, r.id AS fired FROM events e
      LEFT JOIN runs r ON r.event_id = e.id AND r.function_id = ${functionId}
    WHERE e.name = ${event} ORDER BY e.position`,
  );
  const found = Map.groupBy(rows, (row) => (JSON.parse(row.data) as { burst: string }).burst);
  return [...bursts].flatMap(([burst, acked]) => {
    const events = found.get(burst) ?? [];
    const ids = new Set(events.map(({ id }) => id));
    const lost = acked.filter((id) => !ids.has(id));
    const fired = events.filter((one) => one.fired !== null).length;
    const pauses = events.filter(
      ({ at }, place) => place > 0 && at - events[place - 1]!.at >= periodMs,
    ).length;
    return [
      ...lost.map((id) => `acked event ${id} of ${burst} is not there`),
      ...(fired >= 1 && fired <= 1 + pauses
        ? []
        : [`${burst} of ${events.length} events with ${pauses} pauses fired ${fired} times`]),
      ...(events.at(-1)?.fired === null ? [`the last event of ${burst} started nothing`] : []),
    ];
  });
}
