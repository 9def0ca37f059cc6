/** Work of one key begins when the work before it is over, well or not. Keys do not wait for each other. */
export function inTurn(): <Result>(key: string, work: () => Promise<Result>) => Promise<Result> {
  /** The last work of each key that is not over. */
  const tails = new Map<string, Promise<void>>();
  return (key, work) => {
    const result = (tails.get(key) ?? Promise.resolve()).then(work);
    const end = () => {
      if (tails.get(key) === tail) tails.delete(key);
    };
    const tail: Promise<void> = result.then(end, end);
    tails.set(key, tail);
    return result;
  };
}

/** Runs at most `count` pieces of work at a time, the rest in order of arrival. */
export function semaphore(count: number): <Value>(work: () => Promise<Value>) => Promise<Value> {
  let running = 0;
  const waiting: (() => void)[] = [];
  return async (work) => {
    if (running >= count) await new Promise<void>((turn) => waiting.push(turn));
    else running++;
    try {
      return await work();
    } finally {
      // The place is handed to the next one, not freed, so that a newcomer cannot overtake it.
      const next = waiting.shift();
      if (next) next();
      else running--;
    }
  };
}
