/** Days for which a function's `recordingRetention` keeps its runs; 0 is for ever. Undefined: its text says no time. */
export function recordedDays(text: string): number | undefined {
  if (text === "forever") return 0;
  const [, count, unit] = /^([1-9]\d{0,3})([dy])$/.exec(text) ?? [];
  return count === undefined ? undefined : Number(count) * (unit === "y" ? 365 : 1);
}
