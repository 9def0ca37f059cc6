import { type Duration, durationMs } from "./duration.ts";
import type { Known } from "./known-options.ts";

/** The one such option of many calls. */
export interface TimeoutOption {
  timeout?: Duration;
  /** @deprecated Write `timeout`. */
  timeoutMs?: number;
}
export const timeoutNames = { timeout: true, timeoutMs: "timeout" } as const;

type AnyOptions = Record<string, unknown>;
const unitsMs = { Ms: 1, Seconds: 1_000 };

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
      return [[old, numberOf(option, value, /Ms$|Seconds$/.exec(old)?.[0] as keyof typeof unitsMs)]];
    });
    return Object.fromEntries(entries);
  }

  function within(path: string, value: unknown, of: Known): unknown {
    const isObject = typeof value === "object" && value !== null && !Array.isArray(value);
    return isObject ? renamed(path, value as AnyOptions, of) : value;
  }

  /** What has no unit (`backoffFactor`) is no duration. */
  function numberOf(option: string, value: unknown, unit: keyof typeof unitsMs | undefined): unknown {
    if (unit === undefined || (endless && value === Number.POSITIVE_INFINITY)) return value;
    // As a text a number below zero is no duration; as a number it would be 0.
    const isBelow = typeof value === "number" && value < 0;
    return durationMs(isBelow ? `${value}` : (value as Duration), option) / unitsMs[unit];
  }
}
