import type { Clock } from "./clock.ts";

export interface TtlCacheOptions<Value extends object> {
  clock: Pick<Clock, "elapsed">;
  /** Counted from before the read, so that a value is used at most this long after it changed. */
  keptMs: number;
  entriesMax: number;
  read: (key: string) => Promise<Value | undefined>;
}

/** Caches the answers of a slow read for a short time. Concurrent callers of one key share one read. */
export type TtlCache<Value extends object> = ReturnType<typeof ttlCache<Value>>;

interface CacheEntry<Value> {
  value: Value;
  until: number;
}

interface PendingRead<Value> {
  answer: Promise<Value | undefined> | undefined;
}

export function ttlCache<Value extends object>(options: TtlCacheOptions<Value>) {
  const { clock, keptMs, entriesMax, read } = options;
  const found = new Map<string, CacheEntry<Value>>();
  // Missing values are kept apart: a flood of keys that do not exist must not push out those that do.
  const missing = new Map<string, CacheEntry<undefined>>();
  const reading = new Map<string, PendingRead<Value>>();

  const keep = <Kind>(all: Map<string, CacheEntry<Kind>>, key: string, value: Kind, until: number) => {
    all.delete(key);
    if (all.size >= entriesMax) all.delete(all.keys().next().value!);
    all.set(key, { value, until });
  };
  const ask = async (key: string, mine: PendingRead<Value>): Promise<Value | undefined> => {
    const until = clock.elapsed() + keptMs;
    try {
      const value = await read(key);
      // The key was invalidated during the read: what was read may be older than the change.
      if (reading.get(key) !== mine) return value;
      if (value !== undefined) {
        missing.delete(key);
        keep(found, key, value, until);
      } else {
        found.delete(key);
        keep(missing, key, undefined, until);
      }
      return value;
    } finally {
      if (reading.get(key) === mine) reading.delete(key);
    }
  };
  return {
    /** The cached value; undefined when there is none. */
    peek(key: string): Value | undefined {
      const kept = found.get(key);
      return kept !== undefined && kept.until > clock.elapsed() ? kept.value : undefined;
    },
    /** The cached value, or what is read now. A missing value is cached too, a failed read is not. */
    get(key: string): Promise<Value | undefined> {
      const kept = found.get(key) ?? missing.get(key);
      if (kept !== undefined && kept.until > clock.elapsed()) return Promise.resolve(kept.value);
      const running = reading.get(key)?.answer;
      if (running) return running;
      const mine: PendingRead<Value> = { answer: undefined };
      reading.set(key, mine);
      mine.answer = ask(key, mine);
      return mine.answer;
    },
    forget(key: string) {
      found.delete(key);
      missing.delete(key);
      reading.delete(key);
    },
    /** Forgets the values that the predicate names, and what is being read: it may be one of them. */
    forgetWhere(isMeant: (value: Value) => boolean) {
      for (const [key, { value }] of found) if (isMeant(value)) found.delete(key);
      reading.clear();
    },
  };
}

/** A cache bounded in number and in size. The entry set last always stays. */
export type SizedCache<Value> = ReturnType<typeof sizedCache<Value>>;

/** The longest kept ones make room. */
export function sizedCache<Value>({ entriesMax, charsMax }: { entriesMax: number; charsMax: number }) {
  const kept = new Map<string, { value: Value; chars: number }>();
  let chars = 0;

  const drop = (key: string): void => {
    chars -= kept.get(key)?.chars ?? 0;
    kept.delete(key);
  };

  return {
    get: (key: string) => kept.get(key)?.value,
    set(key: string, value: Value, size: number) {
      drop(key);
      for (const oldest of kept.keys()) {
        if (kept.size < entriesMax && chars + size <= charsMax) break;
        drop(oldest);
      }
      kept.set(key, { value, chars: size });
      chars += size;
    },
    delete: drop,
  };
}

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
