import type { Clock } from "../../../../kit/clock.ts";

/** Work for environments that others wait for as long as it is short. */
export interface SlowWork {
  /** Work of this environment takes longer and is under way. */
  has(environmentId: string): boolean;
  size(): number;
  /** Resolves when one of them is over. */
  oneOver(): Promise<void>;
  /** Undefined when it takes longer: then it goes on beside. */
  within<T>(ms: number, environmentId: string, work: Promise<T>): Promise<T | undefined>;
}

export function openSlowWork(clock: Pick<Clock, "after">, onOver: (environmentId: string) => void): SlowWork {
  const underWay = new Map<string, Promise<void>>();
  return {
    has: (environmentId) => underWay.has(environmentId),
    size: () => underWay.size,
    oneOver: () => Promise.race(underWay.values()),

    async within(ms, environmentId, work) {
      let isLate = false;
      const late = Promise.withResolvers<undefined>();
      const cancel = clock.after(ms, () => {
        isLate = true;
        late.resolve(undefined);
      });
      const end = () => {
        underWay.delete(environmentId);
        onOver(environmentId);
      };
      try {
        return await Promise.race([work, late.promise]);
      } finally {
        cancel();
        if (isLate) underWay.set(environmentId, work.then(end, end));
      }
    },
  };
}
