import type { Instant } from "../../../kit/clock.ts";
import { columnsOf } from "../../../kit/columns.ts";
import type { ItemOutcome } from "../../../kit/combine.ts";
import { Fault, missing } from "../../../kit/fault.ts";
import { flushQueue } from "../../../kit/flush-queue.ts";
import { sql } from "../../../kit/sql.ts";
import { type Basics, isOfItem, type Session } from "../../../store/store.ts";
import type { AckMode, GroupKey } from "./rows.ts";

export type AckVerdict = "ack" | "nak" | "term";

/** A consumer's verdict on one delivery. */
export interface Ack extends GroupKey {
  eventId: string;
  /** The consumer's own name, or the id of its subscription. Empty: whichever consumer holds the delivery. */
  consumerId: string;
  verdict: AckVerdict;
  /** Pause before a `nak` is redelivered; without one the group's `redeliver_delay_ms`. */
  delayMs: number | undefined;
}

/** A claimed delivery as the node that claimed it knows it. */
export interface HeldDelivery {
  environment_id: string;
  groupId: string;
  position: number;
  memberId: string;
  attempt: number;
}

/**
 * By a consumer, or by the server: it `sent` a delivery of a group with `ack_mode` auto, or left a delivery
 * `unsent`.
 */
type AckItem = { said: Ack } | { sent: HeldDelivery } | { unsent: HeldDelivery };

/** A group whose deliveries changed: there may be room, or something due. */
export interface GroupChange {
  environmentId: string;
  groupId: string;
  /** When the first delivery that was given back is due. */
  dueAt?: Instant;
}

export type Acks = ReturnType<typeof openAcks>;

export interface AcksDeps extends Basics<"store" | "clock" | "watch"> {
  onChanged: (changes: readonly GroupChange[]) => void;
}

interface DeliveryKey {
  environment_id: string;
  group_id: string;
  position: number;
}

interface AckTarget extends DeliveryKey {
  ack_mode: AckMode;
  redeliver_delay_ms: number;
}

interface HeldDeliveryRow extends DeliveryKey {
  attempt: number;
  spent_count: number;
  member_id: string | null;
  consumer_id: string;
}

interface DueDelivery extends HeldDeliveryRow {
  due_at: Instant;
}

const deliveryKeyText = ({ environment_id, group_id, position }: DeliveryKey) =>
  `${environment_id}\n${group_id}\n${position}`;

const deliveryKeyColumns = (keys: readonly DeliveryKey[]) => ({
  ...columnsOf(keys, { text: "environment_id group_id", bigint: "position" }),
});

/** The changes of one flush. A delivery that is both ended and given back is ended. */
class DeliveryChanges {
  readonly #ended = new Map<string, HeldDeliveryRow>();
  readonly #givenBack = new Map<string, DueDelivery>();

  end(row: HeldDeliveryRow): void {
    this.#ended.set(deliveryKeyText(row), row);
  }

  giveBack(row: DueDelivery): void {
    this.#givenBack.set(deliveryKeyText(row), row);
  }

  async write(session: Session): Promise<void> {
    const givenBack = [...this.#givenBack].flatMap(([key, row]) => (this.#ended.has(key) ? [] : row));
    await deleteDeliveries(session, [...this.#ended.values()]);
    await giveBackDeliveries(session, givenBack);
  }

  /** The groups of all changed deliveries, each with the time at which its first one is due. */
  groups(): GroupChange[] {
    const changes = new Map<string, GroupChange>();
    for (const row of [...this.#ended.values(), ...this.#givenBack.values()]) {
      const key = `${row.environment_id}\n${row.group_id}`;
      const one = changes.get(key) ?? { environmentId: row.environment_id, groupId: row.group_id };
      const due = this.#givenBack.get(deliveryKeyText(row))?.due_at;
      changes.set(key, due === undefined ? one : { ...one, dueAt: Math.min(one.dueAt ?? due, due) });
    }
    return [...changes.values()];
  }
}

/** Locks the rows of all items, decides each item, then writes all changes. */
async function applyAcks(session: Session, items: readonly AckItem[], now: Instant) {
  const acks = items.flatMap((item) => ("said" in item ? item.said : []));
  const targets = await findAckTargets(session, acks);
  const keys = new Map<AckItem, DeliveryKey>();
  for (const item of items) {
    const key = "said" in item ? targets.get(item.said) : deliveryKeyOf(ownOf(item));
    if (key && !(key instanceof Fault)) keys.set(item, key);
  }
  const held = await holdAll(session, [...keys.values()]);
  const changes = new DeliveryChanges();
  const outcomes = items.map((item): ItemOutcome<void> => {
    const key = keys.get(item);
    const row = key && held.get(deliveryKeyText(key));
    if ("said" in item) return decideAck(item.said, { target: targets.get(item.said), row, changes, now });
    const { memberId, attempt } = ownOf(item);
    if (row?.member_id !== memberId || row.attempt !== attempt) return { value: undefined };
    if ("sent" in item) changes.end(row);
    else changes.giveBack({ ...row, due_at: now });
    return { value: undefined };
  });
  await changes.write(session);
  return { outcomes, groups: changes.groups() };
}

interface AckDecision {
  target: AckTarget | Fault | undefined;
  row: HeldDeliveryRow | undefined;
  changes: DeliveryChanges;
  now: Instant;
}

function decideAck(ack: Ack, { target, row, changes, now }: AckDecision): ItemOutcome<void> {
  if (target instanceof Fault) return { error: target };
  if (!row || !target) return { error: unheld(ack) };
  if (!isHolder(row, ack.consumerId)) return { error: heldByAnother(ack.eventId) };
  if (ack.verdict !== "nak") changes.end(row);
  else {
    const due_at = now + (ack.delayMs ?? target.redeliver_delay_ms);
    changes.giveBack({ ...row, due_at, spent_count: row.spent_count + 1 });
  }
  return { value: undefined };
}

/**
 * Combines the acknowledgements of all callers into few transactions. Each locks its rows in the order of
 * their keys, so that two nodes cannot deadlock, then decides every item, then writes all changes in two
 * statements.
 */
export function openAcks({ store, clock, watch, onChanged }: AcksDeps) {
  const queue = flushQueue<AckItem, void>({
    name: "groups.settle",
    clock,
    watch,
    environmentOf: (item) => ("said" in item ? item.said : ownOf(item)).environment_id,
    async flush(items, committed) {
      const { outcomes, groups } = await store.write((session) => applyAcks(session, items, clock.now()));
      committed();
      if (groups.length > 0) onChanged(groups);
      return outcomes;
    },
    isOfItem,
  });

  return {
    /**
     * Throws `not_found` when no consumer holds the delivery, and `failed_precondition` when another one
     * holds it.
     */
    ack: (said: Ack) => queue.submit({ said }),
    /** Ends the delivery. Does nothing when another member or attempt holds it by now. */
    sent: (held: HeldDelivery) => queue.submit({ sent: held }),
    /** Makes the delivery due for the others at once; it does not count against `max_redeliveries`. */
    unsent: (held: HeldDelivery) => queue.submit({ unsent: held }),
    drain: queue.drain,
  };
}

const ownOf = (item: { sent: HeldDelivery } | { unsent: HeldDelivery }): HeldDelivery =>
  "sent" in item ? item.sent : item.unsent;

const deliveryKeyOf = ({ environment_id, groupId, position }: HeldDelivery): DeliveryKey => ({
  environment_id,
  group_id: groupId,
  position,
});

/** Finds the row that each ack means; it takes no locks. */
async function findAckTargets(session: Session, acks: readonly Ack[]): Promise<Map<Ack, AckTarget | Fault>> {
  const found = new Map<Ack, AckTarget | Fault>();
  if (acks.length === 0) return found;
  const rows = await session.all<Omit<AckTarget, "position"> & { ord: number; position: number | null }>(
    sql`SELECT i.ord, g.environment_id, g.id AS group_id, g.ack_mode, g.redeliver_delay_ms, d.position
      FROM ${session.seams.rowsFrom("i", {
        ...columnsOf(acks, { text: "environment_id namespace name eventId" }),
      })} JOIN consumer_groups g ON g.environment_id = i.environment_id AND g.namespace = i.namespace
        AND g.name = i.name
        LEFT JOIN group_deliveries d ON d.environment_id = g.environment_id AND d.group_id = g.id
          AND d.event_id = i.event_id`,
  );
  const byOrd = new Map(rows.map((row) => [row.ord, row]));
  for (const [at, one] of acks.entries()) {
    const row = byOrd.get(at + 1);
    if (!row) found.set(one, missing("consumer group", one.name));
    else if (row.ack_mode === "auto") found.set(one, acksItself(one.name));
    else if (row.position === null) found.set(one, unheld(one));
    else found.set(one, { ...row, position: row.position });
  }
  return found;
}

async function holdAll(
  session: Session,
  keys: readonly DeliveryKey[],
): Promise<Map<string, HeldDeliveryRow>> {
  if (keys.length === 0) return new Map();
  const rows =
    await session.all<HeldDeliveryRow>(sql`SELECT d.environment_id, d.group_id, d.position, d.attempt, d.spent_count,
      d.member_id, d.consumer_id
    FROM ${session.seams.rowsFrom("i", deliveryKeyColumns(keys))}
      JOIN group_deliveries d ON d.environment_id = i.environment_id AND d.group_id = i.group_id
        AND d.position = i.position
    ORDER BY d.environment_id, d.group_id, d.position ${session.seams.holdRow}`);
  return new Map(rows.map((row) => [deliveryKeyText(row), row]));
}

async function deleteDeliveries(session: Session, keys: readonly DeliveryKey[]): Promise<void> {
  if (keys.length === 0) return;
  await session.run(sql`DELETE FROM group_deliveries WHERE (environment_id, group_id, position) IN (
    SELECT i.environment_id, i.group_id, i.position FROM ${session.seams.rowsFrom("i", deliveryKeyColumns(keys))})`);
}

async function giveBackDeliveries(session: Session, rows: readonly DueDelivery[]): Promise<void> {
  if (rows.length === 0) return;
  await session.run(sql`UPDATE group_deliveries SET member_id = NULL, due_at = v.due_at, spent_count = v.spent_count
    FROM ${session.seams.rowsFrom("v", {
      ...deliveryKeyColumns(rows),
      ...columnsOf(rows, { bigint: "due_at spent_count" }),
    })} WHERE group_deliveries.environment_id = v.environment_id AND group_deliveries.group_id = v.group_id
      AND group_deliveries.position = v.position`);
}

/** A consumer may give its own name, or the subscription id that the server gave it. */
const isHolder = ({ consumer_id, member_id }: HeldDeliveryRow, consumerId: string): boolean =>
  consumerId === "" || consumerId === consumer_id || consumerId === member_id;

const unheld = ({ name, eventId }: Ack) =>
  new Fault(
    "not_found",
    `event ${eventId.slice(0, 100)} is not held by consumer group ${name}: it was acknowledged, given up, or never delivered`,
    { field: "event_id" },
  );

const heldByAnother = (eventId: string) =>
  new Fault(
    "failed_precondition",
    `event ${eventId.slice(0, 100)} is held by another consumer: it was redelivered`,
    {
      field: "consumer_id",
    },
  );

const acksItself = (name: string) =>
  new Fault(
    "failed_precondition",
    `consumer group ${name} has ack_mode auto: the server acknowledges what it has sent`,
    {
      field: "ack_type",
    },
  );
