import type { Instant } from "../../../kit/clock.ts";
import { columnsOf } from "../../../kit/columns.ts";
import { runFailedEvent } from "../../../kit/event-names.ts";
import type { Cursor } from "../../../kit/page.ts";
import type { Redaction } from "../../../kit/redact.ts";
import { fitting } from "../../../kit/slice-size.ts";
import { column, type Sql, sql } from "../../../kit/sql.ts";
import type { Session, Store } from "../../../store/store.ts";
import type { RowOf } from "../../../store/tables/index.ts";
import type { DeletedRuns, EndedStatus } from "./rules.ts";

/**
 * A slice of runs, oldest first. Failed and cancelled ones have an index; of completed ones the others are
 * read as well, so that a slice is bounded by what it reads.
 */
export function someRuns(
  store: Pick<Store, "all">,
  environmentId: string,
  { functionId, until }: DeletedRuns,
  slice: { statuses: readonly EndedStatus[]; after: Cursor | undefined; limit: number },
): Promise<{ id: string; created_at: Instant; status: string }[]> {
  const { statuses, after, limit } = slice;
  const where = [sql`environment_id = ${environmentId}`];
  if (functionId !== undefined) where.push(sql`function_id = ${functionId}`);
  if (until !== undefined) where.push(sql`created_at <= ${until}`);
  if (statuses.length === 1 && statuses[0] !== "completed") where.push(sql`trouble = ${statuses[0]}`);
  if (after) where.push(sql`(created_at, id) > (${sql.bigint(after.at)}, ${after.id})`);
  return store.all(sql`SELECT id, created_at, status FROM runs ${sql.where(where)}
    ORDER BY created_at, id LIMIT ${limit}`);
}

export type HeldRun = RowOf<"runs", "id, status, event_id, error_group, redacted_at, redacted_by">;

/** Locks: the rows of runs, sorted. A resume waits for them, and finds the run gone or redacted. */
export const holdRuns = (
  session: Session,
  environmentId: string,
  runIds: readonly string[],
): Promise<HeldRun[]> =>
  session.all(sql`SELECT id, status, event_id, error_group, redacted_at, redacted_by FROM runs
    WHERE id ${session.seams.among(column.text(runIds))} AND environment_id || '' = ${environmentId}
    ORDER BY id ${session.seams.holdRow}`);

/**
 * Those of them whose end another run is still to be told. A statement of its own: the one that waited for
 * the locks does not see what was committed meanwhile.
 */
export async function awaitedAmong(
  session: Session,
  environmentId: string,
  runIds: readonly string[],
): Promise<Set<string>> {
  const found = await session.all<{ id: string }>(sql`SELECT r.id FROM runs r
    WHERE r.id ${session.seams.among(column.text(runIds))} AND (
      EXISTS (SELECT 1 FROM child_ends c WHERE c.child_run_id = r.id)
      OR EXISTS (SELECT 1 FROM steps s JOIN executions e ON e.run_id = s.run_id
        WHERE s.run_id = r.parent_run_id AND s.step_id = r.parent_step_id AND s.status = 'waiting'
          AND COALESCE(s.child_run_id, r.id) = r.id)
      OR EXISTS (SELECT 1 FROM waits w WHERE w.environment_id = ${environmentId} AND w.place = 'run'
        AND w.met IS NULL AND w.subject = r.id))`);
  return new Set(found.map(({ id }) => id));
}

/**
 * Takes runs that are gone or redacted out of their groups: what nobody else failed with goes with them. A
 * failure that is counted meanwhile raises the count, which keeps its group.
 */
export async function leaveGroups(
  session: Session,
  environmentId: string,
  { groups, runIds }: { groups: readonly string[]; runIds: readonly string[] },
): Promise<void> {
  for (const id of [...new Set(groups)].sort()) {
    const group = sql`environment_id = ${environmentId} AND id = ${id}`;
    const found = await session.one<{ count: number; sample_run_id: string; other: string | null }>(
      sql`SELECT count, sample_run_id, (SELECT r.id FROM runs r WHERE r.environment_id = ${environmentId}
          AND r.error_group = ${id} ORDER BY r.created_at DESC, r.id DESC LIMIT 1) AS other
        FROM error_groups WHERE ${group}`,
    );
    if (!found) continue;
    if (found.other === null)
      await session.run(sql`DELETE FROM error_groups WHERE ${group} AND count = ${sql.bigint(found.count)}`);
    else if (runIds.includes(found.sample_run_id))
      await session.run(sql`UPDATE error_groups SET sample_run_id = ${found.other} WHERE ${group}
        AND sample_run_id = ${found.sample_run_id}`);
  }
}

const own = ({ at, by }: Redaction): Sql => sql`redacted_at = COALESCE(redacted_at, ${sql.bigint(at)}),
  redacted_by = CASE WHEN redacted_at IS NULL THEN ${by} ELSE redacted_by END`;

/** Steps of a run, or one of them. */
export const redactSteps = (
  session: Session,
  runId: string,
  redaction: Redaction,
  stepId?: string,
): Promise<number> =>
  session.run(sql`UPDATE steps SET output = NULL, error = NULL, original_output = NULL, input = NULL,
      updated_at = ${sql.bigint(redaction.at)}, ${own(redaction)}
    WHERE run_id = ${runId} ${stepId === undefined ? sql.empty : sql`AND step_id = ${stepId}`}`);

/** Rows of outputs that are written anew at once. */
const outputsAtOnceMax = 500;

/** Chunks of outputs, of one step or of all: as many as there were, each null. */
export async function redactOutputs(session: Session, runId: string, stepId?: string): Promise<void> {
  const found = await session.all<{ name: string; first: number; count: number }>(
    sql`SELECT name, first, count FROM run_outputs WHERE run_id = ${runId}
      ${stepId === undefined ? sql.empty : sql`AND step_id = ${stepId}`} ORDER BY name, first`,
  );
  for (let from = 0; from < found.length; from += outputsAtOnceMax) {
    const some = found.slice(from, from + outputsAtOnceMax);
    await session.run(
      sql`UPDATE run_outputs SET chunks = v.chunks FROM ${session.seams.rowsFrom("v", {
        ...columnsOf(some, { text: "name", bigint: "first" }),
        chunks: column.text(some.map(({ count }) => JSON.stringify(Array(count).fill(null)))),
      })} WHERE run_outputs.run_id = ${runId} AND run_outputs.name = v.name AND run_outputs.first = v.first`,
    );
  }
}

/** The row itself, signals that nobody took, and what it is found by: names stay, no search meets values. */
export async function redactRun(session: Session, runId: string, redaction: Redaction): Promise<void> {
  await session.run(sql`UPDATE run_signals SET data = NULL WHERE run_id = ${runId}`);
  await session.run(sql`UPDATE run_attributes SET value = ${redactedValue} WHERE run_id = ${runId}`);
  await session.run(sql`UPDATE runs SET output = NULL, error = NULL, error_group = NULL,
    updated_at = ${sql.bigint(redaction.at)}, ${own(redaction)} WHERE id = ${runId}`);
}

/** Stands between the letters that values begin with, so that only `exists` meets it. */
const redactedValue = "r";

type NamedStep = Pick<HeldRun, "redacted_at" | "redacted_by"> & { step_id: string; name: string };

export const stepsOf = (session: Session, runId: string): Promise<NamedStep[]> =>
  session.all(sql`SELECT step_id, name, redacted_at, redacted_by FROM steps WHERE run_id = ${runId}`);

export const touchRun = (session: Session, runId: string, at: Instant): Promise<number> =>
  session.run(sql`UPDATE runs SET updated_at = ${sql.bigint(at)} WHERE id = ${runId}`);

const notesAtOnceMax = 500;

/** Writes the notes of a run anew, so many bytes at once; what `made` answers undefined for stays. */
export async function rewriteNotes(
  session: Session,
  runId: string,
  made: (detail: string) => string | undefined,
): Promise<void> {
  const sizes = await session.all<{ environment_id: string; sequence: number; bytes: number }>(
    sql`SELECT environment_id, sequence, octet_length(detail) AS bytes FROM run_history WHERE run_id = ${runId} AND detail <> '{}'
      ORDER BY sequence`,
  );
  for (let left = sizes; left.length > 0; ) {
    const some = fitting(left.slice(0, notesAtOnceMax), ({ bytes }) => bytes);
    left = left.slice(some.length);
    const [first, last] = [some[0]!.sequence, some.at(-1)!.sequence];
    const notes = await session.all<{ sequence: number; detail: string }>(sql`SELECT sequence, detail
      FROM run_history WHERE run_id = ${runId} AND sequence >= ${first} AND sequence <= ${last}`);
    const changed = notes.flatMap(({ sequence, detail }) => {
      const text = made(detail);
      return text === undefined ? [] : [{ sequence, text }];
    });
    if (changed.length === 0) continue;
    await session.run(
      sql`UPDATE run_history SET detail = v.detail FROM ${session.seams.rowsFrom("v", {
        sequence: column.bigint(changed.map(({ sequence }) => sequence)),
        detail: column.text(changed.map(({ text }) => text)),
      })} WHERE run_history.run_id = ${runId} AND run_history.sequence = v.sequence`,
    );
  }
}

/** The same of the lines that its handler wrote, which are 64 KiB at most. */
export async function rewriteLines(
  session: Session,
  runId: string,
  made: (lines: string) => string | undefined,
): Promise<void> {
  const rows = await session.all<{ execution_seq: number; place: number; lines: string }>(
    sql`SELECT execution_seq, place, lines FROM run_logs WHERE run_id = ${runId}`,
  );
  for (const { execution_seq, place, lines } of rows) {
    const text = made(lines);
    if (text !== undefined)
      await session.run(sql`UPDATE run_logs SET lines = ${text}, bytes = ${sql.bigint(Buffer.byteLength(text))}
        WHERE run_id = ${runId} AND execution_seq = ${execution_seq} AND place = ${place}`);
  }
}

export interface ErasedEvent {
  id: string;
  name: string;
  entity_id: string | null;
}

export const eventOf = (
  store: Pick<Store, "one">,
  environmentId: string,
  eventId: string,
): Promise<ErasedEvent | undefined> =>
  store.one(sql`SELECT id, name, entity_id FROM events
    WHERE id = ${eventId} AND environment_id = ${environmentId}`);

/** Events that started a run, one or a batch, and the one that tells of its failure: those not redacted. */
export async function unredactedOf(
  { all, seams }: Pick<Store, "all" | "seams">,
  environmentId: string,
  run: Pick<HeldRun, "id" | "event_id">,
): Promise<string[]> {
  const batch = await all<{ event_id: string }>(
    sql`SELECT event_id FROM batch_events WHERE run_id = ${run.id}`,
  );
  const ids = new Set([run.event_id, ...batch.map(({ event_id: id }) => id)]);
  const found = await all<{
    id: string;
  }>(sql`SELECT id FROM events WHERE id ${seams.among(column.text([...ids]))}
      AND environment_id || '' = ${environmentId} AND redacted_at IS NULL
    UNION SELECT id FROM events WHERE environment_id = ${environmentId} AND run_id = ${run.id}
      AND name = ${runFailedEvent} AND redacted_at IS NULL ORDER BY id`);
  return found.map(({ id }) => id);
}

export const byId = (environmentId: string, eventId: string): Sql =>
  sql`id = ${eventId} AND environment_id = ${environmentId}`;

/**
 * Overwrites what has the payload of an event besides it: the request of a provider that it came with, and
 * messages to the mirror. Nodes that have read ahead for groups begin anew: a claim by the version before is
 * refused. Locks: groups, in the order of their names.
 */
export async function redactCopies(session: Session, environmentId: string, eventId: string): Promise<void> {
  const ofEvent = sql`environment_id = ${environmentId} AND event_id = ${eventId}`;
  await session.run(sql`UPDATE webhook_deliveries SET request_headers = '{}', request_body = '', body_whole = 0
    WHERE ${ofEvent}`);
  await session.run(sql`DELETE FROM outbox WHERE ${ofEvent} AND kind = 'mirror'`);
  const groups = sql`environment_id = ${environmentId} AND log = 'events'`;
  await session.all(sql`SELECT id FROM consumer_groups WHERE ${groups} ORDER BY namespace, name
    ${session.seams.holdRow}`);
  await session.run(sql`UPDATE consumer_groups SET version = version + 1 WHERE ${groups}`);
}

/**
 * Overwrites an event, and what else has its payload: snapshots of its stream, the request of a provider that
 * it came with, messages to the mirror. Locks: its stream, then the rest.
 */
export async function redactEvent(
  session: Session,
  environmentId: string,
  { id, entity_id: entityId }: ErasedEvent,
  redaction: Redaction,
): Promise<{ entity_version: number | null; redacted_at: Instant } | undefined> {
  if (entityId !== null)
    await session.one(sql`SELECT entity_id FROM streams WHERE environment_id = ${environmentId}
      AND entity_id = ${entityId} ${session.seams.holdRow}`);
  const row = await session.one<{ entity_version: number | null; redacted_at: Instant }>(
    sql`UPDATE events SET data = 'null', metadata = NULL, ${own(redaction)} WHERE ${byId(environmentId, id)}
      RETURNING entity_version, redacted_at`,
  );
  if (!row) return undefined;
  if (entityId !== null && row.entity_version !== null)
    await session.run(sql`DELETE FROM snapshots WHERE environment_id = ${environmentId}
      AND entity_id = ${entityId} AND entity_version >= ${row.entity_version}`);
  await redactCopies(session, environmentId, id);
  return row;
}
