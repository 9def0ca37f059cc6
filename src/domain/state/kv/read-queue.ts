import type { Combiner } from "../../../kit/combine.ts";
import { flushQueue } from "../../../kit/flush-queue.ts";
import { isOfItem, isStuck } from "../../../store/store.ts";
import type { ChangeQueueDeps } from "./change-queue.ts";
import { getPaceMs, readTogetherBytesMax } from "./limits.ts";
import { type NewestValue, newestValue, newestValues, type ValueAsk } from "./rows.ts";

/** Reads of all callers, brought together: one statement reads what waits of a lane. */
export function openReadQueue({
  store,
  clock,
  watch,
}: Omit<ChangeQueueDeps, "onChanged">): Pick<
  Combiner<ValueAsk, NewestValue | undefined>,
  "submit" | "drain"
> {
  const queue = flushQueue<ValueAsk, Awaited<ReturnType<typeof newestValues>>[number]>({
    name: "kv.get",
    clock,
    watch,
    environmentOf: ({ environmentId }) => environmentId,
    paceMs: getPaceMs,
    async flush(asked, committed) {
      const found = await newestValues(store, asked, { now: clock.now(), bytesMax: readTogetherBytesMax });
      committed();
      return found.map((value) => ({ value }));
    },
    isOfItem,
    isStuck,
  });
  return {
    async submit(ask) {
      const found = await queue.submit(ask);
      const isLarge = found.revision !== null && found.value === null;
      return isLarge ? newestValue(store, ask.environmentId, { ...ask, now: clock.now() }) : found;
    },
    drain: queue.drain,
  };
}
