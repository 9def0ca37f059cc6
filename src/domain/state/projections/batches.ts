import { ReadAheadSize } from "../../../kit/slice-size.ts";
import type { Basics, Store } from "../../../store/store.ts";
import { debounceKey } from "../../engine/debounce/rules.ts";
import { type FeedEvent, readSlice } from "./event-rows.ts";
import { projectionLiveMs } from "./limits.ts";
import { type GenerationRow, getHead, type ProjectionRow } from "./rows.ts";
import { eventNamesOf, globalPartition } from "./rules.ts";
import { firstPending, type PartitionPlace, type PendingPartition, partitionsAt } from "./state-rows.ts";

/** An event with the partition that it belongs to. */
export interface PartitionedEvent extends FeedEvent {
  partition: string;
}

/** What a runner may be given next. */
export interface EventBatch {
  events: PartitionedEvent[];
  /** Every event up to here is in the batch, folded already, or of a partition that has stopped. */
  reached: number;
  /** Set where events after the cursor have expired: the first position that is kept. */
  floor?: number;
}

export interface BatchRequest {
  row: ProjectionRow;
  generation: GenerationRow;
  after: number;
  limit: number;
  /** Only the events of one partition. */
  partition: string | undefined;
}

/** How long a node remembers how large the events of a projection are. */
const sizesMax = 10_000;

/** Reads what comes next for runners, in slices of the log in the store. */
export type EventBatches = ReturnType<typeof openBatches>;

export function openBatches({ store, clock, log }: Basics<"store" | "clock" | "log">) {
  const sizes = new Map<string, ReadAheadSize>();
  /** Projections whose useless path was logged already. */
  const told = new Set<string>();

  function sizeOf(key: string): ReadAheadSize {
    const found = sizes.get(key);
    if (found) return found;
    if (sizes.size >= sizesMax) sizes.clear();
    const size = new ReadAheadSize(32);
    sizes.set(key, size);
    return size;
  }

  function tellOnce({ environment_id: environmentId, name, partition_path: path }: ProjectionRow): void {
    const key = `${environmentId}\n${name}\n${path}`;
    if (told.has(key)) return;
    if (told.size >= sizesMax) told.clear();
    told.add(key);
    log.warn("projections.no_partition", { environmentId, name, path });
  }

  return {
    async read({ row, generation, after, limit, partition }: BatchRequest): Promise<EventBatch> {
      const { environment_id: environmentId, name, partition_path: path } = row;
      const head = await getHead(store, environmentId);
      if (!head) return { events: [], reached: after };
      const names = eventNamesOf(JSON.parse(row.events) as string[]);
      // An external projection that jumps back after its rebuild has handled what is after the target.
      const { target, return_to } = generation;
      const last = return_to === null || target === null ? head.position : Math.min(head.position, target);
      const range = { after, last, limit };
      const slice = await readSlice(
        { store, clock },
        { environmentId, names },
        range,
        sizeOf(`${environmentId}\n${name}`),
      );
      // Asked after the read: the floor is raised before the first event expires.
      const kept = await getHead(store, environmentId);
      if (kept && after < kept.retention_floor - 1)
        return { events: [], reached: after, floor: kept.retention_floor };
      const events = slice.events.map((event) => ({ ...event, partition: partitionOfEvent(path, event) }));
      if (path !== "" && events.some((event) => event.partition === globalPartition)) tellOnce(row);
      const whole = { events, reached: slice.reached };
      const open = row.mode === "managed" ? await unfolded(store, generation, whole) : whole;
      if (partition === undefined) return open;
      return { ...open, events: open.events.filter((event) => event.partition === partition) };
    },
  };
}

const entityPath = /^(\$\.)?(event\.)?entity_?id$/i;

/** The partition of an event; `data` is its JSON text. */
function partitionOfEvent(
  path: string,
  { data, entity_id }: { data: string; entity_id: string | null },
): string {
  if (path === "") return globalPartition;
  if (entityPath.test(path)) return entity_id ?? globalPartition;
  return debounceKey(path, JSON.parse(data));
}

/** Without what its partition has folded, and without what comes after a failed event of its partition. */
async function unfolded(
  store: Store,
  generation: GenerationRow,
  { events, reached }: EventBatch,
): Promise<EventBatch> {
  if (events.length === 0) return { events, reached };
  const keys = [...new Set(events.map(({ partition }) => partition))];
  const rows = await partitionsAt(store, generation, keys);
  const states = new Map(rows.map((row) => [row.partition_key, row]));
  const open = events.filter(({ partition, position }) => {
    const state = states.get(partition);
    if (!state) return true;
    const { last_position: last, error_position: stopped, skipped_position: skipped } = state;
    return position > last && (stopped === null || position < stopped) && position !== skipped;
  });
  const end = await behindSkipped(store, generation, { events: open, rows });
  if (end === undefined) return { events: open, reached };
  return { events: open.filter(({ position }) => position < end), reached: Math.min(reached, end - 1) };
}

/**
 * Where the batch has to end: a partition remembers one skipped event, so that what comes after it is not
 * given before what comes before it is saved. Else a second failure there would bring the first event back.
 */
async function behindSkipped(
  store: Store,
  generation: GenerationRow,
  { events, rows }: { events: readonly PartitionedEvent[]; rows: readonly PartitionPlace[] },
): Promise<number | undefined> {
  let end: number | undefined;
  for (const { partition_key: partition, last_position: last, skipped_position: skipped } of rows) {
    if (skipped === null || skipped <= last) continue;
    const own = events.filter((event) => event.partition === partition);
    const next = own.find(({ position }) => position > skipped)?.position;
    if (next === undefined) continue;
    const isOpen = own[0]!.position < skipped;
    if (isOpen || ((await firstPending(store, generation, partition)) ?? skipped) < skipped)
      end = Math.min(end ?? next, next);
  }
  return end;
}

/** The partitions of a batch, each with its first and last event. */
export function pendingIn(events: readonly PartitionedEvent[]): PendingPartition[] {
  const all = new Map<string, PendingPartition>();
  for (const { partition, position } of events) {
    const found = all.get(partition);
    if (!found) all.set(partition, { partition, first: position, last: position, count: 1 });
    else {
      found.last = position;
      found.count++;
    }
  }
  return [...all.values()];
}

/** A projection that a runner asked for since then keeps events from expiring. */
export const askedSince = (now: number): number => now - projectionLiveMs;
