import { tryAgain } from "./fault.ts";

/** Work of one holder, and of all strangers, that waits. */
const waitingMax = 50;

const full = () => tryAgain("resource_exhausted", "too many passwords at once: try again in a moment");

interface HashTurn {
  go(): void;
  refuse(): void;
}

/**
 * Runs at most `count` pieces of work at once. Holders take turns, each in its order. Strangers have no
 * holder and come after all: the newest next, the oldest refused, so that a crowd delays none for longer.
 */
export function hashQueue(count: number) {
  let running = 0;
  const holders = new Map<string, HashTurn[]>();
  const strangers: HashTurn[] = [];

  function next(): HashTurn | undefined {
    const [first] = holders;
    if (!first) return strangers.pop();
    const [holder, queue] = first;
    holders.delete(holder);
    const turn = queue.shift();
    if (queue.length > 0) holders.set(holder, queue);
    return turn;
  }

  const turnOf = (holder: string | undefined) =>
    new Promise<void>((go, failed) => {
      const waiting = { go, refuse: () => failed(full()) };
      if (holder === undefined) {
        strangers.push(waiting);
        if (strangers.length > waitingMax) strangers.shift()!.refuse();
        return;
      }
      const queue = holders.get(holder);
      if (!queue) holders.set(holder, [waiting]);
      else if (queue.length < waitingMax) queue.push(waiting);
      else waiting.refuse();
    });

  return async <Value>(holder: string | undefined, work: () => Promise<Value>): Promise<Value> => {
    if (running >= count) await turnOf(holder);
    else running++;
    try {
      return await work();
    } finally {
      // The place is handed to the next one, not freed, so that a newcomer cannot overtake it.
      const turn = next();
      if (turn) turn.go();
      else running--;
    }
  };
}
