import { type Instant, whenDue } from "../../../kit/clock.ts";
import { integrityRowsMax, overdueMs } from "../../../kit/limits.ts";
import { pageOf, pageSize, readNameCursor, writeNameCursor } from "../../../kit/page.ts";
import { roundRobin, type Slice, workOnSome } from "../../../kit/round-robin.ts";
import { fitting } from "../../../kit/slice-size.ts";
import { sql } from "../../../kit/sql.ts";
import type { Basics, Store } from "../../../store/store.ts";
import { violationsOf } from "../../record/integrity/rules.ts";
import type { IntegrityCheck } from "../../record/integrity/service.ts";
import type { Quotas, Room } from "../quotas/service.ts";
import type { LateStarts } from "../runs/late-start.ts";
import type { NewRun, QueueHint } from "../runs/run.ts";
import { type BatchRun, type Close, closeFlush } from "./close.ts";
import { batchSliceMax, batchTakeMax } from "./limits.ts";
import * as rows from "./rows.ts";
import { type BatchedEvent, type BatchPlan, planBatches } from "./rules.ts";

/** A batch as it is listed. */
export interface OpenBatch extends rows.BatchListing {
  /** Full, or its time is over. */
  isReady: boolean;
}

export interface BatchesQuery {
  functionId?: string | undefined;
  cursor?: string | undefined;
  limit?: number | undefined;
}

/** Events that start one run together: they join in the emit flush, and begin here. */
export type BatchStarts = ReturnType<typeof openBatchStarts>;

export interface BatchStartsDeps extends Basics<"store" | "clock" | "log"> {
  starts: LateStarts;
  quotas: Pick<Quotas, "take">;
  /** Called with queues that got runs. */
  onQueued: (lanes: readonly QueueHint[]) => void;
  /** Called after the commit with the runs that began. */
  onCreated: (runs: readonly NewRun[], at: Instant) => void;
  /** Asks the loop `batches.close` for a tick. */
  wake: () => void;
  /** Whether the node's clock can be trusted: without that it closes nothing. */
  knowsTime: () => boolean;
}

export function openBatchStarts(deps: BatchStartsDeps) {
  const { store, clock, log, starts, quotas, onQueued, onCreated } = deps;

  /** Undefined for what is dropped. */
  function planOf(due: rows.DueBatch, waiting: readonly BatchedEvent[], now: Instant): BatchPlan | undefined {
    const { function_status: status, size, timeout_ms: timeoutMs } = due;
    if (status !== null && status !== "archived")
      return planBatches(waiting, { size, timeoutMs, isAll: waiting.length <= batchTakeMax }, now);
    log.info("batch.dropped", {
      ...{ environmentId: due.environment_id, functionId: due.function_id, status: status ?? "deleted" },
    });
    return undefined;
  }

  async function closeOf(
    due: rows.DueBatch,
    plan: BatchPlan | undefined,
    { firsts, now }: { firsts: ReadonlyMap<string, rows.BatchHead>; now: Instant },
  ): Promise<Close> {
    const { id: batchId, environment_id: environmentId, function_status: status } = due;
    const close = { batchId, environmentId, firstPosition: due.first_position };
    if (!plan || status === null)
      return { ...close, ...takenOf(due, { runs: [], next: undefined }, now), runs: [], isDropped: true };
    const runs = await Promise.all(
      plan.runs.map(async (own): Promise<BatchRun> => {
        const [first] = own;
        const event = firsts.get(first!.eventId)!;
        const run = await starts.runOf({ ...due, function_status: status }, event, now);
        return { run, from: first!.position, to: own.at(-1)!.position };
      }),
    );
    return { ...close, ...takenOf(due, plan, now), runs, isDropped: false };
  }

  async function closeSlice(slice: Slice): Promise<{ found: number; taken: rows.DueBatch[] }> {
    const now = clock.now();
    const due = await rows.dueBatches(store, now, slice);
    if (due.length === 0) return { found: 0, taken: [] };
    const waiting = Map.groupBy(await rows.waitingIn(store, due), ({ turn }) => turn);
    const wanted = inBytes(
      due,
      due.map((one, at) => planOf(one, inOrder(waiting.get(at + 1) ?? []), now)),
      now,
    );
    const room = await quotas.take(
      due.flatMap((one, at) => wanted[at]?.runs.map(() => one.environment_id) ?? []),
    );
    const plans = due.map((one, at) => inRoom(wanted[at], one, room));
    const ids = plans.flatMap((plan) => plan?.runs.map(([first]) => first!.eventId) ?? []);
    const firsts = new Map((await rows.eventsById(store, ids)).map((event) => [event.id, event]));
    const unread = { event: "batch.not_closed", putOff: rows.putOff };
    const ready = await starts.each(due, (one, at) => closeOf(one, plans[at], { firsts, now }), unread);
    const closes = ready.map(({ made }) => made);
    const closed = closes.length === 0 ? [] : await store.flush(closeFlush, { now, closes });
    const runs = closed.flatMap(({ ord }) => closes[ord - 1]!.runs.map(({ run }) => run));
    if (runs.length > 0) {
      onQueued(runs.map(({ environmentId, functionId }) => ({ environmentId, functionId })));
      onCreated(runs, now);
    }
    return { found: due.length, taken: closed.map(({ ord }) => ready[ord - 1]!.row) };
  }

  return {
    /** Called with events that this node let join: the loop must look. */
    joined: deps.wake,
    /** Call inside the transaction that deletes a function, while its head is locked. */
    dropFunction: rows.deleteBatchesOf,

    /** What is open in the environment, by function. */
    async list(
      environmentId: string,
      { functionId, cursor, limit }: BatchesQuery,
    ): Promise<{ batches: OpenBatch[]; nextCursor: string | undefined }> {
      const size = pageSize(limit);
      const found = await rows.listBatches(store, environmentId, {
        functionId: functionId || undefined,
        after: cursor ? readPlace(cursor) : undefined,
        limit: size + 1,
      });
      const now = clock.now();
      const { items, nextCursor } = pageOf(found, size, (last) =>
        writeNameCursor(`${last.id} ${last.function_id}`),
      );
      return { batches: items.map((one) => ({ ...one, isReady: one.closes_at <= now })), nextCursor };
    },

    /** The tick of loop `batches.close`; answers in how many milliseconds the next is due. */
    async closeOnce(): Promise<{ againInMs?: number }> {
      if (!deps.knowsTime()) return {};
      const work = workOnSome(closeSlice, () => rows.environmentsDueNow(store, clock.now()));
      return whenDue(clock, {
        nextAt: () => rows.nextCloseAt(store),
        move: () => roundRobin([work], { clock, limit: batchSliceMax }),
      });
    },
  };
}

/** Ids of batches have no space. */
function readPlace(cursor: string): { functionId: string; id: string } {
  const [id = "", ...functionId] = readNameCursor("cursor", cursor).split(" ");
  return { functionId: functionId.join(" "), id };
}

const inOrder = (found: readonly rows.BatchedRow[]): BatchedEvent[] =>
  found
    .map(({ position, event_id: eventId, bytes, at }) => ({ position, eventId, bytes, at }))
    .sort((a, b) => a.position - b.position);

/** The parts of the plans whose first events are read now. */
function inBytes(
  due: readonly rows.DueBatch[],
  plans: readonly (BatchPlan | undefined)[],
  now: Instant,
): (BatchPlan | undefined)[] {
  const all = due.flatMap(
    ({ environment_id }, at) => plans[at]?.runs.map(([first]) => ({ ...first!, environment_id, at })) ?? [],
  );
  const counts = Map.groupBy(
    fitting(all, ({ bytes }) => bytes),
    ({ at }) => at,
  );
  return plans.map((plan, at) => plan && firstRuns(plan, counts.get(at)?.length ?? 0, now));
}

const firstRuns = (plan: BatchPlan, most: number, notBefore: Instant): BatchPlan =>
  most === plan.runs.length ? plan : { runs: plan.runs.slice(0, most), next: plan.runs[most]![0], notBefore };

/** The part of a plan that the quotas of its environment let begin. */
function inRoom(
  plan: BatchPlan | undefined,
  { environment_id }: rows.DueBatch,
  room: Room,
): BatchPlan | undefined {
  if (!plan) return undefined;
  const most = room.share(environment_id, plan.runs.length);
  return most === plan.runs.length ? plan : firstRuns(plan, most, room.againAt(environment_id));
}

/** What goes on waiting begins behind the last event that does not: an event may join meanwhile. */
function takenOf({ first_position }: rows.DueBatch, { runs, next, notBefore = 0 }: BatchPlan, now: Instant) {
  const taken = runs.flat();
  return {
    count: taken.length,
    bytes: taken.reduce((sum, { bytes }) => sum + bytes, 0),
    next: next ?? { position: (taken.at(-1)?.position ?? first_position - 1) + 1, at: now },
    notBefore,
  };
}

export const batchesCheck = (store: Store, clock: { now(): Instant }): IntegrityCheck => ({
  name: "batches.overdue",
  about: "Batches of events whose time passed without anyone closing them.",
  run: async (environmentId) => {
    const late = clock.now() - overdueMs;
    return violationsOf(
      await store.all<{ id: string; at: Instant }>(sql`SELECT id, at, events FROM (
        SELECT environment_id, function_id || ':' || id AS id, closes_at AS at, count AS events FROM batches
        WHERE closes_at <= ${late} ORDER BY closes_at LIMIT ${integrityRowsMax}) due
      WHERE environment_id = ${environmentId}`),
    );
  },
});
