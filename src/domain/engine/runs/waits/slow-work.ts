import type { Clock } from "../../../../kit/clock.ts";

/** Work that a caller waits for while it is short, and that goes on in the background when it is not. */
export interface SlowWork {
  /** Whether work of this environment is running in the background. */
  has(environmentId: string): boolean;
  size(): number;
  /** Resolves when any background work ends. */
  oneOver(): Promise<void>;
  /** The result of `work`, or undefined when it takes longer than `ms`: it then goes on in the background. */
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
  };
}
