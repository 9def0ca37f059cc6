import type { Instant } from "../../../kit/clock.ts";
import { expireSliceMax } from "../../../kit/limits.ts";

/**
 * A transaction of retention should block other writers no longer than this; the next slice is sized to fit.
 */
const expireSliceMs = 10;
const expireSliceMin = 10;

export const dayMs = 24 * 60 * 60 * 1000;

/** Before which instant something has expired; undefined when it is kept for ever. */
export const cutoff = (days: number, now: Instant): Instant | undefined =>
  days === 0 ? undefined : now - days * dayMs;

const recordedDays: Record<string, number> = { "7d": 7, "30d": 30, "90d": 90, forever: 0 };

/** Days that a run is kept: what its function's recording asks for, or the environment's. 0: for ever. */
export function runDays(
  recording: { recording: boolean; recordingRetention?: string },
  environmentDays: number,
): number {
  const asked = recording.recording ? recordedDays[recording.recordingRetention ?? ""] : undefined;
  return asked ?? environmentDays;
}

/** No recording asks for less. */
export const recordedDaysMin = 7;

/** The size of the next slice: half of `rows` when the last one took too long, twice when it was short. */
export function nextSlice(rows: number, tookMs: number): number {
  if (tookMs > expireSliceMs) return Math.max(expireSliceMin, Math.floor(rows / 2));
  return tookMs < expireSliceMs / 4 ? Math.min(expireSliceMax, rows * 2) : rows;
}
