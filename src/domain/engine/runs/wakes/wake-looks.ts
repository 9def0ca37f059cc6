import type { Clock, Instant } from "../../../../kit/clock.ts";
import { WholeLooks } from "../../../../kit/whole-looks.ts";
import type { Store } from "../../../../store/store.ts";
import { nextWakeAt } from "../rows.ts";
import type { Wakes } from "./wake-work.ts";

/** A due row that is locked stays due: the loop comes back after this, and does not spin. */
const wakeEveryMsMin = 20;
/** The share of the time for whole looks. Without a held snapshot nearly every look is a whole one. */
const wholeShareMax = 0.01;
const wholeEveryMsMax = 5_000;
/**
 * Every look begins at least this far before now, because a transaction may commit a wake that is due
 * already. The next look at all wakes finds what is committed even later.
 */
const writtenLateMsMax = 10_000;

/**
 * The tick of loop `runs.wake`, which answers in how many milliseconds the next is due; one that is asked for
 * looks at all. Moves what is due. A whole look begins at the front of the index. The looks between two whole
 * ones begin at the first wake that the last whole look found: before it lie only entries of runs that are
 * over, which PostgreSQL keeps while a snapshot is held.
 */
export function openWakeLooks(
  { store, clock }: { store: Store; clock: Clock },
  wakes: Pick<Wakes, "moveDue" | "isPardoning">,
): (isAsked?: boolean) => Promise<{ againInMs?: number }> {
  const whole = new WholeLooks({ everyMs: 0, everyMsMax: wholeEveryMsMax, shareMax: wholeShareMax });
  let floor: Instant | undefined;

  return async (isAsked = false) => {
    const now = clock.now();
    const isWhole = whole.begins(clock.elapsed()) || isAsked;
    const from = isWhole ? undefined : floor;
    await wakes.moveDue(from);
    // A lease that is pardoned is due all the while.
    if (wakes.isPardoning()) return {};
    const askedAt = clock.elapsed();
    const next = await nextWakeAt(store, from);
    if (from === undefined) {
      whole.took(clock.elapsed() - askedAt);
      floor = Math.min(next ?? now, now - writtenLateMsMax);
    }
    return next === undefined ? {} : { againInMs: Math.max(wakeEveryMsMin, next - clock.now()) };
  };
}
