import type { Combiner } from "../../../kit/combine.ts";
import { flushQueue, weightChars } from "../../../kit/flush-queue.ts";
import { expireSliceMax } from "../../../kit/limits.ts";
import { type Basics, isOfItem, isStuck, type Session } from "../../../store/store.ts";
import { dropExpired, holdBuckets, writeChanges } from "./change-rows.ts";
import { type Changed, type ValueChange, ValueChanges } from "./changes.ts";

export interface ChangeQueueDeps extends Basics<"store" | "clock" | "watch"> {
  /** Told of each bucket after the commit that changed it. */
  onChanged: (bucket: { environmentId: string; bucketId: string }) => void;
}

/** Changes of all callers, brought together: one transaction decides and writes what waits of a lane. */
export function openChangeQueue({
  store,
  clock,
  watch,
  onChanged,
}: ChangeQueueDeps): Combiner<ValueChange, Changed> {
  async function decide(session: Session, wanted: readonly ValueChange[]) {
    const { buckets, states } = await holdBuckets(session, wanted);
    const now = clock.now();
    const changes = new ValueChanges(now, buckets, states);
    return { now, changes, outcomes: wanted.map((change) => changes.apply(change)) };
  }

  async function commit(
    session: Session,
    wanted: readonly ValueChange[],
  ): Promise<Awaited<ReturnType<typeof decide>>> {
    let decided = await decide(session, wanted);
    let freed = 0;
    for (const bucket of decided.changes.full)
      freed += await dropExpired(session, bucket, decided.now, expireSliceMax);
    // What has expired takes no room, also before the loop has come by.
    if (freed > 0) decided = await decide(session, wanted);
    await writeChanges(session, decided.changes);
    return decided;
  }

  return flushQueue<ValueChange, Changed>({
    name: "kv.change",
    clock,
    watch,
    environmentOf: ({ environmentId }) => environmentId,
    weigh: ({ put }) => 1 + (put && "value" in put ? put.value.length / weightChars : 0),
    async flush(wanted, committed) {
      const { changes, outcomes } = await store.write((session) => commit(session, wanted));
      committed();
      for (const { environmentId, id } of changes.changed) onChanged({ environmentId, bucketId: id });
      return outcomes;
    },
    isOfItem,
    isStuck,
  });
}
