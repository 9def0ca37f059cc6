import type { Instant } from "../../../kit/clock.ts";
import { invalid } from "../../../kit/fault.ts";
import { usageDaysDefault, usageDaysMax } from "./limits.ts";

export const dayMs = 24 * 60 * 60_000;

/** Where the day of UTC began. */
export const dayOf = (at: Instant): Instant => at - (at % dayMs);

/** `2026-11-28`. */
export const dayText = (day: Instant): string => new Date(day).toISOString().slice(0, 10);

function readDay(field: string, text: string): Instant {
  const day = /^\d{4}-\d\d-\d\d$/.test(text) ? Date.parse(`${text}T00:00:00Z`) : Number.NaN;
  // 30 February is read as a day of March.
  if (Number.isNaN(day) || dayText(day) !== text) throw invalid(field, "must be a day of UTC as 2026-11-28");
  return day;
}

/** The first and the last day that are asked for: the last 30 when left out. */
export function daysAsked(
  { from = "", to = "" }: { from?: string | undefined; to?: string | undefined },
  now: Instant,
): { from: Instant; to: Instant } {
  const last = to === "" ? dayOf(now) : readDay("to", to);
  const first = from === "" ? last - (usageDaysDefault - 1) * dayMs : readDay("from", from);
  if (first > last) throw invalid("from", "must not be later than to");
  if (last - first >= usageDaysMax * dayMs)
    throw invalid("from", `must be at most ${usageDaysMax - 1} days before to`);
  return { from: first, to: last };
}

export const groupings = ["day", "function"] as const;
export type Grouping = (typeof groupings)[number];

export function groupingOf(text = ""): Grouping {
  const known = groupings.find((one) => one === (text || "day"));
  if (!known) throw invalid("group_by", `must be one of ${groupings.join(", ")}`);
  return known;
}
