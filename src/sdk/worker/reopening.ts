import { delayAfter } from "../wire/retry.ts";

const firstMs = 200;
const delayMsMax = 5_000;
/** A stream that lived this long resets the pauses; one that ended sooner may well end as soon again. */
const livedMsMin = 5_000;

/** Pauses between streams: one that ends right after opening must not reopen hundreds of times a second. */
export function createReopening(
  chance: () => number = Math.random,
  now: () => number = () => performance.now(),
) {
  let troubles = 0;
  let openedAt: number | undefined;
  return {
    /** A stream was opened and answered. */
    opened() {
      openedAt = now();
    },
    /** The wait before the next try, in milliseconds: 0 after a stream that lived, then more and more. */
    delayMs(): number {
      if (openedAt !== undefined && now() - openedAt >= livedMsMin) troubles = 0;
      openedAt = undefined;
      const fullMs = troubles++ === 0 ? 0 : delayAfter(troubles - 1, firstMs, delayMsMax);
      // Half of it is left to chance: clients whose streams ended together must not come back together.
      return fullMs / 2 + (fullMs / 2) * chance();
    },
  };
}
