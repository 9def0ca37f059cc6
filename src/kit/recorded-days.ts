/** The days that a `recordingRetention` says; 0 for `forever`, undefined for a text that is no time. */
export function recordedDays(text: string): number | undefined {
  if (text === "forever") return 0;
  const [, count, unit] = /^([1-9]\d{0,3})([dy])$/.exec(text) ?? [];
  return count === undefined ? undefined : Number(count) * (unit === "y" ? 365 : 1);
}
