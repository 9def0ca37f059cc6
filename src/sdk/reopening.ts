import { delayAfter } from "./retry.ts";

const firstMs = 200;
const delayMsMax = 5_000;
/** A stream that lived so long was a good one; one that ended sooner may end the next time as soon. */
const livedMsMin = 5_000;

export interface Reopening {
  /** A stream was opened and answered. */
  opened(): void;
  /** How long to wait before the next try, in milliseconds: 0 after a stream that lived, then more and more. */
  delayMs(): number;
}

/** The pauses of a client whose streams end: those that end as soon as they are open must not be opened hundreds of times a second. */
export function createReopening(
  chance: () => number = Math.random,
  now: () => number = () => performance.now(),
): Reopening {
  let troubles = 0;
  let openedAt: number | undefined;
  return {
    opened() {
      openedAt = now();
    },
    delayMs() {
      if (openedAt !== undefined && now() - openedAt >= livedMsMin) troubles = 0;
      openedAt = undefined;
      const fullMs = troubles++ === 0 ? 0 : delayAfter(troubles - 1, firstMs, delayMsMax);
      // Half of it by chance: those whose streams ended together do not come back together.
      return fullMs / 2 + (fullMs / 2) * chance();
    },
  };
}
