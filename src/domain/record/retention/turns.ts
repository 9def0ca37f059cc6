import type { LeaderWrite } from "../../../store/store.ts";

/** What one environment's turn came to. */
export interface ExpiryTurn {
  gone: number;
  slices: number;
  isMore: boolean;
}

/** Deletes what has expired in one environment, at most so many slices. */
export type ExpireTurn = (
  write: LeaderWrite,
  environmentId: string,
  keptMs: number,
  slices: number,
) => Promise<ExpiryTurn>;
