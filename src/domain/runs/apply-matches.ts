import { type Instant, rfc3339 } from "../../kit/clock.ts";
import { column, sql } from "../../kit/sql.ts";
import type { Session } from "../../store/store.ts";
import { keyed } from "./keyed.ts";
import { lanesOfRows, lockWaiting, type Resolution, resolveSteps, type WaitingRow } from "./resolve.ts";
import type { MatchedEvent, WaitRow } from "./waits.ts";
import { endRuns, type Lane } from "./wake.ts";

/** A wait and the first event that it matches. */
export interface Found {
  wait: WaitRow;
  event: MatchedEvent;
}

export interface Matches {
  environmentId: string;
  /** The matcher's place; null where only fresh waits were looked after, a part of the way. */
  cursor: { from: number; to: number } | null;
  found: readonly Found[];
  /** Fresh waits that were compared with the log up to there: to the cursor, or a part of the way. */
  compared: readonly { wait: WaitRow; to: number; isFresh: boolean }[];
}

export interface Applied {
  lanes: Lane[];
  cancelled: string[];
}

/**
 * One transaction of a matcher: runs are woken and cancelled, waits go, the cursor moves. Undefined when another node has
 * moved the cursor since the waits were read: nothing is changed then. Whoever was woken, resumed or ended since then is left
 * alone. Locks: the matcher's cursor (never waited for), then executions sorted by run, then their rows.
 */
export async function applyMatches(
  session: Session,
  matches: Matches,
  now: Instant,
): Promise<Applied | undefined> {
  const { environmentId, cursor, compared } = matches;
  if (cursor) {
    const held = await session.one<{ position: number }>(sql`SELECT position FROM matchers
      WHERE environment_id = ${environmentId} ${session.seams.skipLocked}`);
    if (held?.position !== cursor.from) return undefined;
  }
  const applied = await applyFound(session, matches.found, now);
  if (compared.length > 0)
    await session.run(sql`UPDATE waits SET fresh_at = CASE WHEN v.fresh IS NULL THEN NULL ELSE waits.fresh_at END,
        from_position = CASE WHEN waits.from_position < v.upto THEN v.upto ELSE waits.from_position END
      FROM ${rowsOf(
        session,
        "v",
        compared.map((c) => c.wait),
        {
          upto: column.bigint(compared.map((c) => c.to)),
          fresh: column.bigint(compared.map((c) => (c.isFresh ? 1 : null))),
        },
      )} WHERE ${isSame(
        session,
        compared.map((c) => c.wait),
      )}`);
  if (cursor && cursor.to !== cursor.from)
    await session.run(
      sql`UPDATE matchers SET position = ${cursor.to} WHERE environment_id = ${environmentId}`,
    );
  return applied;
}

async function applyFound(session: Session, found: readonly Found[], now: Instant): Promise<Applied> {
  if (found.length === 0) return { lanes: [], cancelled: [] };
  const locked = await lockWaiting(
    session,
    found.map(({ wait }) => wait.run_id),
  );
  const waits = found.map(({ wait }) => wait);
  const places = await placesOf(session, waits);
  // A wait that is there while its run does not wait at it was forgotten by somebody: it goes too.
  const there = found.filter((_, at) => places.has(at + 1));
  if (there.length > 0)
    await session.run(sql`DELETE FROM waits WHERE (${onRun(session, waits).on}, kind, step_id) IN (
      SELECT v.run_id, v.kind, v.step_id FROM ${rowsOf(
        session,
        "v",
        there.map(({ wait }) => wait),
      )}) ${onRun(session, waits).among}`);
  const texts = new Map<string, { place: number; text: string }>();
  const woken: Resolution[] = [];
  const cancelled = new Map<string, WaitingRow>();
  for (const { wait, event } of there) {
    const row = locked.get(wait.run_id);
    if (!row) continue;
    if (wait.kind === "cancel") {
      cancelled.set(row.run_id, row);
      continue;
    }
    if (row.state !== "waiting" || row.waiting_step_id !== wait.step_id) continue;
    const known = texts.get(event.id) ?? { place: texts.size + 1, text: eventJson(event) };
    texts.set(event.id, known);
    woken.push({
      row,
      stepId: wait.step_id,
      status: "completed",
      output: known.place,
      error: null,
      seenPosition: event.position,
      detail: JSON.stringify({ step_id: wait.step_id, event_id: event.id }),
    });
  }
  await resolveSteps(
    session,
    woken,
    [...texts.values()].map((known) => known.text),
    now,
  );
  const ended = [...cancelled.keys()];
  if (ended.length > 0)
    await endRuns(
      session,
      ended.map((runId) => ({ runId, status: "cancelled", error: null, cause: "cancel-on-event" })),
      now,
    );
  const queued = woken.map(({ row }) => row).filter((row) => !cancelled.has(row.run_id));
  return { lanes: lanesOfRows(queued), cancelled: ended };
}

const rowsOf = (
  session: Session,
  alias: string,
  waits: readonly WaitRow[],
  more: Parameters<Session["seams"]["rowsFrom"]>[1] = {},
) =>
  session.seams.rowsFrom(alias, {
    run_id: column.text(waits.map((w) => w.run_id)),
    kind: column.text(waits.map((w) => w.kind)),
    step_id: column.text(waits.map((w) => w.step_id)),
    from_position: column.bigint(waits.map((w) => w.from_position)),
    fresh_at: column.bigint(waits.map((w) => w.fresh_at ?? 0)),
    ...more,
  });

const onRun = (session: Session, waits: readonly WaitRow[]) =>
  keyed(
    session.seams,
    "waits.run_id",
    waits.map((w) => w.run_id),
  );

/** The row is still what was read, not one that the run made since. */
const isSame = (session: Session, waits: readonly WaitRow[]) => {
  const { on, among } = onRun(session, waits);
  return sql`${on} = v.run_id AND waits.kind = v.kind AND waits.step_id = v.step_id
    AND waits.from_position = v.from_position AND COALESCE(waits.fresh_at, 0) = v.fresh_at ${among}`;
};

/** Places, from 1, of the waits that are still there. */
async function placesOf(session: Session, waits: readonly WaitRow[]): Promise<Set<number>> {
  const rows = await session.all<{ ord: number }>(
    sql`SELECT v.ord FROM ${rowsOf(session, "v", waits)} JOIN waits ON ${isSame(session, waits)}`,
  );
  return new Set(rows.map((row) => row.ord));
}

/** What a handler gets for its wait (contract.md 4.2); payloads are spliced in as they are stored. */
function eventJson(event: MatchedEvent): string {
  const head = {
    id: event.id,
    name: event.name,
    version: event.version,
    timestamp: rfc3339(event.at),
    source: event.source,
    ...(event.idempotency_key !== null && { idempotencyKey: event.idempotency_key }),
  };
  const metadata = event.metadata === null ? "" : `,"metadata":${event.metadata}`;
  return `${JSON.stringify(head).slice(0, -1)},"data":${event.data}${metadata}}`;
}
