import type { Instant } from "../../../kit/clock.ts";

/** What a check found wrong; `count` is bounded. */
export interface Violations {
  count: number;
  oldest: { id: string; at: Instant } | null;
}

/** Of rows that a bounded look found. */
export function violationsOf(rows: readonly { id: string; at: Instant }[]): Violations {
  const [oldest] = [...rows].sort((a, b) => a.at - b.at);
  return { count: rows.length, oldest: oldest ?? null };
}
