import type { Clock } from "../../../../kit/clock.ts";

/** Slow passes at once: each holds a slice of a log in memory. */
export const slowWorkMax = 32;
/** The wake loop waits this long, in milliseconds, for the look at one environment. */
export const catchUpMsMax = 250;

export function openSlowWork(
  clock: Pick<Clock, "after" | "elapsed">,
  onOver: (environmentId: string) => void,
) {
  const underWay = new Map<string, Promise<void>>();
  const slowWork = {
    /** Whether work of this environment is running in the background. */
    has: (environmentId: string) => underWay.has(environmentId),
    size: () => underWay.size,
    /** Resolves when any background work ends. */
    oneOver: () => Promise.race(underWay.values()),

    /**
     * The result of `work`, or undefined when it takes longer than `ms`: it then goes on in the background.
     */
    async within<T>(ms: number, environmentId: string, work: Promise<T>): Promise<T | undefined> {
      let isLate = false;
      const late = Promise.withResolvers<undefined>();
      const cancel = clock.after(ms, () => {
        isLate = true;
        late.resolve(undefined);
      });
      const end = () => {
        // Other work of the environment may have become slow meanwhile.
        if (underWay.get(environmentId) === ended) underWay.delete(environmentId);
        onOver(environmentId);
      };
      let ended: Promise<void> | undefined;
      try {
        return await Promise.race([work, late.promise]);
      } finally {
        cancel();
        if (isLate) {
          ended = work.then(end, end);
          underWay.set(environmentId, ended);
        }
      }
    },

    /**
     * Begins the work of these environments, as many beside each other as there is room for, and waits `ms`
     * for each of them. After `ms` no more begin. The failure of one holds up no other, and is not told.
     */
    async each(
      ms: number,
      environmentIds: Iterable<string>,
      work: (environmentId: string) => Promise<unknown>,
    ) {
      const until = clock.elapsed() + ms;
      const left = [...environmentIds].filter((id) => !underWay.has(id));
      while (left.length > 0 && underWay.size < slowWorkMax) {
        const some = left.splice(0, slowWorkMax - underWay.size);
        await Promise.allSettled(some.map((id) => slowWork.within(ms, id, work(id))));
        if (clock.elapsed() >= until) return;
      }
    },
  };
  return slowWork;
}
