import type { Clock, Instant } from "../../kit/clock.ts";
import { combine, type Outcome } from "../../kit/combine.ts";
import { Fault, missing } from "../../kit/fault.ts";
import type { Ids } from "../../kit/ids.ts";
import { laneOfEnvironment } from "../../kit/lanes.ts";
import {
  combineLanes,
  combinePaceMs,
  combineWaitingMax,
  flushItemsMax,
  idempotencyKeptMs,
  purgeSliceMax,
} from "../../kit/limits.ts";
import { type Watch, watchFlushes, watchWaiting } from "../../kit/watch.ts";
import { type Store, StoreError } from "../../store/store.ts";
import type { Definitions, DefinitionsCache } from "../functions/definition.ts";
import type { Feeds } from "../log/feed.ts";
import type { LoggedEvent } from "../log/service.ts";
import type { NewRun } from "../runs/run.ts";
import type { Lane } from "../runs/wake.ts";
import type { Dispatcher, Reservation } from "../workers/dispatcher.ts";
import { emitFlush, type Logged, type NewEvent, staleDefinitions } from "./flush.ts";
import { newRun, startedBy } from "./matching.ts";
import { openProvenance } from "./provenance.ts";
import { findKeys, purgeKeys } from "./rows.ts";
import { type EventDraft, keyReused } from "./rules.ts";

export interface Emitted {
  eventId: string;
  runIds: string[];
  /** The event's position; undefined for a repeat of an event that has since expired. */
  position: number | undefined;
}

export interface EmitOrigin {
  environmentId: string;
  /** `api`, `webhook`, `cron`, … */
  source: string;
  /** The run whose handler emits, as the caller says; left out when there is no such run in the environment. */
  runId: string | undefined;
}

export interface Events {
  /** Commits the events in order, as one unit; resolves when they are durable. A repeated idempotency key answers the first. */
  emit(drafts: readonly EventDraft[], origin: EmitOrigin): Promise<Emitted[]>;
  /** Resolves once nothing is on its way to the store. */
  drain(): Promise<void>;
  /** The tick of loop `events.keys`: forgets idempotency keys after their time. */
  purgeOnce(write: Store["write"]): Promise<void>;
}

export interface EventsDeps {
  store: Store;
  clock: Clock;
  ids: Ids;
  definitions: DefinitionsCache;
  dispatcher: Pick<Dispatcher, "reserve" | "handOut">;
  /** Lanes that have got work nobody holds yet. */
  onQueued: (lanes: readonly Lane[]) => void;
  feeds: Pick<Feeds, "wanted" | "committed">;
  watch: Watch;
}

interface Unit {
  origin: EmitOrigin;
  drafts: readonly EventDraft[];
}

/** One event of a flush with the places kept for its runs. */
interface Prepared extends NewEvent {
  kept: Map<string, Reservation>;
}

/** Functions may change while a flush is prepared; more often than this in a row something is wrong. */
const staleTriesMax = 10;

/** So many characters of data weigh as much as one small event: a flush stays small in bytes too. */
const weightChars = 16_384;

export function openEvents(deps: EventsDeps): Events {
  const { store, clock, ids, definitions, dispatcher, onQueued, feeds, watch } = deps;
  const provenanceOf = openProvenance({ store, clock });
  const emitted = watch.metrics.counter({
    name: "svc_events_emitted_total",
    help: "Events that this node committed to the log; repeats of a key are none.",
  })();

  function prepare({ origin, drafts }: Unit, known: Definitions, now: Instant): Prepared[] {
    return drafts.map((draft) => {
      const id = ids.next("evt");
      const kept = new Map<string, Reservation>();
      const runs = startedBy(known, { id, source: origin.source, draft }, now).map((record): NewRun => {
        const run = newRun(record, { id, name: draft.name, value: draft.value }, { ids, now });
        const place = run.mode === "pull" ? dispatcher.reserve(run) : undefined;
        if (place) kept.set(run.id, place);
        return place ? { ...run, lease: place.lease } : run;
      });
      return {
        id,
        environmentId: origin.environmentId,
        name: draft.name,
        version: draft.version,
        data: draft.data,
        metadata: draft.metadata,
        source: origin.source,
        idempotencyKey: draft.idempotencyKey,
        runId: origin.runId ?? null,
        runs,
        kept,
      };
    });
  }

  async function flush(units: readonly Unit[]): Promise<Outcome<Emitted[]>[]> {
    const known = new Map<string, Definitions>();
    const gone = new Map<string, unknown>();
    const load = (environmentIds: Iterable<string>, again: boolean) =>
      Promise.all(
        Array.from(environmentIds, async (id) => {
          try {
            known.set(id, await (again ? definitions.reload(id) : definitions.of(id)));
          } catch (error) {
            known.delete(id);
            gone.set(id, error);
          }
        }),
      );
    await load(new Set(units.map((unit) => unit.origin.environmentId)), false);

    for (let tries = 1; ; tries++) {
      const now = clock.now();
      const going = units.filter((unit) => known.has(unit.origin.environmentId));
      const events: Prepared[] = [];
      try {
        const prepared = going.map((unit) => {
          const mine = prepare(unit, known.get(unit.origin.environmentId)!, now);
          events.push(...mine);
          return mine;
        });
        const versions = new Map([...known].map(([id, { version }]) => [id, version]));
        const logged =
          events.length === 0 ? [] : await store.flush(emitFlush, { now, events, definitions: versions });
        emitted.add(logged.length);
        handOver(events, logged);
        feed(events, logged);
        const answers = await answersOf(events, logged);
        const byUnit = new Map(going.map((unit, at) => [unit, prepared[at]!]));
        return units.map((unit) => {
          const mine = byUnit.get(unit);
          if (!mine) return { error: gone.get(unit.origin.environmentId) };
          return outcomeOf(mine.map((event) => answers.get(event.id)!));
        });
      } catch (error) {
        for (const event of events) for (const place of event.kept.values()) place.drop();
        if (!isStale(error) || tries >= staleTriesMax) throw error;
        // The store names one of them; the others may be as old.
        await load([...known.keys()], true);
      }
    }
  }

  /** After the commit: runs that were born claimed go to their workers, the others' lanes are told. */
  function handOver(events: readonly Prepared[], logged: readonly Logged[]): void {
    const placeOf = new Map(logged.map((row) => [events[row.ord - 1]!, row]));
    const lanes = new Map<string, Lane>();
    for (const event of events) {
      const row = placeOf.get(event);
      for (const run of event.runs) {
        const place = event.kept.get(run.id);
        if (!place && row)
          lanes.set(`${run.environmentId}\n${run.functionId}`, {
            environmentId: run.environmentId,
            functionId: run.functionId,
          });
        if (place && row) place.deliver(run, { ...event, at: row.at });
        if (place && !row) place.drop();
      }
      event.kept.clear();
    }
    dispatcher.handOut();
    if (lanes.size > 0) onQueued([...lanes.values()]);
  }

  /** Readers of the log hear of it, here and elsewhere. */
  function feed(events: readonly Prepared[], logged: readonly Logged[]): void {
    const rows = logged.filter(({ ord }) => feeds.wanted(events[ord - 1]!.environmentId));
    if (rows.length === 0) return;
    const byEnvironment = Map.groupBy(rows, ({ ord }) => events[ord - 1]!.environmentId);
    for (const [environmentId, own] of byEnvironment) {
      own.sort((a, b) => a.position - b.position);
      feeds.committed(
        environmentId,
        own.map(({ ord, position, at }) => loggedEvent(events[ord - 1]!, position, at)),
      );
    }
  }

  /** Events that were not written repeat a key, or their environment is gone. */
  async function answersOf(
    events: readonly Prepared[],
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
      if (!row || row.event_id === event.id)
        answers.set(event.id, missing("environment", event.environmentId));
      else if (row.kind !== "emit") answers.set(event.id, keyReused(row.key));
      else
        answers.set(event.id, {
          eventId: row.event_id,
          runIds: JSON.parse(row.run_ids) as string[],
          position: row.position ?? undefined,
        });
    }
    return answers;
  }

  const combiner = combine<Unit, Emitted[]>({
    name: "events.emit",
    lanes: combineLanes,
    laneOf: (unit) => laneOfEnvironment(unit.origin.environmentId),
    weigh: (unit) =>
      unit.drafts.reduce(
        (sum, draft) => sum + 1 + (draft.data.length + (draft.metadata?.length ?? 0)) / weightChars,
        0,
      ),
    itemsMax: flushItemsMax,
    waitingMax: combineWaitingMax,
    pace: { clock, ms: combinePaceMs },
    flush,
    watch: watchFlushes(watch, clock, "events.emit"),
    // A value the store refuses must cost its own event only.
    retrySplit: (error, units) => (error instanceof Fault ? units.map((unit) => [unit]) : undefined),
    // One environment's stuck head must not fail the others that happened to share its flush, nor stall them again.
    apart: {
      groupOf: (unit) => unit.origin.environmentId,
      isStuck: (error) => error instanceof StoreError && error.trouble === "lock_timeout",
    },
  });

  watchWaiting(watch.metrics, combiner);

  return {
    async emit(drafts, origin) {
      if (drafts.length === 0) return [];
      if (origin.runId === undefined) return combiner.submit({ origin, drafts });
      const runId = await provenanceOf(origin.environmentId, origin.runId);
      return combiner.submit({ origin: { ...origin, runId }, drafts });
    },

    drain: combiner.drain,

    async purgeOnce(write) {
      const before = clock.now() - idempotencyKeptMs;
      while ((await write((session) => purgeKeys(session, before, purgeSliceMax))) === purgeSliceMax);
    },
  };
}

const loggedEvent = (event: NewEvent, position: number, at: Instant): LoggedEvent => ({
  id: event.id,
  position,
  name: event.name,
  version: event.version,
  data: event.data,
  metadata: event.metadata,
  source: event.source,
  at,
  idempotency_key: event.idempotencyKey,
  entity_id: null,
  entity_type: null,
  entity_version: null,
  run_id: event.runId,
});

const unread = (): Fault =>
  new Fault("unavailable", "the answer to a repeated key cannot be read, try again", {
    headers: { "Retry-After": "1" },
  });

function outcomeOf(answers: readonly (Emitted | Fault)[]): Outcome<Emitted[]> {
  const fault = answers.find((answer) => answer instanceof Fault);
  return fault ? { error: fault } : { value: answers as Emitted[] };
}

const isStale = (error: unknown): boolean =>
  error instanceof StoreError && error.trouble === "marked" && error.detail.startsWith(staleDefinitions);
