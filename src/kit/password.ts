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

/** 19 MiB and two passes (OWASP's floor for argon2id), in KiB. */
const argon2 = { algorithm: "argon2id", memoryCost: 19_456, timeCost: 2 } as const;
/** Each hash holds its memory while it runs. */
const hashesAtOnceMax = 2;

const hashing = hashQueue(hashesAtOnceMax);

/** Who does not ask for a stranger has turns of his own, by `holder`: an org, an account. */
export const hashPassword = (password: string, holder = ""): Promise<string> =>
  hashing(holder, () => Bun.password.hash(password, argon2));

/** Whether the password is the one that was hashed. Undefined as `holder` is a stranger. */
export const verifyPassword = (
  password: string,
  hash: string,
  holder: string | undefined,
): Promise<boolean> => hashing(holder, () => Bun.password.verify(password, hash));
