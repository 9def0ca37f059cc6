import type { Clock, Instant } from "../../../kit/clock.ts";
import type { Committed, ItemOutcome } from "../../../kit/combine.ts";
import { Fault, tryAgain } from "../../../kit/fault.ts";
import { flushQueue, weightChars, weightOfPayloads } from "../../../kit/flush-queue.ts";
import { claimKeys, contended, type KeyClaims, lostKeys } from "../../../kit/key-claims.ts";
import type { Watch } from "../../../kit/watch.ts";
import { isMarked, isOfItem, isStuck, type Store, type StoreError } from "../../../store/store.ts";
import type { Definitions, DefinitionsCache } from "../functions/definition.ts";
import { quotaSpent } from "../quotas/rules.ts";
import type { ConnectedWorkers } from "../serving/service.ts";
import { answerOfUnit, answersOf, answersToRefused, type Emitted, noticesOf, usedKeys } from "./answers.ts";
import { type EmittedRow, emitFlush, staleDefinitions } from "./flush.ts";
import { type HandOverDeps, openHandOver } from "./hand-over.ts";
import { openQuotaRefusals, type QuotaRefusalsDeps } from "./metering.ts";
import {
  dropReservations,
  dropUnwritten,
  type EmitUnit,
  type PrepareDeps,
  prepareUnit,
  type ReservedEvent,
} from "./prepare.ts";
import type { UsedEventKey } from "./rows.ts";
import { openStreamHeads, writeAppends } from "./stream-appends.ts";
import { staleStreams } from "./stream-flush.ts";
import { judgedOf, unjudged } from "./trigger-evaluation.ts";

/** Removes the runs that a gate skipped from a committed flush's events, and keeps what is said of them. */
function dropSkipped(events: readonly ReservedEvent[], logged: readonly EmittedRow[]): void {
  for (const { ord, skipped } of logged) {
    if (!skipped || skipped.length === 0) continue;
    const event = events[ord - 1]!;
    const { runs } = event;
    event.runs = runs.filter(({ id }) => !skipped.includes(id));
    event.skips = runs.flatMap(({ id, functionId, gate }) =>
      gate && skipped.includes(id)
        ? { functionId, option: gate.option, outcome: "skipped", message: gate.message }
        : [],
    );
  }
}

/** Counts what flow control did to the events of a committed flush; skipped runs are dropped before. */
function openNoticeCount({ metrics }: Pick<Watch, "metrics">) {
  const count = metrics.counter({
    name: "svc_flow_notices_total",
    help: "Starts that flow control did not let be, by the option of the function and what it did.",
    labels: ["option", "outcome"],
  });
  return (events: readonly ReservedEvent[], logged: readonly EmittedRow[]): void => {
    for (const { ord } of logged)
      for (const { option, outcome } of noticesOf(events[ord - 1]!) ?? []) count(option, outcome).add(1);
  };
}

/**
 * Functions may change and keys be used while a flush is prepared; after this many tries in a row something
 * is wrong.
 */
const triesMax = 10;

export interface EmitQueueDeps extends Omit<HandOverDeps, "dispatcher">, Omit<PrepareDeps, "dispatcher"> {
  store: Store;
  clock: Clock;
  definitions: DefinitionsCache;
  quotas: QuotaRefusalsDeps["quotas"];
  dispatcher: HandOverDeps["dispatcher"] & PrepareDeps["dispatcher"];
  watch: Watch;
  serving: Pick<ConnectedWorkers, "unservedOf">;
}

/**
 * Events of one flush. Its callers are fewer (`flushItemsMax`): flushes of many single events follow each
 * other sooner, and batches of a hundred that each had a flush of their own cost a commit each.
 */
const flushEventsMax = 512;
/** So many events take the store as long as they take this process. */
const heavyEvents = 256;

/** Emits of all callers, brought together into flushes. */
export function openEmitQueue(deps: EmitQueueDeps) {
  const { store, clock, watch } = deps;
  const handOver = openHandOver(deps);
  const countNotices = openNoticeCount(watch);
  const streamHeads = openStreamHeads(deps);
  const refuseOver = openQuotaRefusals(deps);
  const emitted = watch.metrics.counter({
    name: "svc_events_emitted_total",
    help: "Events that this node committed to the log; repeats of a key are none.",
  })();
  const breaches = watch.metrics.counter({
    name: "svc_schema_breaches_total",
    help: "Emits refused by the schema of their event, and events written with a mark because they broke it.",
    labels: ["outcome"],
  });
  const warned = breaches("warned");
  const refused = breaches("refused");

  async function flush(units: readonly EmitUnit[], committed: Committed): Promise<ItemOutcome<Emitted[]>[]> {
    const definitions = new FlushDefinitions(deps.definitions);
    await definitions.load(new Set(units.map(environmentOf)), "of");
    const streams = streamHeads.of(units);
    const over = new Map<EmitUnit, Fault>();
    let isCurrent = false;
    let used: ReadonlyMap<string, UsedEventKey> | undefined;

    for (let tries = 1; ; tries++) {
      const now = clock.now();
      const prepared = new PreparedUnits();
      try {
        prepared.add(judgedOf(units, definitions.known), definitions.known, over, deps, now);
        // Definitions in memory may be old: a unit is refused only by those that the store says are current.
        if (prepared.refused.size > 0 && !isCurrent) {
          isCurrent = true;
          dropReservations(prepared.events());
          await definitions.load(new Set([...prepared.refused.keys()].map(environmentOf)), "current");
          continue;
        }
        const ofUnit = [...prepared.going.values()];
        const input = { now, definitions: definitions.versions(), metered: definitions.metered() };
        let claims: KeyClaims<ReservedEvent, UsedEventKey>;
        let logged: EmittedRow[];
        if (streams) ({ claims, logged } = await writeAppends(store, { streams, ofUnit, used, input }));
        else {
          claims = claimKeys(ofUnit, used);
          // A refusal names the item at fault, which only the store can tell.
          if (claims.refused.size > 0 && !used) {
            used = await usedKeys(store, ofUnit.flat());
            claims = claimKeys(ofUnit, used);
          }
          const { written: events, bound } = claims;
          logged = events.length === 0 ? [] : await store.flush(emitFlush, { ...input, events, bound });
        }
        const { written: events } = claims;
        // A run is rows of three more tables. libSQL shares this process: nothing runs beside it.
        const isHeavy = events.length >= heavyEvents || events.some(({ runs }) => runs.length > 0);
        committed(store.engine === "postgres" && isHeavy);
        dropUnwritten(ofUnit, events);
        emitted.add(logged.length);
        const marked = events.reduce((sum, { schema }) => sum + (schema?.breach ? 1 : 0), 0);
        if (marked > 0) warned.add(marked);
        dropSkipped(events, logged);
        countNotices(events, logged);
        handOver(events, logged, now);
        return await outcomesOf(units, { prepared, claims, logged, gone: definitions.gone });
      } catch (error) {
        const events = prepared.events();
        dropReservations(events);
        if (tries >= triesMax) throw contention(error);
        // The mark names one environment; the definitions of the others may be as old.
        if (isMarked(error, staleDefinitions))
          await definitions.load([...definitions.known.keys()], "reload");
        else if (isMarked(error, lostKeys)) used = await usedKeys(store, events);
        else if (isMarked(error, staleStreams)) streams?.wereStale();
        else if (isMarked(error, quotaSpent)) await refuseOver(error as StoreError, prepared.going, over);
        else throw error;
      }
    }
  }

  /** One outcome for each unit of a committed flush, in their order. */
  async function outcomesOf(
    units: readonly EmitUnit[],
    { prepared, claims, logged, gone }: CommittedFlush,
  ): Promise<ItemOutcome<Emitted[]>[]> {
    const answers = await answersOf(deps, claims.written, logged);
    const refusals = await answersToRefused(store, prepared.refused);
    for (const [unit, fault] of prepared.refused) {
      const outcome = refusals.get(unit);
      const isTold = outcome !== undefined && "error" in outcome && outcome.error === fault;
      if (isTold && unit.judged.some((one) => one.refused === fault)) refused.add(1);
    }
    let place = 0;
    return units.map((unit) => {
      const events = prepared.going.get(unit);
      if (!events) return refusals.get(unit) ?? { error: gone.get(environmentOf(unit)) ?? unjudged };
      const fault = claims.refused.get(place++);
      return fault ? { error: fault } : answerOfUnit(events, answers, claims);
    });
  }

  return flushQueue<EmitUnit, Emitted[]>({
    name: "events.emit",
    clock,
    watch,
    environmentOf,
    weigh: ({ drafts }) =>
      weightOfPayloads(drafts) + (drafts[0]!.arrival ? drafts[0]!.arrival.body.length / weightChars : 0),
    weightMax: flushEventsMax,
    flush,
    // A value the store refuses fails its own event only; one environment's stuck head does not fail the
    // others.
    isOfItem,
    isStuck,
  });
}

const environmentOf = (unit: EmitUnit): string => unit.origin.environmentId;

interface CommittedFlush {
  prepared: PreparedUnits;
  claims: KeyClaims<ReservedEvent, UsedEventKey>;
  logged: readonly EmittedRow[];
  gone: ReadonlyMap<string, unknown>;
}

/** The message when every try met the same trouble. */
function contention(error: unknown): unknown {
  if (isMarked(error, lostKeys)) return contended();
  if (isMarked(error, staleStreams)) return contendedStreams;
  return isMarked(error, quotaSpent) ? contendedQuotas : error;
}

const contendedQuotas = tryAgain("unavailable", "other requests use up the same quotas, try again");

const contendedStreams = tryAgain("unavailable", "other requests append to the same streams, try again");

/**
 * The definitions that a flush is decided by. An environment whose definitions cannot be read is in `gone`,
 * with the error.
 */
class FlushDefinitions {
  readonly known = new Map<string, Definitions>();
  readonly gone = new Map<string, unknown>();
  readonly #cache: DefinitionsCache;

  constructor(cache: DefinitionsCache) {
    this.#cache = cache;
  }

  async load(environmentIds: Iterable<string>, how: "of" | "current" | "reload"): Promise<void> {
    await Promise.all(
      Array.from(environmentIds, async (id) => {
        try {
          this.known.set(id, await this.#cache[how](id));
        } catch (error) {
          this.known.delete(id);
          this.gone.set(id, error);
        }
      }),
    );
  }

  /** Those with quotas. */
  metered(): string[] {
    const found: string[] = [];
    for (const [id, { isMetered }] of this.known) if (isMetered) found.push(id);
    return found;
  }

  versions(): Map<string, number> {
    return new Map([...this.known].map(([id, { version }]) => [id, version]));
  }
}

/** The units of one try of a flush, in order: accepted ones, with their events, and refused ones. */
class PreparedUnits {
  readonly going = new Map<EmitUnit, ReservedEvent[]>();
  readonly refused = new Map<EmitUnit, Fault>();

  add(
    units: readonly EmitUnit[],
    known: ReadonlyMap<string, Definitions>,
    over: ReadonlyMap<EmitUnit, Fault>,
    deps: PrepareDeps,
    now: Instant,
  ): void {
    for (const unit of units) {
      const fault = over.get(unit);
      if (fault) {
        this.refused.set(unit, fault);
        continue;
      }
      try {
        this.going.set(unit, prepareUnit(unit, known.get(environmentOf(unit))!, deps, now));
      } catch (error) {
        if (!(error instanceof Fault)) throw error;
        this.refused.set(unit, error);
      }
    }
  }

  events(): ReservedEvent[] {
    return [...this.going.values()].flat();
  }
}
