import type { Known } from "./known-options.ts";

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

/** The one such option of many calls. */
export interface TimeoutOption {
  timeout?: Duration;
  /** @deprecated Write `timeout`. */
  timeoutMs?: number;
}
export const timeoutNames = { timeout: true, timeoutMs: "timeout" } as const;

type AnyOptions = Record<string, unknown>;
const nameUnitsMs = { Ms: 1, Seconds: 1_000 };

/**
 * Options by their old names, which say their unit as the wire does: what has a new name by `known` gets its
 * old one, a duration as a number of that unit. Throws TypeError for both names at once, and for what is no
 * duration (with `endless` Infinity is one).
 */
export function withUnits<Options extends object>(
  what: string,
  options: Options,
  known: Known,
  { endless = false } = {},
): Options {
  return renamed("", options as AnyOptions, known) as Options;

  function renamed(path: string, given: AnyOptions, of: Known): AnyOptions {
    const oldNames = new Map(Object.entries(of).map(([old, name]) => [name, old]));
    // Options may be inherited, or getters of a class.
    const names = new Set([...Object.keys(given), ...Object.keys(of).filter((name) => name in given)]);
    const entries = [...names].flatMap((name): [string, unknown][] => {
      const value = given[name];
      const own = Object.hasOwn(of, name) ? of[name] : undefined;
      if (typeof own === "object") return [[name, within(`${path}${name}.`, value, own)]];
      const isReplaced = typeof own === "string" && value === undefined && given[own] !== undefined;
      const old = oldNames.get(name);
      if (old === undefined) return isReplaced ? [] : [[name, value]];
      if (value === undefined) return [];
      const option = `${what}: ${path}${name}`;
      if (given[old] !== undefined)
        throw new TypeError(`${option} and ${path}${old} are one option: leave ${path}${old} out`);
      return [[old, numberOf(option, value, /Ms$|Seconds$/.exec(old)?.[0] as keyof typeof nameUnitsMs)]];
    });
    return Object.fromEntries(entries);
  }

  function within(path: string, value: unknown, of: Known): unknown {
    const isObject = typeof value === "object" && value !== null && !Array.isArray(value);
    return isObject ? renamed(path, value as AnyOptions, of) : value;
  }

  /** What has no unit (`backoffFactor`) is no duration. */
  function numberOf(option: string, value: unknown, unit: keyof typeof nameUnitsMs | undefined): unknown {
    if (unit === undefined || (endless && value === Number.POSITIVE_INFINITY)) return value;
    // As a text a number below zero is no duration; as a number it would be 0.
    const isBelow = typeof value === "number" && value < 0;
    return durationMs(isBelow ? `${value}` : (value as Duration), option) / nameUnitsMs[unit];
  }
}
