import type { Clock, Instant } from "../../../kit/clock.ts";
import type { ItemOutcome } from "../../../kit/combine.ts";
import { Fault, missing } from "../../../kit/fault.ts";
import { flushQueue } from "../../../kit/flush-queue.ts";
import { column, sql } from "../../../kit/sql.ts";
import type { Watch } from "../../../kit/watch.ts";
import { isOfItem, type Session, type Store } from "../../../store/store.ts";
import type { AckMode, GroupKey } from "./rows.ts";

export type AckVerdict = "ack" | "nak" | "term";

/** What a consumer says of one delivery. */
export interface Ack extends GroupKey {
  eventId: string;
  /** As it named itself, or the id of its subscription. Empty: whoever holds it. */
  consumerId: string;
  verdict: AckVerdict;
  /** Of a `nak`; the group's own when it is left out. */
  delayMs: number | undefined;
}

/** A delivery that this node was to send: it did, for a group that asks for no more, or it could not. */
export interface HeldDelivery {
  environment_id: string;
  groupId: string;
  position: number;
  memberId: string;
  attempt: number;
}

type AckItem = { said: Ack } | { sent: HeldDelivery } | { unsent: HeldDelivery };

/** A group in which something was settled: there may be room, or something due. */
export interface GroupChange {
  environmentId: string;
  groupId: string;
  /** When the first of what was given back is due. */
  dueAt?: Instant;
}

export interface Acks {
  /** `not_found` for a delivery that is not held (any more), `failed_precondition` when another consumer holds it. */
  ack(said: Ack): Promise<void>;
  /** What was taken away meanwhile stays as it is. */
  sent(held: HeldDelivery): Promise<void>;
  /** It is due for the others at once, and nothing of it is spent. */
  unsent(held: HeldDelivery): Promise<void>;
  drain(): Promise<void>;
}

export interface AcksDeps {
  store: Store;
  clock: Clock;
  watch: Watch;
  onChanged: (moved: readonly GroupChange[]) => void;
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

const deliveryKeyText = ({ environment_id, group_id, position }: DeliveryKey) =>
  `${environment_id}\n${group_id}\n${position}`;

const deliveryKeyColumns = (places: readonly DeliveryKey[]) => ({
  environment_id: column.text(places.map((one) => one.environment_id)),
  group_id: column.text(places.map((one) => one.group_id)),
  position: column.bigint(places.map((one) => one.position)),
});

/** Acknowledgements of all consumers, set-wise: rows are locked in the order of their keys, then judged, then changed. */
export function openAcks({ store, clock, watch, onChanged }: AcksDeps): Acks {
  async function applyAcks(session: Session, items: readonly AckItem[], now: Instant) {
    const said = items.flatMap((item) => ("said" in item ? item.said : []));
    const found = await findAckTargets(session, said);
    const places = new Map<AckItem, DeliveryKey>();
    for (const item of items) {
      const place = "said" in item ? found.get(item.said) : deliveryKeyOf(ownOf(item));
      if (place && !(place instanceof Fault)) places.set(item, place);
    }
    const held = await holdAll(session, [...places.values()]);
    const gone = new Map<string, HeldDeliveryRow>();
    const later = new Map<string, HeldDeliveryRow & { due_at: Instant }>();
    const outcomes = items.map((item): ItemOutcome<void> => {
      const place = places.get(item);
      const row = place && held.get(deliveryKeyText(place));
      if (!("said" in item)) {
        const { memberId, attempt } = ownOf(item);
        if (row?.member_id !== memberId || row.attempt !== attempt) return { value: undefined };
        if ("sent" in item) gone.set(deliveryKeyText(row), row);
        else later.set(deliveryKeyText(row), { ...row, due_at: now });
        return { value: undefined };
      }
      const { eventId, consumerId, verdict, delayMs } = item.said;
      const known = found.get(item.said);
      if (known instanceof Fault) return { error: known };
      if (!row || !known) return { error: unheld(item.said) };
      if (!isHolder(row, consumerId)) return { error: heldByAnother(eventId) };
      if (verdict !== "nak") gone.set(deliveryKeyText(row), row);
      else {
        const due_at = now + (delayMs ?? known.redeliver_delay_ms);
        later.set(deliveryKeyText(row), { ...row, due_at, spent_count: row.spent_count + 1 });
      }
      return { value: undefined };
    });
    await write(
      session,
      [...gone.values()],
      [...later].flatMap(([key, row]) => (gone.has(key) ? [] : row)),
    );
    const moved = new Map<string, GroupChange>();
    for (const row of [...gone.values(), ...later.values()]) {
      const key = `${row.environment_id}\n${row.group_id}`;
      const one = moved.get(key) ?? { environmentId: row.environment_id, groupId: row.group_id };
      const due = later.get(deliveryKeyText(row))?.due_at;
      moved.set(key, due === undefined ? one : { ...one, dueAt: Math.min(one.dueAt ?? due, due) });
    }
    return { outcomes, moved: [...moved.values()] };
  }

  const queue = flushQueue<AckItem, void>({
    name: "groups.settle",
    clock,
    watch,
    environmentOf: (item) => ("said" in item ? item.said : ownOf(item)).environment_id,
    async flush(items, committed) {
      const { outcomes, moved } = await store.write((session) => applyAcks(session, items, clock.now()));
      committed();
      if (moved.length > 0) onChanged(moved);
      return outcomes;
    },
    isOfItem,
  });

  return {
    ack: (said) => queue.submit({ said }),
    sent: (held) => queue.submit({ sent: held }),
    unsent: (held) => queue.submit({ unsent: held }),
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

/** Which rows are meant; not locked yet. */
async function findAckTargets(session: Session, acks: readonly Ack[]): Promise<Map<Ack, AckTarget | Fault>> {
  const found = new Map<Ack, AckTarget | Fault>();
  if (acks.length === 0) return found;
  const rows = await session.all<Omit<AckTarget, "position"> & { ord: number; position: number | null }>(
    sql`SELECT i.ord, g.environment_id, g.id AS group_id, g.ack_mode, g.redeliver_delay_ms, d.position
      FROM ${session.seams.rowsFrom("i", {
        environment_id: column.text(acks.map((one) => one.environment_id)),
        namespace: column.text(acks.map((one) => one.namespace)),
        name: column.text(acks.map((one) => one.name)),
        event_id: column.text(acks.map((one) => one.eventId)),
      })} JOIN consumer_groups g ON g.environment_id = i.environment_id AND g.namespace = i.namespace
        AND g.name = i.name
        LEFT JOIN group_deliveries d ON d.environment_id = g.environment_id AND d.group_id = g.id
          AND d.event_id = i.event_id`,
  );
  const byPlace = new Map(rows.map((row) => [row.ord, row]));
  for (const [at, one] of acks.entries()) {
    const row = byPlace.get(at + 1);
    if (!row) found.set(one, missing("consumer group", one.name));
    else if (row.ack_mode === "auto") found.set(one, acksItself(one.name));
    else if (row.position === null) found.set(one, unheld(one));
    else found.set(one, { ...row, position: row.position });
  }
  return found;
}

async function holdAll(
  session: Session,
  places: readonly DeliveryKey[],
): Promise<Map<string, HeldDeliveryRow>> {
  if (places.length === 0) return new Map();
  const rows =
    await session.all<HeldDeliveryRow>(sql`SELECT d.environment_id, d.group_id, d.position, d.attempt, d.spent_count,
      d.member_id, d.consumer_id
    FROM ${session.seams.rowsFrom("i", deliveryKeyColumns(places))}
      JOIN group_deliveries d ON d.environment_id = i.environment_id AND d.group_id = i.group_id
        AND d.position = i.position
    ORDER BY d.environment_id, d.group_id, d.position ${session.seams.holdRow}`);
  return new Map(rows.map((row) => [deliveryKeyText(row), row]));
}

async function write(
  session: Session,
  gone: readonly DeliveryKey[],
  later: readonly (DeliveryKey & { due_at: Instant; spent_count: number })[],
): Promise<void> {
  const { rowsFrom } = session.seams;
  if (gone.length > 0)
    await session.run(sql`DELETE FROM group_deliveries WHERE (environment_id, group_id, position) IN (
      SELECT i.environment_id, i.group_id, i.position FROM ${rowsFrom("i", deliveryKeyColumns(gone))})`);
  if (later.length > 0)
    await session.run(sql`UPDATE group_deliveries SET member_id = NULL, due_at = v.due_at, spent_count = v.spent_count
      FROM ${rowsFrom("v", {
        ...deliveryKeyColumns(later),
        due_at: column.bigint(later.map((row) => row.due_at)),
        spent_count: column.bigint(later.map((row) => row.spent_count)),
      })} WHERE group_deliveries.environment_id = v.environment_id AND group_deliveries.group_id = v.group_id
        AND group_deliveries.position = v.position`);
}

/** Consumers call themselves as they asked to be called, or as the server called them. */
const isHolder = ({ consumer_id, member_id }: HeldDeliveryRow, consumerId: string): boolean =>
  consumerId === "" || consumerId === consumer_id || consumerId === member_id;

const unheld = ({ name, eventId }: Ack) =>
  new Fault(
    "not_found",
    `event ${eventId.slice(0, 100)} is not held by group ${name}: it was acknowledged, given up, or never delivered`,
    { field: "event_id" },
  );

const heldByAnother = (eventId: string) =>
  new Fault("failed_precondition", `event ${eventId.slice(0, 100)} went to another consumer meanwhile`, {
    field: "consumer_id",
  });

const acksItself = (name: string) =>
  new Fault("failed_precondition", `group ${name} has ack_mode auto: sending acknowledges`, {
    field: "ack_type",
  });
