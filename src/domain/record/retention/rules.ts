import type { Instant } from "../../../kit/clock.ts";
import { recordedDays } from "../../../kit/recorded-days.ts";

export const dayMs = 24 * 60 * 60 * 1000;

/** Before which instant something has expired; undefined when it is kept for ever. */
export const cutoff = (keptMs: number, now: Instant): Instant | undefined =>
  keptMs === 0 ? undefined : now - keptMs;

/** How long a run is kept: as its function's recording asks, or as its environment does. 0: for ever. */
export function runKeptMs(
  recording: { recording: boolean; recordingRetention?: string },
  environmentMs: number,
): number {
  const asked = recording.recording ? recordedDays(recording.recordingRetention ?? "") : undefined;
  return asked === undefined ? environmentMs : asked * dayMs;
}

/** No recording asks for less. */
export const recordedMsMin = dayMs;

/** For answers in days: less than a day is one, since 0 is for ever. */
export const inDays = (keptMs: number): number => Math.ceil(keptMs / dayMs);
