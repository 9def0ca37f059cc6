import { type Caller, operates } from "../../../kit/caller.ts";
import { type Instant, whenDue } from "../../../kit/clock.ts";
import { Fault, invalid } from "../../../kit/fault.ts";
import { integrityRowsMax, overdueMs } from "../../../kit/limits.ts";
import { roundRobin, type Slice, workOnSome } from "../../../kit/round-robin.ts";
import { fitting } from "../../../kit/slice-size.ts";
import { sql } from "../../../kit/sql.ts";
import type { Basics, Session, Store } from "../../../store/store.ts";
import { violationsOf } from "../../record/integrity/rules.ts";
import type { IntegrityCheck } from "../../record/integrity/service.ts";
import type { Quotas } from "../quotas/service.ts";
import type { LateStarts } from "../runs/late-start.ts";
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
export type Debounce = ReturnType<typeof openDebounce>;

export interface DebounceDeps extends Basics<"store" | "clock" | "log"> {
  starts: LateStarts;
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

export function openDebounce(deps: DebounceDeps) {
  const { store, clock, log, starts, onQueued } = deps;

  async function fireOf(entry: rows.DueEntryRow, data: string | undefined, now: number): Promise<Fire> {
    const { id: entryId, event_id: eventId, function_id: functionId, environment_id: environmentId } = entry;
    const { event_position: eventPosition, event_name: name, function_status: status } = entry;
    if (name === null || data === undefined || status === null || status === "archived") {
      log.info("debounce.dropped", { environmentId, functionId, eventId, status: status ?? "deleted" });
      return { entryId, eventId, eventPosition, run: undefined };
    }
    const run = await starts.runOf({ ...entry, function_status: status }, { id: eventId, name, data }, now);
    return { entryId, eventId, eventPosition, run };
  }

  /** Puts off what the quotas of its environment have no room for. */
  async function withRoom(ready: readonly { row: rows.DueEntryRow; made: Fire }[]) {
    const room = await deps.quotas.take(ready.flatMap(({ made: { run } }) => run?.environmentId ?? []));
    const begin: (typeof ready)[number][] = [];
    const late: rows.DueEntryRow[] = [];
    for (const one of ready) {
      const { run } = one.made;
      if (!run || room.share(run.environmentId, 1) === 1) begin.push(one);
      else late.push(one.row);
    }
    for (const [until, entries] of Map.groupBy(late, (row) => room.againAt(row.environment_id)))
      await store.write((session) => rows.putOff(session, entries, until));
    return begin;
  }

  async function fireSlice(slice: Slice): Promise<{ found: number; taken: rows.DueEntryRow[] }> {
    const now = clock.now();
    const found = await rows.dueEntries(store, now, slice);
    if (found.length === 0) return { found: 0, taken: [] };
    const due = fitting(found, ({ data_bytes }) => data_bytes ?? 0);
    const data = await rows.dataOf(
      store,
      due.map(({ event_id }) => event_id),
    );
    const unread = { event: "debounce.not_fired", putOff: rows.putOff };
    const begin = await withRoom(
      await starts.each(due, (entry) => fireOf(entry, data.get(entry.event_id), now), unread),
    );
    const fires = begin.map(({ made }) => made);
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
    return { found: found.length, taken: fired.map(({ ord }) => begin[ord - 1]!.row) };
  }

  return {
    list(environmentId: string, limit: number | undefined = debounceListDefault): Promise<DebounceEntry[]> {
      if (limit < 1 || limit > debounceListMax)
        throw invalid("limit", `must be from 1 to ${debounceListMax}`);
      return rows.listEntries(store, environmentId, limit);
    },

    /**
     * Idempotent: a missing entry counts as cancelled. `permission_denied` for another environment's, except
     * for the platform.
     */
    async cancel(name: EntryName, caller: Caller, callerEnvironmentId: string) {
      if (!operates(caller) && name.environmentId !== callerEnvironmentId)
        throw new Fault("permission_denied", "environment does not match API key scope");
      if (await store.write((session) => rows.deleteEntry(session, name)))
        log.info("debounce.cancelled", { ...name, by: caller.id });
    },

    /** Called with entries that this node armed: the loop must tick when they fire. */
    armed: (arms: readonly NewArm[]) =>
      deps.fireIn(Math.min(...arms.map(({ periodMs, maxWaitMs }) => Math.min(periodMs, maxWaitMs)))),

    /** Call inside the transaction that deletes a function, while its head is locked. */
    async dropFunction(session: Session, target: { environmentId: string; functionId: string }) {
      await rows.deleteEntriesOf(session, target);
    },

    /**
     * The tick of loop `debounce.fire`: fires due entries; answers in how many milliseconds the next is due.
     */
    async fireOnce(): Promise<{ againInMs?: number }> {
      if (!deps.knowsTime()) return {};
      const work = workOnSome(fireSlice, () => rows.environmentsDueNow(store, clock.now()));
      return whenDue(clock, {
        nextAt: () => rows.nextFireAt(store),
        move: () => roundRobin([work], { clock, limit: debounceSliceMax }),
      });
    },
  };
}

export const debounceCheck = (store: Store, clock: { now(): Instant }): IntegrityCheck => ({
  name: "debounces.overdue",
  about: "Debounced starts whose time passed without anyone firing them.",
  run: async (environmentId) => {
    const late = clock.now() - overdueMs;
    return violationsOf(
      await store.all<{ id: string; at: Instant }>(sql`SELECT id, at FROM (
        SELECT environment_id, function_id || ':' || debounce_key AS id, fires_at AS at FROM debounces
        WHERE fires_at <= ${late} ORDER BY fires_at LIMIT ${integrityRowsMax}) due
      WHERE environment_id = ${environmentId}`),
    );
  },
});
