const unitsMs: Record<string, number> = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 };

/** Milliseconds, or a number with its unit: `"250ms"`, `"10s"`, `"1.5h"`, `"7d"`. */
export type Duration = number | string;

/** In whole milliseconds, at least 0. Throws TypeError on anything else, which begins with `what`. */
export function durationMs(duration: Duration, what = ""): number {
  if (typeof duration === "number" && Number.isFinite(duration)) return Math.max(0, Math.round(duration));
  const [, amount, unit] = /^\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)\s*$/.exec(String(duration)) ?? [];
  if (amount === undefined || unit === undefined) {
    throw new TypeError(
      `${what && `${what}: `}not a duration: ${duration} (write milliseconds, or a number with ms, s, m, h or d)`,
    );
  }
  return Math.round(Number(amount) * unitsMs[unit]!);
}

/** Throws TypeError for a time limit that is no number. Infinity is one. */
export function requireMs(name: string, ms: number): number {
  if (typeof ms !== "number" || Number.isNaN(ms))
    throw new TypeError(`${name} must be a number of milliseconds`);
  return ms;
}

/** A duration for people: `250 ms`, `1.5 s`, `90 s`. */
export const secondsText = (ms: number): string =>
  ms < 1_000 ? `${ms} ms` : `${Math.round(ms / 100) / 10} s`;
