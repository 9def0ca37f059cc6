import type { Instant } from "../../../kit/clock.ts";
import type { Session } from "../../../store/store.ts";
import { completeRebuild, noteProcessed } from "./rebuilds/rows.ts";
import {
  dropGeneration,
  type GenerationRow,
  type HeldProjection,
  type ProjectionRow,
  updateGeneration,
  updateProjection,
} from "./rows.ts";
import { endLease, touch } from "./runners/leases.ts";
import { clearPending, firstStopped, firstUnsaved } from "./state-rows.ts";

export interface Advanced {
  /** The position that readers see went on. */
  hasMoved: boolean;
  /** A rebuild is complete. */
  isRebuilt: boolean;
}

/**
 * Moves the cursor of a generation up to what is not saved, completes its rebuild, and writes both rows. The
 * caller has changed them under the lock of the projection.
 */
export async function advance(
  session: Session,
  held: HeldProjection,
  generation: GenerationRow,
  { now, processed = 0 }: { now: Instant; processed?: number },
): Promise<Advanced> {
  const pending = await firstUnsaved(session, generation);
  const before = generation.position;
  const cursor = pending ? pending - 1 : generation.delivered;
  generation.cursor_position = Math.max(generation.cursor_position, cursor);
  if (processed > 0 && generation.target !== null) await noteProcessed(session, generation, processed);
  const isRebuilt = await complete(session, held, generation, now);
  if (isRebuilt && generation.return_to !== null && !pending) {
    generation.cursor_position = Math.max(generation.cursor_position, generation.return_to);
    generation.delivered = Math.max(generation.delivered, generation.return_to);
    generation.return_to = null;
  }
  generation.position = Math.max(generation.position, generation.cursor_position);
  await updateGeneration(session, generation);
  const hasMoved = generation.position > before || isRebuilt;
  return { hasMoved, isRebuilt };
}

/** A rebuild beside takes over where it has reached what is read: no reader sees an older state then. */
async function complete(
  session: Session,
  held: HeldProjection,
  generation: GenerationRow,
  now: Instant,
): Promise<boolean> {
  if (generation.target === null || generation.cursor_position < generation.target) return false;
  if (generation.generation === held.generation) {
    // A handler may have failed meanwhile.
    if (held.status === "rebuilding") held.status = held.error_message === null ? "running" : "error";
  } else {
    const read = held.generations.find((one) => one.generation === held.generation);
    // Partitions may be saved beyond the cursor, up to what was ever handed out.
    if (read && generation.cursor_position < Math.max(read.cursor_position, read.offered)) return false;
    if (read) await dropGeneration(session, read, now);
    generation.position = Math.max(generation.position, read?.position ?? 0);
    held.generation = generation.generation;
    if (held.status === "error") held.status = "running";
    if (await takeErrorOf(session, held, generation)) held.status = "error";
    if (read) await handOver(session, held, { read, generation, now });
  }
  generation.target = null;
  held.updated_at = now;
  await completeRebuild(session, generation, now);
  await updateProjection(session, held);
  return true;
}

/**
 * The runner of the previous generation continues at once: the one that built the new one may leave with its
 * lease. Not one whose code is of another version.
 */
async function handOver(
  session: Session,
  held: HeldProjection,
  { read, generation, now }: { read: GenerationRow; generation: GenerationRow; now: Instant },
): Promise<void> {
  const { holder, lease_until: until } = read;
  if (!holder || holder === generation.holder || until <= now) return;
  if (read.definition_version !== generation.definition_version) return;
  endLease(held, read, now);
  await clearPending(session, generation);
  generation.holder = holder;
  generation.stream_id = null;
  generation.fence = Math.max(generation.fence, read.fence) + 1;
  generation.lease_until = until;
  generation.delivered = generation.cursor_position;
  touch(generation, now);
}

/** The projection reports the first partition that has stopped, if any. */
export async function takeErrorOf(
  session: Session,
  row: ProjectionRow,
  generation: GenerationRow,
): Promise<boolean> {
  clearError(row);
  const stopped = await firstStopped(session, generation);
  if (!stopped) return false;
  row.error_message = stopped.error_message;
  row.error_event_id = stopped.error_event_id;
  row.error_position = stopped.error_position;
  row.error_partition = stopped.partition_key;
  return true;
}

export function clearError(row: ProjectionRow): void {
  row.error_message = null;
  row.error_event_id = null;
  row.error_position = null;
  row.error_partition = null;
}

/** Of a projection in which no handler has failed. */
export const noError = {
  error_message: null,
  error_event_id: null,
  error_position: null,
  error_partition: null,
};
