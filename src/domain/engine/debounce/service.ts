import type { Clock } from "../../../kit/clock.ts";
import { Fault, invalid } from "../../../kit/fault.ts";
import type { Log } from "../../../kit/log.ts";
import type { Caller } from "../../../kit/operation.ts";
import { countTurns, roundRobin, type SharedWork, type Slice } from "../../../kit/round-robin.ts";
import type { Session, Store } from "../../../store/store.ts";
import type { Quotas } from "../quotas/service.ts";
import type { LateStart } from "../runs/late-start.ts";
import type { NewRun, QueueHint } from "../runs/run.ts";
import type { NewArm } from "./arm.ts";
import { type Fire, fireFlush } from "./fire.ts";
import * as rows from "./rows.ts";

/** Debounce entries that fire in one transaction. */
const debounceSliceMax = 200;
/** Debounce entries in one answer. */
const debounceListDefault = 100;
const debounceListMax = 1_000;

export type DebounceEntry = rows.DebounceEntryRow;

export interface EntryName {
  environmentId: string;
  functionId: string;
  /** The key as text, not encoded. */
  key: string;
}

/** Debounced starts: armed by the emit flush, fired here. */
export interface Debounce {
  list(environmentId: string, limit: number | undefined): Promise<DebounceEntry[]>;
  /**
   * Idempotent: a missing entry counts as cancelled. `permission_denied` for another environment's, except
   * for the platform.
   */
  cancel(name: EntryName, caller: Caller, callerEnvironmentId: string): Promise<void>;
  /** Called with entries that this node armed: the loop must tick when they fire. */
  armed(arms: readonly NewArm[]): void;
  /** Call inside the transaction that deletes a function, while its head is locked. */
  dropFunction(session: Session, target: { environmentId: string; functionId: string }): Promise<void>;
  /**
   * The tick of loop `debounce.fire`: fires due entries; answers in how many milliseconds the next is due.
   */
  fireOnce(): Promise<{ againInMs?: number }>;
}

export interface DebounceDeps {
  store: Store;
  clock: Clock;
  log: Log;
  startOf: LateStart;
  quotas: Pick<Quotas, "take">;
  /** Called with queues that got runs. */
  onQueued: (lanes: readonly QueueHint[]) => void;
  /** Called after the commit with the runs that entries started. */
  onCreated?: (runs: readonly NewRun[], at: number) => void;
  /** Asks the loop `debounce.fire` for a tick within these milliseconds. */
  fireIn: (ms: number) => void;
  /** Whether the node's clock can be trusted: without that it fires nothing. */
  knowsTime: () => boolean;
}

/** A locked entry stays due: the loop comes back after this, and does not spin. */
const fireEveryMsMin = 20;
/** An entry whose definition cannot be read waits this long; the other entries fire. */
const unreadMs = 10_000;

export function openDebounce(deps: DebounceDeps): Debounce {
  const { store, clock, log, startOf, onQueued } = deps;

  async function fireOf(entry: rows.DueEntryRow, now: number): Promise<Fire> {
    const { id: entryId, event_id: eventId, function_id: functionId, environment_id: environmentId } = entry;
    const { event_position: eventPosition, event_name: name, data, function_status: status } = entry;
    if (name === null || data === null || status === null || status === "archived") {
      log.info("debounce.dropped", { environmentId, functionId, eventId, status: status ?? "deleted" });
      return { entryId, eventId, eventPosition, run: undefined };
    }
    const run = await startOf({ ...entry, function_status: status }, { id: eventId, name, data }, now);
    return { entryId, eventId, eventPosition, run };
  }

  /** Puts off what the quotas of its environment have no room for. */
  async function withRoom(whole: readonly Fire[], ready: readonly rows.DueEntryRow[]) {
    const room = await deps.quotas.take(whole.flatMap(({ run }) => run?.environmentId ?? []));
    const begins = whole.map(({ run }) => !run || room.share(run.environmentId, 1) === 1);
    const late = Map.groupBy(
      ready.filter((_, at) => !begins[at]),
      ({ environment_id }) => room.againAt(environment_id),
    );
    for (const [until, entries] of late) await store.write((session) => rows.putOff(session, entries, until));
    return { fires: whole.filter((_, at) => begins[at]), entries: ready.filter((_, at) => begins[at]) };
  }

  async function fireSlice(slice: Slice): Promise<{ found: number; fired: rows.DueEntryRow[] }> {
    const now = clock.now();
    const due = await rows.dueEntries(store, now, slice);
    if (due.length === 0) return { found: 0, fired: [] };
    const read = await Promise.all(
      due.map((entry) => fireOf(entry, now).catch((error) => ({ entry, error }))),
    );
    const unread = read.flatMap((one) => ("error" in one ? one : []));
    for (const { entry, error } of unread)
      log.warn("debounce.not_fired", {
        environmentId: entry.environment_id,
        functionId: entry.function_id,
        error,
      });
    if (unread.length > 0)
      await store.write((session) =>
        rows.putOff(
          session,
          unread.map(({ entry }) => entry),
          now + unreadMs,
        ),
      );
    const ready = due.filter((_, at) => !("error" in read[at]!));
    const whole = read.flatMap((one) => ("error" in one ? [] : one));
    const { fires, entries } = await withRoom(whole, ready);
    const fired = fires.length === 0 ? [] : await store.flush(fireFlush, { now, fires });
    const lanes = fired.flatMap(({ ord }): QueueHint | [] => {
      const { run } = fires[ord - 1]!;
      return run ? { environmentId: run.environmentId, functionId: run.functionId } : [];
    });
    if (lanes.length > 0) onQueued(lanes);
    deps.onCreated?.(
      fired.flatMap(({ ord }) => fires[ord - 1]!.run ?? []),
      now,
    );
    return { found: due.length, fired: fired.map(({ ord }) => entries[ord - 1]!) };
  }

  return {
    list(environmentId, limit = debounceListDefault) {
      if (limit < 1 || limit > debounceListMax)
        throw invalid("limit", `must be from 1 to ${debounceListMax}`);
      return rows.listEntries(store, environmentId, limit);
    },

    async cancel(name, caller, callerEnvironmentId) {
      const anywhere = caller.kind === "platform" || caller.kind === "dev";
      if (!anywhere && name.environmentId !== callerEnvironmentId)
        throw new Fault("permission_denied", "environment does not match API key scope");
      if (await store.write((session) => rows.deleteEntry(session, name)))
        log.info("debounce.cancelled", { ...name, by: caller.id });
    },

    armed: (arms) =>
      deps.fireIn(Math.min(...arms.map(({ periodMs, maxWaitMs }) => Math.min(periodMs, maxWaitMs)))),

    async dropFunction(session, target) {
      await rows.deleteEntriesOf(session, target);
    },

    async fireOnce() {
      if (!deps.knowsTime()) return {};
      const work: SharedWork = {
        async oldest(limit) {
          const { found, fired } = await fireSlice({ oldest: limit });
          return { found, taken: fired.length };
        },
        scopes: () => rows.environmentsDueNow(store, clock.now()),
        claim: async (turns) => countTurns(turns, (await fireSlice({ turns })).fired),
      };
      await roundRobin([work], { clock, limit: debounceSliceMax });
      const next = await rows.nextFireAt(store);
      return next === undefined ? {} : { againInMs: Math.max(fireEveryMsMin, next - clock.now()) };
    },
  };
}
