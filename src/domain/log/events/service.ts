import type { Clock, Instant } from "../../../kit/clock.ts";
import { combine, type ItemOutcome } from "../../../kit/combine.ts";
import { combineLaneOf } from "../../../kit/combine-lane.ts";
import { Fault } from "../../../kit/fault.ts";
import type { Ids } from "../../../kit/ids.ts";
import { claimKeys, contended, lostKeys } from "../../../kit/key-claims.ts";
import {
  combineLanes,
  combinePaceMs,
  combineWaitingMax,
  flushItemsMax,
  idempotencyKeptMs,
  purgeSliceMax,
} from "../../../kit/limits.ts";
import { type Watch, watchFlushes, watchWaiting } from "../../../kit/watch.ts";
import { isOfItem, type Store, StoreError } from "../../../store/store.ts";
import type { NewArm } from "../../engine/debounce/arm.ts";
import type { Dispatcher } from "../../engine/dispatch/dispatcher.ts";
import type { Reservation } from "../../engine/dispatch/reservations.ts";
import type { Definitions, DefinitionsCache } from "../../engine/functions/definition.ts";
import type { NewRun } from "../../engine/runs/run.ts";
import type { Matcher } from "../../engine/runs/waits/matcher.ts";
import type { QueueHint } from "../../engine/runs/wakes/due.ts";
import type { Feeds } from "../log/feed.ts";
import {
  answerOfUnit,
  answersOf,
  answersToRefused,
  type Emitted,
  keyedOf,
  type PreparedEvent,
  usedKeys,
} from "./answers.ts";
import { type EmittedRow, emitFlush, loggedEvent, staleDefinitions } from "./flush.ts";
import { type InvokeTarget, invokedBy, newArm, newRun, requireUndelayed, startedBy } from "./new-runs.ts";
import { openProvenance } from "./provenance.ts";
import { purgeKeys, type UsedEventKey } from "./rows.ts";
import type { EventDraft } from "./rules.ts";
import { type Judgeable, type Judged, judgedOf, openTriggering, unjudged } from "./trigger-evaluation.ts";

/** A start of one function, checked, with payloads as the JSON text that is stored. */
export interface InvokeDraft extends InvokeTarget {
  /** JSON text, and the value it was written from. */
  data: string;
  value: unknown;
  metadata: string | null;
  idempotencyKey: string | null;
  /** The key is the server's own: see `storedKey`. */
  ownKey?: true;
}

export type { Emitted };

export interface EmitOrigin {
  environmentId: string;
  /** `api`, `webhook`, `cron`, … */
  source: string;
  /** The run whose handler emits, as the caller says; left out when there is no such run in the environment. */
  runId: string | undefined;
}

/** Source is `invoke` unless it says otherwise. */
export type InvokeOrigin = Omit<EmitOrigin, "source"> & { source?: string };

export interface Events {
  /**
   * Commits the events in order, all or none of them; resolves when they are durable. A repeated idempotency key answers
   * the first, a key that names something else refuses them all, `already_exists`.
   */
  emit(drafts: readonly EventDraft[], origin: EmitOrigin): Promise<Emitted[]>;
  /** One event whose runs begin at once: `failed_precondition` when one of them would be debounced. */
  emitUndelayed(draft: EventDraft, origin: EmitOrigin): Promise<Emitted>;
  /**
   * Logs one event named by the function and starts exactly one run of it; no event triggers are matched. `not_found` for
   * an unknown function, `failed_precondition` for an archived one and for one that a run may not invoke; a paused one's
   * run waits. `already_exists` for an idempotency key that an emit or another function has used.
   */
  invoke(draft: InvokeDraft, origin: InvokeOrigin): Promise<Emitted>;
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
  dispatcher: Pick<Dispatcher, "reserve" | "answerDelivered">;
  /** Lanes that have got work nobody holds yet. */
  onQueued: (lanes: readonly QueueHint[]) => void;
  /** Told after the commit of starts that wait for repetitions to cease. */
  onArmed: (arms: readonly NewArm[]) => void;
  /** Told after the commit of runs that events started. */
  onCreated?: (runs: readonly NewRun[], at: Instant) => void;
  feeds: Pick<Feeds, "wanted" | "committed">;
  /** Whether the environment has waits: the matcher shall look at what was logged. */
  matcher: Pick<Matcher, "wanted" | "wake">;
  watch: Watch;
}

interface EmitSubmission {
  origin: EmitOrigin;
  drafts: readonly EventDraft[];
  /** The one function that the one draft starts, whatever triggers there are. */
  target?: InvokeTarget | undefined;
  /** None of the functions it starts may be debounced. */
  undelayed?: boolean;
}

interface EmitUnit extends EmitSubmission, Judgeable {
  origin: EmitOrigin;
  target: InvokeTarget | undefined;
}

/** One event of a flush with the places reservations for its runs. */
interface ReservedEvent extends PreparedEvent {
  reservations: Map<string, Reservation>;
}

/** Functions may change and keys be used while a flush is prepared; more often than this in a row something is wrong. */
const triesMax = 10;

/** So many characters of data weigh as much as one small event: a flush stays small in bytes too. */
const weightChars = 16_384;

export function openEvents(deps: EventsDeps): Events {
  const { store, clock, ids, definitions, dispatcher, onQueued, onArmed, feeds, matcher, watch } = deps;
  const provenanceOf = openProvenance({ store, clock });
  const emitted = watch.metrics.counter({
    name: "svc_events_emitted_total",
    help: "Events that this node committed to the log; repeats of a key are none.",
  })();

  const triggering = openTriggering({ clock, definitions });

  function prepare(
    { origin, drafts, judged, target, undelayed }: EmitUnit,
    known: Definitions,
    now: Instant,
  ): ReservedEvent[] {
    const invoked = target && [invokedBy(known, target)];
    return drafts.map((draft, at) => {
      const { id } = judged[at]!;
      const reservations = new Map<string, Reservation>();
      const started = invoked ?? startedBy(known, draft, judged[at]!);
      if (undelayed) requireUndelayed(started);
      const arms: NewArm[] = [];
      const runs = started.flatMap((record): NewRun | [] => {
        const arm = target ? undefined : newArm(record, { id, value: draft.value });
        if (arm) {
          arms.push(arm);
          return [];
        }
        const run = newRun(record, { id, name: draft.name, value: draft.value }, { ids, now });
        if (target?.parent) run.parent = target.parent;
        const place = record.status === "active" ? dispatcher.reserve(run) : undefined;
        if (place) reservations.set(run.id, place);
        const laneLimit = record.definition.concurrency?.limit;
        return place
          ? { ...run, lease: { ...place.lease, ...(laneLimit !== undefined && { laneLimit }) } }
          : run;
      });
      // Each on its own: an object that is spread costs more than the rest of this.
      const keyed = keyedOf(draft, target);
      return {
        id,
        environmentId: origin.environmentId,
        name: draft.name,
        version: draft.version,
        data: draft.data,
        metadata: draft.metadata,
        source: origin.source,
        idempotencyKey: keyed.idempotencyKey,
        key: keyed.key,
        use: keyed.use,
        at: keyed.at,
        ownKey: draft.ownKey,
        invokes: target?.functionId ?? null,
        runId: origin.runId ?? null,
        runs,
        arms,
        reservations,
      };
    });
  }

  async function flush(units: readonly EmitUnit[], committed: () => void): Promise<ItemOutcome<Emitted[]>[]> {
    const known = new Map<string, Definitions>();
    const gone = new Map<string, unknown>();
    const load = (environmentIds: Iterable<string>, how: "of" | "current" | "reload") =>
      Promise.all(
        Array.from(environmentIds, async (id) => {
          try {
            known.set(id, await definitions[how](id));
          } catch (error) {
            known.delete(id);
            gone.set(id, error);
          }
        }),
      );
    await load(new Set(units.map((unit) => unit.origin.environmentId)), "of");
    let checked = false;
    let used: ReadonlyMap<string, UsedEventKey> | undefined;

    for (let tries = 1; ; tries++) {
      const now = clock.now();
      const going = judgedOf(units, known);
      const prepared = new Map<EmitUnit, ReservedEvent[]>();
      const refused = new Map<EmitUnit, Fault>();
      try {
        for (const unit of going) {
          try {
            prepared.set(unit, prepare(unit, known.get(unit.origin.environmentId)!, now));
          } catch (error) {
            if (!(error instanceof Fault)) throw error;
            refused.set(unit, error);
          }
        }
        if (refused.size > 0 && !checked) {
          checked = true;
          dropReservations([...prepared.values()].flat());
          await load(new Set([...refused.keys()].map((unit) => unit.origin.environmentId)), "current");
          continue;
        }
        const versions = new Map([...known].map(([id, { version }]) => [id, version]));
        const ofUnit = [...prepared.values()];
        let claims = claimKeys(ofUnit, used);
        // Who is refused is told which item is wrong: only the store knows.
        if (claims.refused.size > 0 && !used) {
          used = await usedKeys(store, ofUnit.flat());
          claims = claimKeys(ofUnit, used);
        }
        const { written: events, bound } = claims;
        dropUnwritten(ofUnit, events);
        const logged =
          events.length === 0
            ? []
            : await store.flush(emitFlush, { now, events, bound, definitions: versions });
        committed();
        emitted.add(logged.length);
        handOver(events, logged);
        feed(events, logged);
        const answers = await answersOf(store, events, logged);
        const refusals = await answersToRefused(store, refused);
        let place = 0;
        return units.map((unit) => {
          const mine = prepared.get(unit);
          if (!mine) return refusals.get(unit) ?? { error: gone.get(unit.origin.environmentId) ?? unjudged };
          const fault = claims.refused.get(place++);
          return fault ? { error: fault } : answerOfUnit(mine, answers, claims);
        });
      } catch (error) {
        const events = [...prepared.values()].flat();
        dropReservations(events);
        if (tries >= triesMax) throw isMarked(error, lostKeys) ? contended() : error;
        // The store names one of them; the others may be as old.
        if (isMarked(error, staleDefinitions)) await load([...known.keys()], "reload");
        else if (isMarked(error, lostKeys)) used = await usedKeys(store, events);
        else throw error;
      }
    }
  }

  /** After the commit: runs that were born claimed go to their workers, the others' lanes are told. */
  function handOver(events: readonly ReservedEvent[], logged: readonly EmittedRow[]): void {
    const placeOf = new Map(logged.map((row) => [events[row.ord - 1]!, row]));
    const lanes = new Map<string, QueueHint>();
    for (const event of events) {
      const row = placeOf.get(event);
      for (const run of event.runs) {
        const place = event.reservations.get(run.id);
        const denied = row?.denied?.includes(run.id) === true;
        if ((!place || denied) && row)
          lanes.set(run.laneId ?? `${run.environmentId}\n${run.functionId}`, {
            environmentId: run.environmentId,
            functionId: run.functionId,
            ...(run.laneId !== null && { laneId: run.laneId }),
          });
        if (place && row && !denied) place.deliver(run, { ...event, at: row.at });
        if (place && (!row || denied)) place.drop();
      }
      event.reservations.clear();
    }
    dispatcher.answerDelivered();
    const arms = logged.flatMap(({ ord }) => events[ord - 1]!.arms);
    if (arms.length > 0) onArmed(arms);
    if (lanes.size > 0) onQueued([...lanes.values()]);
  }

  /** Readers of the log hear of it, here and elsewhere. */
  function feed(events: readonly ReservedEvent[], logged: readonly EmittedRow[]): void {
    for (const { ord, at } of logged) {
      const { environmentId, runs } = events[ord - 1]!;
      if (runs.length > 0) deps.onCreated?.(runs, at);
      if (matcher.wanted(environmentId) || runs.some((run) => run.cancels)) matcher.wake(environmentId);
    }
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

  const combiner = combine<EmitUnit, Emitted[]>({
    name: "events.emit",
    lanes: combineLanes,
    laneOf: (unit) => combineLaneOf(unit.origin.environmentId),
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
    isOfItem,
    // One environment's stuck head must not fail the others that happened to share its flush, nor stall them again.
    apart: {
      groupOf: (unit) => unit.origin.environmentId,
      isStuck: (error) => error instanceof StoreError && error.trouble === "lock_timeout",
    },
  });

  watchWaiting(watch.metrics, combiner);
  /** Without a run that is none of the environment's; without waiting where none is named. */
  const proven = (origin: EmitOrigin): EmitOrigin | Promise<EmitOrigin> =>
    origin.runId === undefined
      ? origin
      : provenanceOf(origin.environmentId, origin.runId).then((runId) => ({ ...origin, runId }));

  const submit = ({ origin, drafts, target, undelayed = false }: EmitSubmission): Promise<Emitted[]> => {
    const judged = drafts.map((): Judged => ({ id: ids.next("evt"), at: undefined, verdicts: undefined }));
    const unit: EmitUnit = { origin, drafts, target, undelayed, judged, judgedBy: undefined };
    return triggering.through(unit, combiner.submit);
  };

  return {
    async emit(drafts, origin) {
      if (drafts.length === 0) return [];
      const known = proven(origin);
      return submit({ origin: known instanceof Promise ? await known : known, drafts });
    },

    async emitUndelayed(draft, origin) {
      const known = await proven(origin);
      const [emitted] = await submit({ origin: known, drafts: [draft], undelayed: true });
      return emitted!;
    },

    async invoke({ functionId, parent, ...payload }, { source = "invoke", ...origin }) {
      const [emitted] = await submit({
        origin: await proven({ environmentId: origin.environmentId, source, runId: origin.runId }),
        drafts: [{ ...payload, name: functionId, version: 1, metadataValue: null }],
        target: { functionId, ...(parent && { parent }) },
      });
      return emitted!;
    },

    drain: combiner.drain,

    async purgeOnce(write) {
      const before = clock.now() - idempotencyKeptMs;
      while ((await write((session) => purgeKeys(session, before, purgeSliceMax))) === purgeSliceMax);
    },
  };
}

function dropReservations(events: readonly ReservedEvent[]): void {
  for (const { reservations } of events) {
    for (const place of reservations.values()) place.drop();
    reservations.clear();
  }
}

/** Repeats and what was refused get no runs. */
function dropUnwritten(
  units: readonly (readonly ReservedEvent[])[],
  written: readonly ReservedEvent[],
): void {
  if (units.reduce((sum, { length }) => sum + length, 0) === written.length) return;
  const going = new Set(written);
  dropReservations(units.flat().filter((event) => !going.has(event)));
}

const isMarked = (error: unknown, mark: string): boolean =>
  error instanceof StoreError && error.trouble === "marked" && error.detail.startsWith(mark);
