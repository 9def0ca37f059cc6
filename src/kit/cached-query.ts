import type { Clock } from "./clock.ts";

export interface CachedQueryOptions<Value> {
  clock: Clock;
  /** How long an answer is used. */
  keptMs: number;
  /** The longest wait of a caller. The query goes on, and its answer serves later callers. */
  waitMsMax: number;
  query: () => Promise<Value>;
}

/**
 * The answer to a question that many may repeat and that may get stuck; undefined when there is none in time.
 */
export function cachedQuery<Value>({ clock, keptMs, waitMsMax, query: ask }: CachedQueryOptions<Value>) {
  let kept: { value: Value; until: number } | undefined;
  let inFlight: Promise<Value | undefined> | undefined;

  const runQuery = async (): Promise<Value | undefined> => {
    try {
      const value = await ask();
      kept = { value, until: clock.elapsed() + keptMs };
      return value;
    } catch {
      return undefined;
    } finally {
      inFlight = undefined;
    }
  };

  return async (): Promise<Value | undefined> => {
    if (kept && kept.until > clock.elapsed()) return kept.value;
    inFlight ??= runQuery();
    const over = new AbortController();
    const late = clock.sleep(waitMsMax, over.signal).then(() => undefined);
    try {
      return await Promise.race([inFlight, late]);
    } finally {
      over.abort();
    }
  };
}
