import type { Instant } from "../../../kit/clock.ts";
import { columnsOf } from "../../../kit/columns.ts";
import { Fault } from "../../../kit/fault.ts";
import { column, sql } from "../../../kit/sql.ts";
import type { Session } from "../../../store/store.ts";
import { historyMs } from "./limits.ts";
import { type GenerationKey, type GenerationRow, type SessionReads, whereGeneration } from "./rows.ts";
import { noState, type StateRow } from "./state-rows.ts";

/** Keeps states as they were after the last event folded into them; without its time, as of the save. */
export async function record(
  session: Session,
  { environment_id, name, generation }: GenerationKey,
  states: readonly StateRow[],
): Promise<void> {
  const kept = states.filter(({ state }) => state !== null);
  if (kept.length === 0) return;
  await session.run(sql`INSERT INTO projection_history (environment_id, name, generation, partition_key, at, position,
      event_id, version, saved_at, state)
    SELECT ${environment_id}, ${name}, ${sql.bigint(generation)}, i.partition_key, i.at, i.position, i.event_id,
      i.version, i.saved_at, i.state
    FROM ${session.seams.rowsFrom("i", {
      ...columnsOf(kept, { text: "partition_key state", bigint: "version" }),
      at: column.bigint(kept.map((row) => row.last_event_at ?? row.updated_at)),
      position: column.bigint(kept.map((row) => row.last_position)),
      event_id: column.text(kept.map((row) => row.last_event_id)),
      saved_at: column.bigint(kept.map((row) => row.updated_at)),
    })} WHERE true
    ON CONFLICT (environment_id, name, generation, partition_key, at, position) DO UPDATE SET
      event_id = excluded.event_id, version = excluded.version, saved_at = excluded.saved_at, state = excluded.state`);
}

/**
 * The state of a partition as it was saved last with no event after `asOf`; undefined where nothing was
 * folded by then. Throws `failed_precondition` where no history is kept of that time.
 */
export async function stateAt(
  reads: Pick<SessionReads, "one">,
  generation: GenerationRow,
  { partition, asOf, now }: { partition: string; asOf: Instant; now: Instant },
): Promise<StateRow | undefined> {
  const since = generation.recorded_since;
  const refused = (why: string) =>
    new Fault("failed_precondition", `as_of: projection "${generation.name}" ${why}`, { field: "as_of" });
  if (since === null) throw refused("is not recording: register it with recording");
  if (asOf < since) throw refused(`is recording since ${new Date(since).toISOString()}`);
  if (asOf < now - historyMs) throw refused(`keeps the states of ${historyMs / 86_400_000} days`);
  const row = await reads.one<{
    at: Instant;
    position: number;
    event_id: string | null;
    version: number;
    saved_at: Instant;
    state: string;
  }>(sql`SELECT at, position, event_id, version, saved_at, state FROM projection_history
    WHERE ${whereGeneration(generation)} AND partition_key = ${partition} AND at <= ${sql.bigint(asOf)}
    ORDER BY at DESC, position DESC LIMIT 1`);
  return (
    row && {
      ...noState(partition),
      ...{ state: row.state, last_event_id: row.event_id, last_position: row.position },
      ...{ last_event_at: row.at, version: row.version, updated_at: row.saved_at },
    }
  );
}

/** Of each partition the newest state that is older than `before` stays: it is what holds then. */
export const forgetHistory = (session: Session, before: Instant, limit: number): Promise<number> =>
  session.run(sql`DELETE FROM projection_history
    WHERE (environment_id, name, generation, partition_key, at, position) IN (
      SELECT h.environment_id, h.name, h.generation, h.partition_key, h.at, h.position FROM projection_history h
      WHERE h.at < ${sql.bigint(before)} AND EXISTS (
        SELECT 1 FROM projection_history n
        WHERE n.environment_id = h.environment_id AND n.name = h.name AND n.generation = h.generation
          AND n.partition_key = h.partition_key AND (n.at, n.position) > (h.at, h.position)
          AND n.at <= ${sql.bigint(before)})
      ORDER BY h.at LIMIT ${limit})`);

export const deleteHistory = (session: Session, key: GenerationKey, limit: number): Promise<number> =>
  session.run(sql`DELETE FROM projection_history
    WHERE (environment_id, name, generation, partition_key, at, position) IN (
      SELECT environment_id, name, generation, partition_key, at, position FROM projection_history
      WHERE ${whereGeneration(key)} ORDER BY partition_key, at, position LIMIT ${limit})`);
