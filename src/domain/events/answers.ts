import type { Outcome } from "../../kit/combine.ts";
import { Fault, missing } from "../../kit/fault.ts";
import type { Store } from "../../store/store.ts";
import type { Logged, NewEvent } from "./flush.ts";
import type { InvokeTarget } from "./matching.ts";
import { findKeys, type TakenKey } from "./rows.ts";
import { type EventDraft, keyReused } from "./rules.ts";

export interface Emitted {
  eventId: string;
  runIds: string[];
  /** The event's position; undefined for a repeat of an event that has since expired. */
  position: number | undefined;
  /** Set when an idempotency key was used before: what its first use came to. */
  repeated?: true;
}

/** What each event of a flush came to, by id. Those that were not written repeat a key, or their environment is gone. */
export async function answersOf(
  store: Store,
  events: readonly NewEvent[],
  logged: readonly Logged[],
): Promise<Map<string, Emitted | Fault>> {
  const answers = new Map<string, Emitted | Fault>();
  for (const { ord, position } of logged) {
    const event = events[ord - 1]!;
    answers.set(event.id, { eventId: event.id, runIds: event.runs.map((run) => run.id), position });
  }
  const rest = events.filter((event) => !answers.has(event.id));
  const keyed = rest.flatMap((event) =>
    event.idempotencyKey === null ? [] : { environmentId: event.environmentId, key: event.idempotencyKey },
  );
  // The flush is committed: a failed read here costs only the repeats their answer, never the others theirs.
  const taken = keyed.length === 0 ? [] : await findKeys(store, keyed).catch(() => undefined);
  if (taken === undefined) {
    for (const event of rest) answers.set(event.id, unread());
    return answers;
  }
  const byKey = new Map(taken.map((row) => [`${row.environment_id}\n${row.key}`, row]));
  for (const event of rest) {
    const row = byKey.get(`${event.environmentId}\n${event.idempotencyKey}`);
    // A key row that names this very event was written beside a head that is no more.
    if (!row || row.event_id === event.id) answers.set(event.id, missing("environment", event.environmentId));
    else answers.set(event.id, firstOf(row, event.invokes));
  }
  return answers;
}

/** The part of an emit or invoke that its answer depends on. */
interface Asked {
  origin: { environmentId: string };
  drafts: readonly EventDraft[];
  target?: InvokeTarget;
}

/** What was refused is answered all the same when its key was used while it could be done. */
export async function answersToRefused<Unit extends Asked>(
  store: Store,
  refused: ReadonlyMap<Unit, Fault>,
): Promise<Map<Unit, Outcome<Emitted[]>>> {
  const outcomes = new Map<Unit, Outcome<Emitted[]>>();
  for (const [unit, error] of refused) {
    const [key] = unit.drafts.flatMap(({ idempotencyKey }) => idempotencyKey ?? []);
    const { environmentId } = unit.origin;
    const [row] = key === undefined ? [] : await findKeys(store, [{ environmentId, key }]).catch(() => []);
    const first = row && firstOf(row, unit.target?.functionId ?? null);
    outcomes.set(unit, first && !(first instanceof Fault) ? { value: [first] } : { error: first ?? error });
  }
  return outcomes;
}

/** A key means one fact: it cannot name an emit and an invoke, or two functions. */
const firstOf = (row: TakenKey, invokes: string | null): Emitted | Fault =>
  row.function_id !== invokes
    ? keyReused(row.key)
    : {
        eventId: row.event_id,
        runIds: JSON.parse(row.run_ids) as string[],
        position: row.position ?? undefined,
        repeated: true,
      };

const unread = (): Fault =>
  new Fault("unavailable", "the answer to a repeated key cannot be read, try again", {
    headers: { "Retry-After": "1" },
  });
