/** Runs work that must not all run at once: at most `count` at a time, the rest in order of arrival. */
export function semaphore(count: number): <Value>(work: () => Promise<Value>) => Promise<Value> {
  let running = 0;
  const waiting: (() => void)[] = [];
  return async (work) => {
    if (running >= count) await new Promise<void>((turn) => waiting.push(turn));
    else running++;
    try {
      return await work();
    } finally {
      // The place is handed over, not freed, so nobody overtakes.
      const next = waiting.shift();
      if (next) next();
      else running--;
    }
  };
}
