import type { Instant } from "../../../../kit/clock.ts";
import { columnsOf } from "../../../../kit/columns.ts";
import { environmentsDue, type WorkScope } from "../../../../kit/round-robin.ts";
import { column, type Sql, sql } from "../../../../kit/sql.ts";
import type { Session, Store } from "../../../../store/store.ts";
import { bucketOf, runPlace, type StateCondition, signalPlace, streamPlace } from "../../waits/rules.ts";
import { metOutputCharsMax } from "../limits.ts";

/** Queries of the loop `runs.states`; its writes are in apply-states.ts. */

/** One condition of a step that waits. */
export interface StateWait extends StateCondition {
  run_id: string;
  step_id: string;
  environment_id: string;
  /** When it is looked at without a change. */
  due_at: Instant | null;
  of_step: string;
  condition: string;
  mode: "any" | "all";
}

const waitColumns = sql.raw(
  "w.run_id, w.step_id, w.environment_id, w.place, w.subject, w.test, w.bound, w.wanted, w.due_at, w.of_step, w.condition, w.mode",
);
/** The condition of the partial index. */
const open = sql.raw("w.place IS NOT NULL AND w.met IS NULL");

/** A place where runs wait for something, and how far it is. */
export interface WaitedPlace {
  environment_id: string;
  place: string;
  bucket_id: string | null;
  /** The head of the log, or the revision of the bucket; null of a bucket that is not there. */
  end_at: number | null;
}

/** Every place that is waited for: a few index probes each, however many wait there. */
export function placesWaited(store: Store): Promise<WaitedPlace[]> {
  const next = (
    name: string,
    behind: Sql,
  ) => sql`(SELECT ${sql.raw(`w.${name}`)} FROM waits w WHERE ${open} ${behind}
      ORDER BY w.environment_id, w.place LIMIT 1)`;
  const behind = sql.raw("AND (w.environment_id, w.place) > (found.environment_id, found.place)");
  // Begins at a row of the table: a constant would have the database's collation, not that of the columns.
  return store.all<WaitedPlace>(sql`WITH RECURSIVE found(environment_id, place) AS (
      SELECT ${next("environment_id", sql.empty)}, ${next("place", sql.empty)}
      UNION ALL
      SELECT ${next("environment_id", behind)}, ${next("place", behind)} FROM found
      WHERE found.environment_id IS NOT NULL)
    ${placesFrom(sql.raw("f.environment_id IS NOT NULL"))}`);
}

/** The same of one environment. */
export function placesWaitedIn(store: Store, environmentId: string): Promise<WaitedPlace[]> {
  const next = (
    after: Sql,
  ) => sql`(SELECT w.place FROM waits w WHERE w.environment_id = ${environmentId} AND ${open}
      ${after} ORDER BY w.environment_id, w.place LIMIT 1)`;
  return store.all<WaitedPlace>(sql`WITH RECURSIVE found(environment_id, place) AS (
      SELECT CAST(${environmentId} AS TEXT), ${next(sql.empty)}
      UNION ALL
      SELECT found.environment_id, ${next(sql.raw("AND w.place > found.place"))} FROM found
      WHERE found.place IS NOT NULL)
    ${placesFrom(sql.raw("f.place IS NOT NULL"))}`);
}

/** Lookups a row, whatever the statistics say. */
function placesFrom(where: Sql): Sql {
  const ofBucket = (name: string) => sql`(SELECT ${sql.raw(`b.${name}`)} FROM kv_buckets b
        WHERE b.environment_id = f.environment_id AND b.name = substr(f.place, 5) AND b.deleted_at IS NULL LIMIT 1)`;
  const isBucket = sql.raw("substr(f.place, 1, 4) = 'key:'");
  return sql`SELECT f.environment_id, f.place, CASE WHEN ${isBucket} THEN ${ofBucket("id")} END AS bucket_id,
      CASE WHEN ${isBucket} THEN ${ofBucket("revision")} WHEN f.place = ${streamPlace}
        THEN (SELECT h.position FROM heads h WHERE h.environment_id = f.environment_id) END AS end_at
    FROM found f WHERE ${where} ORDER BY f.environment_id, f.place`;
}

/** Environments with waits that are to be looked at by now: new ones, and those of keys that expired. */
export async function environmentsWithDue(store: Store, now: Instant): Promise<string[]> {
  const scopes = await store.all<WorkScope>(
    environmentsDue({
      table: "waits",
      columns: sql.raw("d.run_id, d.step_id"),
      where: sql.raw("d.due_at IS NOT NULL"),
      dueAt: "due_at",
      until: now,
      scopeOrder: { dueAt: "due_at", by: ["due_at", "run_id", "step_id"] },
    }),
  );
  return scopes.map(({ environmentId }) => environmentId);
}

export const dueWaits = (
  store: Store,
  environmentId: string,
  now: Instant,
  limit: number,
): Promise<StateWait[]> =>
  store.all(sql`SELECT ${waitColumns} FROM waits w WHERE w.environment_id = ${environmentId}
    AND w.due_at IS NOT NULL AND w.due_at <= ${now} ORDER BY w.due_at, w.run_id, w.step_id LIMIT ${limit}`);

/** Where a walk over the waits of a place has come. */
export interface WalkedTo {
  subject: string;
  run_id: string;
  step_id: string;
}

export const waitsOfPlace = (
  store: Store,
  { environment_id: environmentId, place }: WaitedPlace,
  after: WalkedTo,
  limit: number,
): Promise<StateWait[]> =>
  store.all(sql`SELECT ${waitColumns} FROM waits w WHERE w.environment_id = ${environmentId} AND w.place = ${place}
      AND ${open} AND (w.subject, w.run_id, w.step_id) > (${after.subject}, ${after.run_id}, ${after.step_id})
    ORDER BY w.subject, w.run_id, w.step_id LIMIT ${limit}`);

/** Subjects that changed after `from`, in their order, and up to where that is complete. */
export async function changedAfter(
  store: Store,
  { environment_id: environmentId, bucket_id: bucketId, end_at }: WaitedPlace,
  from: number,
  limit: number,
): Promise<{ subjects: string[]; to: number }> {
  const end = end_at ?? from;
  const rows =
    bucketId === null
      ? await store.all<{
          subject: string | null;
          at: number;
        }>(sql`SELECT v.entity_id AS subject, v.position AS at
          FROM events v WHERE v.environment_id = ${environmentId} AND v.position > ${from} AND v.position <= ${end}
          ORDER BY v.position LIMIT ${limit}`)
      : await store.all<{ subject: string | null; at: number }>(sql`SELECT e.key AS subject, e.revision AS at
          FROM kv_keys e WHERE e.bucket_id || '' = ${bucketId} AND e.environment_id || '' = ${environmentId}
            AND e.revision > ${from} ORDER BY e.revision LIMIT ${limit}`);
  const subjects = new Set(rows.flatMap(({ subject }) => subject ?? []));
  const last = rows.at(-1)?.at ?? end;
  return { subjects: [...subjects], to: rows.length < limit ? Math.max(last, end) : last };
}

/** Subject by subject, whatever the statistics say. */
export function waitsAbout(
  { all, seams }: Store,
  { environment_id: environmentId, place }: WaitedPlace,
  subjects: readonly string[],
  limit: number,
): Promise<StateWait[]> {
  const from = seams.rowsFrom("i", { subject: column.text(subjects) });
  const same = sql`w.environment_id = ${environmentId} AND w.place = ${place} AND ${open} AND w.subject = i.subject`;
  const first = seams.firstOfPlace({
    ...{ table: "waits", alias: "w", columns: waitColumns, where: same, limit },
    order: sql.raw("w.environment_id, w.place, w.subject"),
  });
  return all(sql`SELECT ${waitColumns} FROM ${from} ${first} LIMIT ${limit}`);
}

/** What stands there, as far as the place has it. */
export interface FoundState {
  version: number | null;
  entity_type: string | null;
  revision: number | null;
  operation: "put" | "delete" | null;
  expires_at: Instant | null;
  is_equal: number | null;
  forgotten_revision: number | null;
  function_id: string | null;
  status: string | null;
  cause: string | null;
  /** Null where it is too long, or there is none. */
  output: string | null;
  output_chars: number | null;
  error: string | null;
}

/** All other places are buckets. */
const ownPlaces: ReadonlySet<string> = new Set([streamPlace, runPlace, signalPlace]);

const nothing: FoundState = {
  ...{ version: null, entity_type: null, revision: null, operation: null, expires_at: null, is_equal: null },
  ...{ forgotten_revision: null, function_id: null, status: null, cause: null, output: null },
  ...{ output_chars: null, error: null },
};

/** The states that these waits are about, as they are now. */
export async function statesOf(
  store: Store,
  waits: readonly StateWait[],
): Promise<Map<StateWait, FoundState>> {
  const states = new Map<StateWait, FoundState>();
  const read = async (own: readonly StateWait[], query: (from: Sql) => Sql) => {
    if (own.length === 0) return;
    const from = store.seams.rowsFrom("i", {
      ...columnsOf(own, { text: "environment_id run_id subject wanted" }),
      bucket: column.text(own.map((wait) => bucketOf(wait.place) ?? null)),
    });
    for (const { ord, ...row } of await store.all<Partial<FoundState> & { ord: number }>(query(from)))
      states.set(own[ord - 1]!, { ...nothing, ...row });
  };
  const of = Map.groupBy(waits, ({ place }) => (ownPlaces.has(place) ? place : "key"));
  await read(of.get(streamPlace) ?? [], streamStates);
  await read(of.get(runPlace) ?? [], runStates);
  await read(of.get("key") ?? [], (from) => keyStates(store, from));
  await read(of.get(signalPlace) ?? [], signalStates);
  return states;
}

const streamStates = (from: Sql): Sql => sql`SELECT i.ord, s.version, s.entity_type FROM ${from}
  JOIN streams s ON s.environment_id = i.environment_id AND s.entity_id = i.subject`;

/** A run that another one started is like one that does not exist. */
const runStates = (
  from: Sql,
): Sql => sql`SELECT i.ord, r.function_id, r.status, r.cancellation_cause AS cause, r.error,
    length(r.output) AS output_chars, CASE WHEN length(r.output) <= ${metOutputCharsMax} THEN r.output END AS output
  FROM ${from} JOIN runs r ON r.id = i.subject AND r.environment_id = i.environment_id AND r.parent_run_id = i.run_id`;

/** A row where the run keeps a signal of the name. */
const signalStates = (from: Sql): Sql => sql`SELECT i.ord FROM ${from}
  WHERE (SELECT k.sequence FROM run_signals k WHERE k.run_id = i.run_id AND k.name = i.subject
    AND k.taken_at IS NULL ORDER BY k.sequence LIMIT 1) IS NOT NULL`;

/** Key by key, whatever the statistics say; for a bucket without the key, how many deletions it forgot. */
function keyStates({ seams: { rowOf } }: Store, from: Sql): Sql {
  const ofBucket = sql.raw(
    "b.environment_id = i.environment_id AND b.name = i.bucket AND b.deleted_at IS NULL",
  );
  const ofKey = sql.raw("e.environment_id = i.environment_id AND e.bucket_id = b.id AND e.key = i.subject");
  return sql`SELECT i.ord, e.revision, e.operation, e.expires_at, b.forgotten_revision,
      CASE WHEN e.value = i.wanted THEN 1 END AS is_equal
    FROM ${from} ${rowOf("kv_buckets", "b", ofBucket)} ${rowOf("kv_keys", "e", ofKey, "left")}`;
}

/** Whether runs of the environment wait for as many states as they may. */
export const isFull = async (store: Store, environmentId: string, most: number): Promise<boolean> =>
  (await store.one(sql`SELECT w.run_id FROM waits w WHERE w.environment_id = ${environmentId} AND ${open}
    ORDER BY w.environment_id, w.place, w.subject, w.run_id, w.step_id LIMIT 1 OFFSET ${most}`)) !==
  undefined;

/** Of these runs, by the run that names them, those that it did not start. */
export async function notStartedBy(
  store: Store,
  named: readonly { environmentId: string; runId: string; childRunId: string }[],
): Promise<Map<string, string>> {
  const rows = await store.all<{ run_id: string; child_run_id: string }>(sql`SELECT i.run_id, i.child_run_id
    FROM ${store.seams.rowsFrom("i", {
      ...columnsOf(named, { text: "environmentId runId childRunId" }),
    })} WHERE (SELECT 1 FROM runs r WHERE r.id = i.child_run_id AND r.environment_id = i.environment_id
      AND r.parent_run_id = i.run_id LIMIT 1) IS NULL`);
  return new Map(rows.map((row) => [row.run_id, row.child_run_id]));
}

/** Has runs that wait for the ends of these runs look at them. The caller locks no execution after it. */
export const noteEnds = (
  session: Session,
  ended: readonly { environmentId: string; runId: string }[],
): Promise<number> =>
  // At 0, which no look has read: a look that saw the run before its end looks again.
  session.run(sql`UPDATE waits SET due_at = 0 FROM ${session.seams.rowsFrom("v", {
    environment_id: column.text(ended.map((one) => one.environmentId)),
    subject: column.text(ended.map((one) => one.runId)),
  })} WHERE waits.environment_id = v.environment_id AND waits.place = ${runPlace} AND waits.subject = v.subject
    AND waits.met IS NULL`);
