import { AsyncLocalStorage } from "node:async_hooks";
import type { Store } from "../../src/store/store.ts";

export interface GuardedStore {
  /** Around a server's store, before anybody has it. */
  around(store: Store): Store;
  /** What was asked of the pool from inside a transaction: each with the way it came. */
  breaches: readonly string[];
}

/**
 * Inside a transaction only its session is asked: who asks the pool there waits, with a connection in hand, for another one,
 * and enough of them wait for each other. On libSQL it works by luck, and a write would wait for itself. The guard follows
 * the work of `write` through whatever it awaits, refuses such a question and remembers it.
 */
export function guardedStore(): GuardedStore {
  const within = new AsyncLocalStorage<{ open: boolean }>();
  const breaches: string[] = [];

  const guard =
    <A extends unknown[], R>(name: string, ask: (...given: A) => Promise<R>) =>
    async (...given: A): Promise<R> => {
      // What a transaction only began, and did not wait for, may ask once it is over.
      if (within.getStore()?.open) {
        const error = new Error(`store.${name} inside a transaction: ask its session`);
        breaches.push(error.stack ?? error.message);
        throw error;
      }
      return ask(...given);
    };

  return {
    breaches,
    around: (store) => ({
      ...store,
      all: guard("all", store.all) as Store["all"],
      one: guard("one", store.one) as Store["one"],
      flush: guard("flush", store.flush) as Store["flush"],
      ping: guard("ping", store.ping),
      now: guard("now", store.now),
      write: guard("write", <T>(work: Parameters<typeof store.write<T>>[0]) =>
        store.write((session) => {
          const transaction = { open: true };
          return within.run(transaction, async () => {
            try {
              return await work(session);
            } finally {
              transaction.open = false;
            }
          });
        }),
      ) as Store["write"],
    }),
  };
}
