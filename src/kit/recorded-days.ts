/** Days for which `recordingRetention` keeps a function's runs; 0 for ever. Undefined: it is no time. */
export function recordedDays(text: string): number | undefined {
  if (text === "forever") return 0;
  const [, count, unit] = /^([1-9]\d{0,3})([dy])$/.exec(text) ?? [];
  return count === undefined ? undefined : Number(count) * (unit === "y" ? 365 : 1);
}
