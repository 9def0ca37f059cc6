/** What an emit answers. */
export interface EmittedShown {
  runIds?: string[];
  notices?: { message?: string }[];
  delayedId?: string;
}

/** Why an emit began nothing, where its answer does not say it already; `next` shows the functions. */
export function startedNothing(
  { runIds = [], notices = [], delayedId }: EmittedShown,
  event: unknown,
  next: string,
): string | undefined {
  if (runIds.length > 0 || notices.length > 0 || delayedId) return undefined;
  return `it started no run: but for those that gather (debounce, batch), no active function is triggered by ${event}; ${next}`;
}
