export interface UntilOptions {
  /** What is waited for, as it should read after "gave up waiting for". */
  about: string;
  /** Only ends what will never come; 60 seconds when left out, that no pause of a busy machine is taken for it. */
  deadlineMs?: number;
  everyMs?: number;
}

/**
 * Polls `condition` until it gives something truthy and returns that. A condition that throws counts as not met; its
 * last error is the cause, and in the words, of what is thrown at the deadline.
 */
export async function until<Value>(
  condition: () => Value | Promise<Value>,
  { about, deadlineMs = 60_000, everyMs = 10 }: UntilOptions,
): Promise<Exclude<Awaited<Value>, false | 0 | "" | null | undefined>> {
  const startedAt = performance.now();
  let cause: unknown;
  for (;;) {
    try {
      const value = await condition();
      if (value) return value as Exclude<Awaited<Value>, false | 0 | "" | null | undefined>;
      cause = undefined;
    } catch (error) {
      cause = error;
    }
    const spentMs = Math.round(performance.now() - startedAt);
    if (spentMs >= deadlineMs) {
      const last = cause instanceof Error ? `, lastly: ${cause.message}` : "";
      throw new Error(`gave up waiting for ${about} after ${spentMs} ms${last}`, { cause });
    }
    await Bun.sleep(everyMs);
  }
}
