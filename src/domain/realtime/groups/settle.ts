import type { Clock, Instant } from "../../../kit/clock.ts";
import { combine, type Outcome } from "../../../kit/combine.ts";
import { Fault, missing } from "../../../kit/fault.ts";
import { laneOfEnvironment } from "../../../kit/lanes.ts";
import { combineLanes, combinePaceMs, combineWaitingMax, flushItemsMax } from "../../../kit/limits.ts";
import { column, sql } from "../../../kit/sql.ts";
import { type Watch, watchFlushes, watchWaiting } from "../../../kit/watch.ts";
import { isOfItem, type Session, type Store } from "../../../store/store.ts";
import type { AckMode, GroupKey } from "./rows.ts";

export type Verdict = "ack" | "nak" | "term";

/** What a consumer says of one delivery. */
export interface Said extends GroupKey {
  eventId: string;
  /** As it named itself, or the id of its subscription. Empty: whoever holds it. */
  consumerId: string;
  verdict: Verdict;
  /** Of a `nak`; the group's own when it is left out. */
  delayMs: number | undefined;
}

/** A delivery that this node was to send: it did, for a group that asks for no more, or it could not. */
export interface Held {
  environment_id: string;
  groupId: string;
  position: number;
  memberId: string;
  attempt: number;
}

type Item = { said: Said } | { sent: Held } | { unsent: Held };

/** A group in which something was settled: there may be room, or something due. */
export interface Moved {
  environmentId: string;
  groupId: string;
  /** When the first of what was given back is due. */
  dueAt?: Instant;
}

export interface Settler {
  /** `not_found` for a delivery that is not held (any more), `failed_precondition` when another consumer holds it. */
  say(said: Said): Promise<void>;
  /** What was taken away meanwhile stays as it is. */
  sent(held: Held): Promise<void>;
  /** It is due for the others at once, and nothing of it is spent. */
  unsent(held: Held): Promise<void>;
  drain(): Promise<void>;
}

export interface SettlerDeps {
  store: Store;
  clock: Clock;
  watch: Watch;
  onMoved: (moved: readonly Moved[]) => void;
}

interface Place {
  environment_id: string;
  group_id: string;
  position: number;
}

interface Found extends Place {
  ack_mode: AckMode;
  redeliver_delay_ms: number;
}

interface HeldRow extends Place {
  attempt: number;
  spent_count: number;
  member_id: string | null;
  consumer_id: string;
}

const placeText = ({ environment_id, group_id, position }: Place) =>
  `${environment_id}\n${group_id}\n${position}`;

const placeColumns = (places: readonly Place[]) => ({
  environment_id: column.text(places.map((one) => one.environment_id)),
  group_id: column.text(places.map((one) => one.group_id)),
  position: column.bigint(places.map((one) => one.position)),
});

/** Acknowledgements of all consumers, set-wise: rows are locked in the order of their keys, then judged, then changed. */
export function openSettler({ store, clock, watch, onMoved }: SettlerDeps): Settler {
  async function settle(session: Session, items: readonly Item[], now: Instant) {
    const said = items.flatMap((item) => ("said" in item ? item.said : []));
    const found = await findSaid(session, said);
    const places = new Map<Item, Place>();
    for (const item of items) {
      const place = "said" in item ? found.get(item.said) : placeOf(ownOf(item));
      if (place && !(place instanceof Fault)) places.set(item, place);
    }
    const held = await holdAll(session, [...places.values()]);
    const gone = new Map<string, HeldRow>();
    const later = new Map<string, HeldRow & { due_at: Instant }>();
    const outcomes = items.map((item): Outcome<void> => {
      const place = places.get(item);
      const row = place && held.get(placeText(place));
      if (!("said" in item)) {
        const { memberId, attempt } = ownOf(item);
        if (row?.member_id !== memberId || row.attempt !== attempt) return { value: undefined };
        if ("sent" in item) gone.set(placeText(row), row);
        else later.set(placeText(row), { ...row, due_at: now });
        return { value: undefined };
      }
      const { eventId, consumerId, verdict, delayMs } = item.said;
      const known = found.get(item.said);
      if (known instanceof Fault) return { error: known };
      if (!row || !known) return { error: unheld(item.said) };
      if (!isHolder(row, consumerId)) return { error: heldByAnother(eventId) };
      if (verdict !== "nak") gone.set(placeText(row), row);
      else {
        const due_at = now + (delayMs ?? known.redeliver_delay_ms);
        later.set(placeText(row), { ...row, due_at, spent_count: row.spent_count + 1 });
      }
      return { value: undefined };
    });
    await write(
      session,
      [...gone.values()],
      [...later].flatMap(([key, row]) => (gone.has(key) ? [] : row)),
    );
    const moved = new Map<string, Moved>();
    for (const row of [...gone.values(), ...later.values()]) {
      const key = `${row.environment_id}\n${row.group_id}`;
      const one = moved.get(key) ?? { environmentId: row.environment_id, groupId: row.group_id };
      const due = later.get(placeText(row))?.due_at;
      moved.set(key, due === undefined ? one : { ...one, dueAt: Math.min(one.dueAt ?? due, due) });
    }
    return { outcomes, moved: [...moved.values()] };
  }

  const combiner = combine<Item, void>({
    name: "groups.settle",
    lanes: combineLanes,
    laneOf: (item) => laneOfEnvironment(("said" in item ? item.said : ownOf(item)).environment_id),
    itemsMax: flushItemsMax,
    waitingMax: combineWaitingMax,
    pace: { clock, ms: combinePaceMs },
    async flush(items, committed) {
      const { outcomes, moved } = await store.write((session) => settle(session, items, clock.now()));
      committed();
      if (moved.length > 0) onMoved(moved);
      return outcomes;
    },
    isOfItem,
    watch: watchFlushes(watch, clock, "groups.settle"),
  });
  watchWaiting(watch.metrics, combiner);

  return {
    say: (said) => combiner.submit({ said }),
    sent: (held) => combiner.submit({ sent: held }),
    unsent: (held) => combiner.submit({ unsent: held }),
    drain: combiner.drain,
  };
}

const ownOf = (item: { sent: Held } | { unsent: Held }): Held => ("sent" in item ? item.sent : item.unsent);

const placeOf = ({ environment_id, groupId, position }: Held): Place => ({
  environment_id,
  group_id: groupId,
  position,
});

/** Which rows are meant; not locked yet. */
async function findSaid(session: Session, said: readonly Said[]): Promise<Map<Said, Found | Fault>> {
  const found = new Map<Said, Found | Fault>();
  if (said.length === 0) return found;
  const rows = await session.all<Omit<Found, "position"> & { ord: number; position: number | null }>(
    sql`SELECT i.ord, g.environment_id, g.id AS group_id, g.ack_mode, g.redeliver_delay_ms, d.position
      FROM ${session.seams.rowsFrom("i", {
        environment_id: column.text(said.map((one) => one.environment_id)),
        namespace: column.text(said.map((one) => one.namespace)),
        name: column.text(said.map((one) => one.name)),
        event_id: column.text(said.map((one) => one.eventId)),
      })} JOIN consumer_groups g ON g.environment_id = i.environment_id AND g.namespace = i.namespace
        AND g.name = i.name
        LEFT JOIN group_deliveries d ON d.environment_id = g.environment_id AND d.group_id = g.id
          AND d.event_id = i.event_id`,
  );
  const byPlace = new Map(rows.map((row) => [row.ord, row]));
  for (const [at, one] of said.entries()) {
    const row = byPlace.get(at + 1);
    if (!row) found.set(one, missing("consumer group", one.name));
    else if (row.ack_mode === "auto") found.set(one, acksItself(one.name));
    else if (row.position === null) found.set(one, unheld(one));
    else found.set(one, { ...row, position: row.position });
  }
  return found;
}

async function holdAll(session: Session, places: readonly Place[]): Promise<Map<string, HeldRow>> {
  if (places.length === 0) return new Map();
  const rows =
    await session.all<HeldRow>(sql`SELECT d.environment_id, d.group_id, d.position, d.attempt, d.spent_count,
      d.member_id, d.consumer_id
    FROM ${session.seams.rowsFrom("i", placeColumns(places))}
      JOIN group_deliveries d ON d.environment_id = i.environment_id AND d.group_id = i.group_id
        AND d.position = i.position
    ORDER BY d.environment_id, d.group_id, d.position ${session.seams.holdRow}`);
  return new Map(rows.map((row) => [placeText(row), row]));
}

async function write(
  session: Session,
  gone: readonly Place[],
  later: readonly (Place & { due_at: Instant; spent_count: number })[],
): Promise<void> {
  const { rowsFrom } = session.seams;
  if (gone.length > 0)
    await session.run(sql`DELETE FROM group_deliveries WHERE (environment_id, group_id, position) IN (
      SELECT i.environment_id, i.group_id, i.position FROM ${rowsFrom("i", placeColumns(gone))})`);
  if (later.length > 0)
    await session.run(sql`UPDATE group_deliveries SET member_id = NULL, due_at = v.due_at, spent_count = v.spent_count
      FROM ${rowsFrom("v", {
        ...placeColumns(later),
        due_at: column.bigint(later.map((row) => row.due_at)),
        spent_count: column.bigint(later.map((row) => row.spent_count)),
      })} WHERE group_deliveries.environment_id = v.environment_id AND group_deliveries.group_id = v.group_id
        AND group_deliveries.position = v.position`);
}

/** Consumers call themselves as they asked to be called, or as the server called them. */
const isHolder = ({ consumer_id, member_id }: HeldRow, consumerId: string): boolean =>
  consumerId === "" || consumerId === consumer_id || consumerId === member_id;

const unheld = ({ name, eventId }: Said) =>
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
