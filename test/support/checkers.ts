import { column, sql } from "../../src/kit/sql.ts";
import type { Store } from "../../src/store/store.ts";

/** What a checker needs of a database: reading it. Each answers the breaches that it found, so `[]` is what is hoped for. */
export type Checked = Pick<Store, "all" | "seams">;

/** An emit that was answered with 2xx. */
export interface AckedEmit {
  environmentId: string;
  eventId: string;
  runIds: readonly string[];
  position: number;
  idempotencyKey?: string;
}

/** A database may hold more breaches than anyone wants to read. */
const breachesMax = 20;

async function find<Row extends object>(
  store: Checked,
  query: Parameters<Store["all"]>[0],
  say: (row: Row) => string,
): Promise<string[]> {
  return (await store.all<Row>(query)).slice(0, breachesMax).map(say);
}

/** Every log: positions without a gap from its floor to its head, ids unique, time never going back, none above the head. */
export async function checkPositions(store: Checked): Promise<string[]> {
  const steps = await find<{ environment_id: string; position: number; before: number | null }>(
    store,
    sql`SELECT environment_id, position, before FROM (
      SELECT e.environment_id, e.position, e.at,
        LAG(e.position) OVER (PARTITION BY e.environment_id ORDER BY e.position) AS before,
        LAG(e.at) OVER (PARTITION BY e.environment_id ORDER BY e.position) AS at_before,
        CASE WHEN h.retention_floor > 1 THEN h.retention_floor ELSE 1 END AS floor
      FROM events e JOIN heads h ON h.environment_id = e.environment_id WHERE e.position >= h.retention_floor) step
    WHERE (before IS NULL AND position <> floor) OR position <> before + 1 OR at < at_before
    ORDER BY environment_id, position LIMIT ${breachesMax}`,
    (row) =>
      `${row.environment_id}: position ${row.position} follows ${row.before ?? "nothing"}, or is older than it`,
  );
  const heads = await find<{ environment_id: string; position: number; top: number | null }>(
    store,
    sql`SELECT h.environment_id, h.position, v.top FROM heads h LEFT JOIN (
        SELECT environment_id, MAX(position) AS top, MAX(at) AS at FROM events GROUP BY environment_id) v
      ON v.environment_id = h.environment_id
    WHERE COALESCE(v.top, CASE WHEN h.retention_floor > 0 THEN h.position ELSE 0 END) <> h.position
      OR v.at > h.last_at LIMIT ${breachesMax}`,
    (row) => `${row.environment_id}: the head says ${row.position}, the log ends at ${row.top}`,
  );
  const ids = await find<{ id: string; count: number }>(
    store,
    sql`SELECT id, COUNT(*) AS count FROM events GROUP BY id HAVING COUNT(*) > 1 LIMIT ${breachesMax}`,
    (row) => `event ${row.id} is there ${row.count} times`,
  );
  return [...steps, ...heads, ...ids];
}

/**
 * Every run is over, with its end and no execution, or has exactly one execution with a next wake that is not long past.
 * Queued ones wait for a worker as long as it takes.
 */
export async function checkRuns(
  store: Checked,
  { now, overdueMs = 5_000 }: { now: number; overdueMs?: number },
): Promise<string[]> {
  const over = sql.raw("('completed', 'failed', 'cancelled')");
  const runs = await find<{ id: string; status: string; state: string | null }>(
    store,
    sql`SELECT r.id, r.status, e.state FROM runs r LEFT JOIN executions e ON e.run_id = r.id
    WHERE (r.status = 'active' AND e.run_id IS NULL)
      OR (r.status IN ${over} AND (e.run_id IS NOT NULL OR r.ended_at IS NULL))
      OR (r.status <> 'active' AND r.status NOT IN ${over}) LIMIT ${breachesMax}`,
    (row) => `run ${row.id} is ${row.status}, its execution ${row.state ?? "gone"}`,
  );
  const executions = await find<{ run_id: string; state: string; wake_at: number; id: string | null }>(
    store,
    sql`SELECT e.run_id, e.state, e.wake_at, r.id FROM executions e LEFT JOIN runs r ON r.id = e.run_id
    WHERE r.id IS NULL OR e.wake_at IS NULL OR e.state NOT IN
        ('queued', 'leased', 'retrying', 'sleeping', 'waiting', 'invoking', 'held')
      OR (e.state <> 'queued' AND e.wake_at < ${now - overdueMs})
      OR (e.state = 'leased' AND (e.lease_hash IS NULL OR e.worker_id IS NULL)) LIMIT ${breachesMax}`,
    (row) =>
      `execution of run ${row.run_id} is ${row.state}, next wake ${row.wake_at}${row.id === null ? ", without a run" : ""}`,
  );
  return [...runs, ...executions];
}

/** Whoever waits for an event, or for a child, has what will wake it; nothing waits for a run that does not. */
export async function checkWaits(store: Checked): Promise<string[]> {
  const asleep = await find<{ run_id: string; state: string }>(
    store,
    sql`SELECT e.run_id, e.state FROM executions e
      LEFT JOIN steps s ON s.run_id = e.run_id AND s.step_id = e.waiting_step_id AND s.status = 'waiting'
      LEFT JOIN waits w ON w.run_id = e.run_id AND w.kind = 'wait' AND COALESCE(w.of_step, w.step_id) = e.waiting_step_id
      LEFT JOIN invocations i ON i.parent_run_id = e.run_id AND i.step_id = e.waiting_step_id
      LEFT JOIN runs c ON c.id = s.child_run_id
      LEFT JOIN child_ends d ON d.child_run_id = c.id
    WHERE (e.state = 'waiting' AND (s.step_id IS NULL OR w.run_id IS NULL))
      OR (e.state = 'invoking' AND (s.step_id IS NULL OR
        (i.step_id IS NULL AND d.child_run_id IS NULL AND COALESCE(c.status, 'none') <> 'active')))
    LIMIT ${breachesMax}`,
    (row) => `run ${row.run_id} is ${row.state}, and nothing will wake it but the time`,
  );
  const lost = await find<{ run_id: string; kind: string; state: string | null }>(
    store,
    sql`SELECT w.run_id, w.kind, e.state FROM waits w LEFT JOIN executions e ON e.run_id = w.run_id
    WHERE e.run_id IS NULL OR (w.kind = 'wait' AND (e.state <> 'waiting' OR e.waiting_step_id <> COALESCE(w.of_step, w.step_id)))
      OR (w.place IS NULL AND NOT EXISTS (SELECT 1 FROM matchers m WHERE m.environment_id = w.environment_id)) LIMIT ${breachesMax}`,
    (row) => `run ${row.run_id} has a ${row.kind}, its execution is ${row.state ?? "gone"}`,
  );
  const ahead = await find<{ environment_id: string; position: number; head: number }>(
    store,
    sql`SELECT m.environment_id, m.position, h.position AS head FROM matchers m JOIN heads h
      ON h.environment_id = m.environment_id WHERE m.position > h.position LIMIT ${breachesMax}`,
    (row) => `the matcher of ${row.environment_id} stands at ${row.position}, its log ends at ${row.head}`,
  );
  const twins = await find<{ parent_run_id: string; parent_step_id: string; count: number }>(
    store,
    sql`SELECT parent_run_id, parent_step_id, COUNT(*) AS count FROM runs WHERE parent_run_id IS NOT NULL
    GROUP BY parent_run_id, parent_step_id HAVING COUNT(*) > 1 LIMIT ${breachesMax}`,
    (row) => `step ${row.parent_step_id} of run ${row.parent_run_id} started ${row.count} runs`,
  );
  return [...asleep, ...lost, ...ahead, ...twins];
}

/**
 * The history of every run: numbered from 1 without a gap, created first, ended once and last when the run is over and not
 * at all before, fences rising from start to start, as long as the execution says.
 */
export async function checkHistory(store: Checked): Promise<string[]> {
  const rows = await store.all<{
    id: string;
    status: string;
    history_count: number | null;
    execution_seq: number;
    type: string | null;
    sequence: number | null;
    detail: string | null;
  }>(sql`SELECT r.id, r.status, e.history_count, COALESCE(e.execution_seq, r.execution_seq) AS execution_seq,
      h.type, h.sequence, h.detail
    FROM runs r LEFT JOIN executions e ON e.run_id = r.id LEFT JOIN run_history h ON h.run_id = r.id
    ORDER BY r.id, h.sequence`);
  const breaches: string[] = [];
  for (const [id, notes] of Map.groupBy(rows, (row) => row.id)) {
    const { status, history_count: count, execution_seq: fence } = notes[0]!;
    const types = notes.map((note) => note.type);
    const say = (what: string) => breaches.push(`run ${id} (${status}): ${what}: ${types.join(" ")}`);
    if (notes.some((note, place) => note.sequence !== place + 1)) say("its history has a gap");
    if (types[0] !== "run.created" || types.lastIndexOf("run.created") > 0) say("not created once and first");
    const ends = types.filter((type) => /^run\.(completed|failed|cancelled)$/.test(type ?? ""));
    const wanted = status === "active" ? [] : [`run.${status}`];
    // People may still patch a step of a run that is over.
    const last = types.findLast((type) => type !== "step.patched");
    if (ends.join() !== wanted.join() || (ends[0] && last !== ends[0])) say("not ended once and last");
    if (count !== null && count !== notes.length) say(`its execution counts ${count} entries`);
    const fences = notes
      .filter((note) => note.type === "run.started")
      .map((note) => (JSON.parse(note.detail ?? "{}") as { execution_seq?: number }).execution_seq ?? 0);
    if (fences.some((one, place) => one <= (fences[place - 1] ?? 0))) say("a fence did not rise");
    if ((fences.at(-1) ?? 0) !== fence) say(`the last start had another fence than ${fence}`);
  }
  return breaches.slice(0, breachesMax);
}

/** Every emit that was acked stands in its log once, at the position and with the runs that were answered, a key once. */
export async function checkOnce(store: Checked, acked: readonly AckedEmit[]): Promise<string[]> {
  const breaches: string[] = [];
  const keys = new Map<string, string>();
  for (const { environmentId, eventId, idempotencyKey } of acked) {
    const first = keys.get(`${environmentId} ${idempotencyKey}`);
    if (idempotencyKey === undefined) continue;
    if (first !== undefined && first !== eventId)
      breaches.push(`key ${idempotencyKey} was acked as ${first} and as ${eventId}`);
    keys.set(`${environmentId} ${idempotencyKey}`, eventId);
  }
  const sliceMax = 5_000;
  for (let from = 0; from < acked.length; from += sliceMax)
    breaches.push(...(await onceInSlice(store, acked.slice(from, from + sliceMax))));
  const twice = await find<{ environment_id: string; idempotency_key: string; count: number }>(
    store,
    sql`SELECT environment_id, idempotency_key, COUNT(*) AS count FROM events WHERE idempotency_key IS NOT NULL
    GROUP BY environment_id, idempotency_key HAVING COUNT(*) > 1 LIMIT ${breachesMax}`,
    (row) => `key ${row.idempotency_key} of ${row.environment_id} has ${row.count} events`,
  );
  return [...breaches, ...twice].slice(0, breachesMax);
}

async function onceInSlice(store: Checked, acked: readonly AckedEmit[]): Promise<string[]> {
  const input = store.seams.rowsFrom("i", { id: column.text(acked.map((one) => one.eventId)) });
  const found = await store.all<{
    ord: number;
    environment_id: string;
    position: number;
    key: string | null;
  }>(
    sql`SELECT i.ord, v.environment_id, v.position, v.idempotency_key AS key FROM ${input} JOIN events v ON v.id = i.id`,
  );
  const started = await store.all<{ ord: number; id: string }>(
    sql`SELECT i.ord, r.id FROM ${input} JOIN runs r ON r.event_id = i.id ORDER BY i.ord, r.id`,
  );
  const events = Map.groupBy(found, (row) => row.ord);
  const runs = Map.groupBy(started, (row) => row.ord);
  return acked.flatMap((one, place) => {
    const rows = events.get(place + 1) ?? [];
    const [row] = rows;
    if (!row || rows.length > 1) return [`acked event ${one.eventId} is there ${rows.length} times`];
    const ids = (runs.get(place + 1) ?? []).map((run) => run.id);
    const breaches: string[] = [];
    if (row.environment_id !== one.environmentId || row.position !== one.position)
      breaches.push(
        `event ${one.eventId} was acked at ${one.environmentId}/${one.position}, is at ${row.environment_id}/${row.position}`,
      );
    if (row.key !== (one.idempotencyKey ?? null))
      breaches.push(`event ${one.eventId} was acked with key ${one.idempotencyKey}, has ${row.key}`);
    if (ids.join() !== [...one.runIds].sort().join())
      breaches.push(`event ${one.eventId} was acked with runs ${one.runIds}, has ${ids}`);
    return breaches;
  });
}

/** All of them; acked emits are those of the whole life of the database or any part of it. */
export async function checkAll(
  store: Checked,
  { acked = [], now }: { acked?: readonly AckedEmit[]; now: number },
): Promise<string[]> {
  return [
    ...(await checkPositions(store)),
    ...(await checkRuns(store, { now })),
    ...(await checkWaits(store)),
    ...(await checkHistory(store)),
    ...(await checkOnce(store, acked)),
  ];
}
