import type { ItemOutcome } from "../../../kit/combine.ts";
import { Fault, missing, tryAgain } from "../../../kit/fault.ts";
import { type KeyClaims, type Keyed, keyReused, nameOfKey, storedKey } from "../../../kit/key-claims.ts";
import type { Store } from "../../../store/store.ts";
import type { NewJoin } from "../batches/join.ts";
import type { FlowNotice } from "../functions/start-options.ts";
import type { NewRun } from "../runs/run.ts";
import type { ConnectedWorkers } from "../serving/service.ts";
import type { EmittedRow } from "./flush.ts";
import { type NewEvent, unsureMark, useOfStream } from "./new-event.ts";
import type { InvokeTarget } from "./new-runs.ts";
import { findKeys, findRuns, type UsedEventKey } from "./rows.ts";
import type { DelayedEvent, EventDraft } from "./rules.ts";

export interface FunctionNotice extends FlowNotice {
  functionId: string;
}

export interface Emitted {
  eventId: string;
  runIds: string[];
  /** The event's position; undefined for a repeat of an event that has since expired. */
  position: number | undefined;
  /** Its version in the stream of its entity; undefined for an event of no entity, and for an expired one. */
  entityVersion?: number | undefined;
  /** What flow control made of it; left out for nothing. */
  notices?: readonly FunctionNotice[] | undefined;
  /** Functions whose runs wait because no connected worker is known to serve them; left out for none. */
  unserved?: readonly string[] | undefined;
  /** Set instead of the others for an event that is emitted later. */
  delayed?: DelayedEvent;
  /** Set when an idempotency key was used before: what its first use came to. */
  repeated?: true;
}

/** One event of a unit on its way into the log. */
export interface PreparedEvent extends NewEvent, Keyed {
  /** What is reported of runs that a gate skipped; absent before the flush, and when there are none. */
  skips?: readonly FunctionNotice[];
}

const hasNotices = ({ notices }: NewRun): boolean => notices !== undefined;
const hasNotice = ({ notice }: NewJoin): boolean => notice !== undefined;

/** Undefined for none, as for every event whose functions have no flow control. */
export function noticesOf({ runs, joins, skips }: PreparedEvent): FunctionNotice[] | undefined {
  if (skips === undefined && !runs.some(hasNotices) && !joins?.some(hasNotice)) return undefined;
  const told = runs.flatMap(({ functionId, notices = [] }) =>
    notices.map((notice) => ({ functionId, ...notice })),
  );
  const ofJoins = joins?.flatMap(({ functionId, notice }) => (notice ? { functionId, ...notice } : []));
  return [...told, ...(ofJoins ?? []), ...(skips ?? [])];
}

/**
 * The answer for each event that was to be written, by id. One that was not repeats a key, or its environment
 * is gone.
 */
export async function answersOf(
  { store, serving }: { store: Store; serving: Pick<ConnectedWorkers, "unservedOf"> },
  events: readonly PreparedEvent[],
  logged: readonly EmittedRow[],
): Promise<Map<string, Emitted | Fault>> {
  const answers = new Map<string, Emitted | Fault>();
  for (const { ord, position } of logged) {
    const event = events[ord - 1]!;
    const runIds = event.runs.map((run) => run.id);
    answers.set(event.id, {
      eventId: event.id,
      runIds,
      position,
      entityVersion: event.entity?.version,
      notices: noticesOf(event),
      unserved: serving.unservedOf(event.runs),
    });
  }
  const rest = events.filter((event) => !answers.has(event.id));
  // The flush is committed: a failed read here costs only the repeats their answer, never the others theirs.
  const used = await usedKeys(store, rest).catch(() => undefined);
  for (const event of rest) {
    const row = event.key === null ? undefined : used?.get(nameOfKey(event.environmentId, event.key));
    if (!used) answers.set(event.id, unread());
    // The row names this very event: it was written, but the head was deleted.
    else if (!row || row.event_id === event.id)
      answers.set(event.id, missing("environment", event.environmentId));
    else answers.set(event.id, firstOf(row, event));
  }
  return answers;
}

/** What an emit of a key that was used before comes to; undefined for a key that is free. */
export async function answerToUsed(
  store: Pick<Store, "all" | "seams">,
  environmentId: string,
  draft: EventDraft,
): Promise<Emitted | Fault | undefined> {
  const item = { ...keyedOf(draft, undefined), environmentId };
  const [row] = (await usedKeys(store, [item])).values();
  return row && firstOf(row, item);
}

/** The first use of each of these items' keys, by the keys' names. */
export async function usedKeys(
  store: Pick<Store, "all" | "seams">,
  items: readonly Pick<Keyed, "environmentId" | "key">[],
): Promise<Map<string, UsedEventKey>> {
  const keys = items.flatMap(({ environmentId, key }) => (key === null ? [] : { environmentId, key }));
  const rows = keys.length === 0 ? [] : await withSureRuns(store, await findKeys(store, keys));
  return new Map(rows.map((row) => [nameOfKey(row.environment_id, row.key), row]));
}

/** Runs of which the flush could not be sure are looked up: a gate may have skipped them. */
async function withSureRuns(
  store: Pick<Store, "all">,
  rows: readonly UsedEventKey[],
): Promise<readonly UsedEventKey[]> {
  if (!rows.some(({ run_ids }) => run_ids.includes(unsureMark))) return rows;
  const runsOf = ({ run_ids }: UsedEventKey) =>
    (JSON.parse(run_ids) as string[]).map((text) => ({
      id: text.startsWith(unsureMark) ? text.slice(unsureMark.length) : text,
      isSure: !text.startsWith(unsureMark),
    }));
  const unsure = rows.flatMap((row) => runsOf(row).flatMap(({ id, isSure }) => (isSure ? [] : id)));
  const begun = new Set(await findRuns(store, unsure));
  return rows.map((row) => {
    const ids = runsOf(row).flatMap(({ id, isSure }) => (isSure || begun.has(id) ? id : []));
    return { ...row, run_ids: JSON.stringify(ids) };
  });
}

/** The answer of a whole unit: one for each of its events, in their order, or the first fault. */
export function answerOfUnit(
  events: readonly PreparedEvent[],
  answers: ReadonlyMap<string, Emitted | Fault>,
  { twins, repeats }: Pick<KeyClaims<PreparedEvent, UsedEventKey>, "twins" | "repeats">,
): ItemOutcome<Emitted[]> {
  const list = events.map((event): Emitted | Fault => {
    const row = repeats.get(event);
    if (row) return firstOf(row, event);
    const first = twins.get(event);
    const answer = answers.get((first ?? event).id)!;
    return !first || answer instanceof Fault ? answer : { ...answer, repeated: true };
  });
  const fault = list.find((answer) => answer instanceof Fault);
  return fault ? { error: fault } : { value: list as Emitted[] };
}

/** The part of an emit or invoke that its answer depends on. */
interface KeyedEmit {
  origin: { environmentId: string };
  drafts: readonly EventDraft[];
  target?: InvokeTarget | undefined;
}

/**
 * A refused unit is answered as a repeat when all of its keys were used earlier, while it was still allowed.
 */
export async function answersToRefused<Unit extends KeyedEmit>(
  store: Store,
  refused: ReadonlyMap<Unit, Fault>,
): Promise<Map<Unit, ItemOutcome<Emitted[]>>> {
  const outcomes = new Map<Unit, ItemOutcome<Emitted[]>>();
  for (const [unit, error] of refused) {
    const { environmentId } = unit.origin;
    const items = unit.drafts.map((draft) => ({ ...keyedOf(draft, unit.target), environmentId }));
    const used = items.every(({ key }) => key !== null)
      ? await usedKeys(store, items).catch(() => undefined)
      : undefined;
    const firsts = items.map((item) => {
      const row = used?.get(nameOfKey(environmentId, item.key!));
      return row ? firstOf(row, item) : error;
    });
    const fault = firsts.find((first) => first instanceof Fault);
    outcomes.set(unit, fault ? { error: fault } : { value: firsts as Emitted[] });
  }
  return outcomes;
}

/** What a draft's key is used for: an invoke of a function, an append to a stream, or an emit. */
export const keyedOf = (draft: EventDraft, target: InvokeTarget | undefined) => ({
  idempotencyKey: draft.idempotencyKey,
  key: storedKey(draft),
  use: draft.entity ? useOfStream(draft.entity.id) : (target?.functionId ?? null),
  at: draft.at ?? "",
});

/** A key means one fact: it cannot name an emit and an invoke, two functions, or two streams. */
const firstOf = (
  row: UsedEventKey,
  { use, at, idempotencyKey }: Pick<PreparedEvent, "use" | "at" | "idempotencyKey">,
): Emitted | Fault =>
  row.function_id !== use
    ? keyReused(idempotencyKey ?? "", at)
    : {
        eventId: row.event_id,
        runIds: JSON.parse(row.run_ids) as string[],
        position: row.position ?? undefined,
        entityVersion: row.entity_version ?? undefined,
        repeated: true,
      };

const unread = (): Fault =>
  tryAgain("unavailable", "the answer to a repeated idempotency key cannot be read, try again");
