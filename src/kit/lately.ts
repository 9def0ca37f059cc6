import type { Clock } from "./clock.ts";

export interface LatelyOptions<Value> {
  clock: Clock;
  /** An answer is believed for so long. */
  keptMs: number;
  /** Nobody waits longer than this; the question goes on, and its answer serves those who ask later. */
  waitMsMax: number;
  ask: () => Promise<Value>;
}

/** The answer to a question that many may repeat and that may get stuck; undefined when there is none in time. */
export function lately<Value>({ clock, keptMs, waitMsMax, ask }: LatelyOptions<Value>) {
  let kept: { value: Value; until: number } | undefined;
  let asking: Promise<Value | undefined> | undefined;

  const asked = async (): Promise<Value | undefined> => {
    try {
      const value = await ask();
      kept = { value, until: clock.elapsed() + keptMs };
      return value;
    } catch {
      return undefined;
    } finally {
      asking = undefined;
    }
  };

  return async (): Promise<Value | undefined> => {
    if (kept && kept.until > clock.elapsed()) return kept.value;
    asking ??= asked();
    const over = new AbortController();
    const late = clock.sleep(waitMsMax, over.signal).then(() => undefined);
    try {
      return await Promise.race([asking, late]);
    } finally {
      over.abort();
    }
  };
}
