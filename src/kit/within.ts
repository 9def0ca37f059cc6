import { invalid } from "./fault.ts";

/** Throws the fault that names the field and its bounds. */
export function within(field: string, value: number, least: number, most: number): number {
  if (!Number.isFinite(value) || value < least || value > most)
    throw invalid(field, `must be from ${least} to ${most}`);
  return value;
}

export function wholeWithin(field: string, value: number, least: number, most: number): number {
  if (!Number.isInteger(value)) throw invalid(field, "must be a whole number");
  return within(field, value, least, most);
}
