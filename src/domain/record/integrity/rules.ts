import type { Instant } from "../../../kit/clock.ts";

/** What a check found wrong; `count` is bounded. */
export interface Offence {
  count: number;
  oldest: { id: string; at: Instant } | null;
}

/** Of rows that a bounded look found. */
export function offence(rows: readonly { id: string; at: Instant }[]): Offence {
  const [oldest] = [...rows].sort((a, b) => a.at - b.at);
  return { count: rows.length, oldest: oldest ?? null };
}
