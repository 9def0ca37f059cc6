import { nestingMax } from "./limits.ts";

/**
 * Whether arrays and objects lie in each other deeper than anybody means. The runtime writes some ten thousand levels, and
 * takes 14 s to find that 50,000 are too many: one such body of 100 KB would hold a node for as long.
 */
export function isTooDeep(value: unknown, levels = nestingMax): boolean {
  if (typeof value !== "object" || value === null) return false;
  if (levels === 0) return true;
  if (Array.isArray(value))
    return value.some((item) => typeof item === "object" && isTooDeep(item, levels - 1));
  for (const key in value) {
    const item = (value as Record<string, unknown>)[key];
    if (typeof item === "object" && isTooDeep(item, levels - 1)) return true;
  }
  return false;
}
