import type { Instant } from "../../../kit/clock.ts";
import { column, sql } from "../../../kit/sql.ts";
import type { Session, Store, StoreReader } from "../../../store/store.ts";
import type { RowOf } from "../../../store/tables/index.ts";
import type { AlertFacts, MessageKind } from "./rules.ts";

export interface AlertKey {
  environment_id: string;
  id: string;
}

export interface AlertRow extends AlertKey, AlertFacts {
  seen_at: Instant;
  told_at: Instant | null;
  resolved_by: string | null;
  /** What it tells is over; one that a person resolved lasts until then. */
  ended_at: Instant | null;
}

const names = `environment_id, id, rule, condition, subject, detail, count, opened_at, seen_at, told_at,
  resolved_at, resolved_by, ended_at`;
const fields = sql.raw(names);
const its = ({ environment_id, id }: AlertKey) => sql`environment_id = ${environment_id} AND id = ${id}`;

export const getAlert = (reader: StoreReader, key: AlertKey): Promise<AlertRow | undefined> =>
  reader.one(sql`SELECT ${fields} FROM alerts WHERE ${its(key)}`);

export const holdAlert = (session: Session, key: AlertKey): Promise<AlertRow | undefined> =>
  session.one(sql`SELECT ${fields} FROM alerts WHERE ${its(key)} ORDER BY id ${session.seams.holdRow}`);

/** What the rule has found and what lasts still. */
export const lastingAlerts = (
  session: Session,
  { environment_id, name }: { environment_id: string; name: string },
): Promise<AlertRow[]> =>
  session.all(sql`SELECT ${fields} FROM alerts
    WHERE environment_id = ${environment_id} AND rule = ${name} AND ended_at IS NULL
    ORDER BY subject ${session.seams.holdRow}`);

/** Newest first, after `before`. */
export const listAlerts = (
  reader: StoreReader,
  environmentId: string,
  page: { rule: string; state: string; before: string | undefined; limit: number },
): Promise<AlertRow[]> => {
  const where = [sql`environment_id = ${environmentId}`];
  if (page.rule !== "") where.push(sql`rule = ${page.rule}`);
  if (page.state !== "") where.push(sql.raw(`resolved_at IS ${page.state === "open" ? "" : "NOT "}NULL`));
  if (page.before !== undefined) where.push(sql`id < ${page.before}`);
  return reader.all(
    sql`SELECT ${fields} FROM alerts ${sql.where(where)} ORDER BY id DESC LIMIT ${page.limit}`,
  );
};

/** Inserts them, or writes what changed of them. */
export async function putAlerts(session: Session, list: readonly AlertRow[]): Promise<void> {
  if (list.length === 0) return;
  const texts = (of: (row: AlertRow) => string | null) => column.text(list.map(of));
  const numbers = (of: (row: AlertRow) => number | null) => column.bigint(list.map(of));
  await session.run(sql`INSERT INTO alerts (${fields}) SELECT ${fields} FROM ${session.seams.rowsFrom("v", {
    ...{ environment_id: texts((row) => row.environment_id), id: texts((row) => row.id) },
    ...{ rule: texts((row) => row.rule), condition: texts((row) => row.condition) },
    ...{ subject: texts((row) => row.subject), detail: texts((row) => row.detail) },
    ...{ count: numbers((row) => row.count), opened_at: numbers((row) => row.opened_at) },
    ...{ seen_at: numbers((row) => row.seen_at), told_at: numbers((row) => row.told_at) },
    ...{ resolved_at: numbers((row) => row.resolved_at), resolved_by: texts((row) => row.resolved_by) },
    ended_at: numbers((row) => row.ended_at),
  })} WHERE 1 = 1
    ON CONFLICT (environment_id, id) DO UPDATE SET detail = excluded.detail, count = excluded.count,
      seen_at = excluded.seen_at, told_at = excluded.told_at, resolved_at = excluded.resolved_at,
      resolved_by = excluded.resolved_by, ended_at = excluded.ended_at`);
}

export async function forgetAlerts(session: Session, before: Instant, limit: number): Promise<number> {
  const gone = await session.all<AlertKey>(sql`DELETE FROM alerts WHERE (environment_id, id) IN (
      SELECT environment_id, id FROM alerts WHERE ended_at < ${before} ORDER BY ended_at, id LIMIT ${limit})
    RETURNING environment_id, id`);
  for (const { environment_id, id } of gone)
    await session.run(sql`DELETE FROM alert_deliveries WHERE environment_id = ${environment_id}
      AND alert_id = ${id}`);
  return gone.length;
}

export interface ToldKey {
  environment_id: string;
  alert_id: string;
  target: string;
}

export interface ToldRow
  extends ToldKey,
    RowOf<"alert_deliveries", "shown, number, attempts, due_at, last_error, sent_at"> {
  kind: MessageKind;
  state: "waiting" | "sent" | "given_up";
}

const told =
  sql.raw(`environment_id, alert_id, target, shown, kind, number, state, attempts, due_at, last_error,
  sent_at`);
/** Another message to the target has not taken its place. */
const same = ({ environment_id, alert_id, target, number }: ToldKey & { number: number }) =>
  sql`environment_id = ${environment_id} AND alert_id = ${alert_id} AND target = ${target}
    AND number = ${number} AND state = 'waiting'`;

/** What a target is told next. */
export interface NextTold extends ToldKey {
  shown: string;
  kind: MessageKind;
}

/** Writes what targets are told next; what they have not taken yet they are told no more. */
export async function putDeliveries(
  session: Session,
  list: readonly NextTold[],
  dueAt: Instant,
): Promise<void> {
  if (list.length === 0) return;
  const texts = (of: (row: NextTold) => string) => column.text(list.map(of));
  await session.run(sql`INSERT INTO alert_deliveries AS d (${told})
    SELECT environment_id, alert_id, target, shown, kind, 1, 'waiting', 0, ${sql.bigint(dueAt)}, NULL,
      CAST(NULL AS BIGINT)
    FROM ${session.seams.rowsFrom("v", {
      ...{ environment_id: texts((row) => row.environment_id), alert_id: texts((row) => row.alert_id) },
      ...{ target: texts((row) => row.target), shown: texts((row) => row.shown) },
      kind: texts((row) => row.kind),
    })} WHERE 1 = 1
    ON CONFLICT (environment_id, alert_id, target) DO UPDATE SET shown = excluded.shown, kind = excluded.kind,
      number = d.number + 1, state = 'waiting', attempts = 0, due_at = excluded.due_at, last_error = NULL`);
}

/** What waits to be told by a rule waits until then. */
export const putOffDeliveries = (
  session: Session,
  { environment_id, name }: { environment_id: string; name: string },
  until: Instant,
): Promise<number> =>
  session.run(sql`UPDATE alert_deliveries SET due_at = ${sql.bigint(until)}
    WHERE environment_id = ${environment_id} AND state = 'waiting' AND alert_id IN (
      SELECT id FROM alerts WHERE environment_id = ${environment_id} AND rule = ${name})`);

export const deliveriesOf = (
  reader: Pick<Store, "all" | "seams">,
  environmentId: string,
  alertIds: readonly string[],
): Promise<ToldRow[]> =>
  reader.all(sql`SELECT ${told} FROM alert_deliveries WHERE environment_id = ${environmentId}
      AND alert_id ${reader.seams.among(column.text(alertIds))} ORDER BY alert_id, shown, target`);

/**
 * Messages that are due: the first of each target, of each environment the first few, so that one with many
 * and one that hangs hold up no other.
 */
export const dueDeliveries = (
  { all, seams }: Pick<Store, "all" | "seams">,
  now: Instant,
  { most, ofEach }: { most: number; ofEach: number },
): Promise<ToldRow[]> =>
  all(sql`WITH RECURSIVE ${seams.firstOfKeys({
    ...{ table: "alert_deliveries", columns: ["*"], key: ["environment_id", "target"] },
    ...{ order: ["due_at", "alert_id"], where: sql.raw("d.state = 'waiting'") },
  })}
    SELECT ${told} FROM (SELECT ${told},
        row_number() OVER (PARTITION BY environment_id ORDER BY due_at, target) AS nth
      FROM found WHERE due_at <= ${sql.bigint(now)}) due
    WHERE nth <= ${ofEach} ORDER BY nth, due_at, environment_id, target LIMIT ${most}`);

/** Counts the attempt before it is made: a sender that dies leaves the message until `until`. */
export const claimDelivery = (session: Session, row: ToldRow, until: Instant): Promise<number> =>
  session.run(sql`UPDATE alert_deliveries SET attempts = attempts + 1, due_at = ${sql.bigint(until)}
    WHERE ${same(row)} AND due_at = ${sql.bigint(row.due_at)}`);

export const noteDelivery = (
  session: Session,
  row: ToldRow,
  end: Pick<ToldRow, "state" | "due_at" | "last_error" | "sent_at">,
): Promise<number> =>
  session.run(sql`UPDATE alert_deliveries SET state = ${end.state}, due_at = ${sql.bigint(end.due_at)},
      last_error = ${end.last_error}, sent_at = COALESCE(${end.sent_at}, sent_at)
    WHERE ${same(row)}`);
