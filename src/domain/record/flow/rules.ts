import type { Instant } from "../../../kit/clock.ts";
import type { Happening } from "./counts.ts";

const minuteMs = 60_000;
const hourMs = 60 * minuteMs;

export const minuteOf = (at: Instant): Instant => at - (at % minuteMs);
export const hourOf = (at: Instant): Instant => at - (at % hourMs);

/** Where a window of so many hours begins: the hour of `now` is its last. */
export const sinceOf = (now: Instant, hours: number): Instant => hourOf(now) - (hours - 1) * hourMs;

export type Rate = Record<Happening, number>;

/** The windows that rates are shown of, each from a minute to now. */
export const windowsOf = (now: Instant) => {
  const minute = minuteOf(now);
  return {
    minute,
    previous: minute - minuteMs,
    hour: minute - 59 * minuteMs,
    day: minute - (24 * 60 - 1) * minuteMs,
  };
};

/** What happened in each of so many minutes, the present one last; minutes without data had nothing. */
export function byMinute(
  now: Instant,
  minutes: number,
  known: readonly (Rate & { minute: Instant })[],
): (Rate & { minute: Instant })[] {
  const of = new Map(known.map((one) => [one.minute, one]));
  const first = minuteOf(now) - (minutes - 1) * minuteMs;
  return Array.from({ length: minutes }, (_, index) => {
    const minute = first + index * minuteMs;
    return of.get(minute) ?? { minute, events: 0, started: 0, completed: 0, failed: 0, cancelled: 0 };
  });
}

/**
 * The last sixty seconds: the minute so far, and of the minute before the share that is still within. What
 * happened in that minute is taken to be spread over it evenly.
 */
export function lastMinute(now: Instant, current: Rate, previous: Rate): Rate {
  const share = 1 - (now % minuteMs) / minuteMs;
  const of = (what: Happening) => current[what] + Math.round(previous[what] * share);
  return {
    events: of("events"),
    started: of("started"),
    completed: of("completed"),
    failed: of("failed"),
    cancelled: of("cancelled"),
  };
}
