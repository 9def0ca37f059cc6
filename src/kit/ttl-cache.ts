import type { Clock } from "./clock.ts";

export interface TtlCacheOptions<Value extends object> {
  clock: Pick<Clock, "elapsed">;
  /** Counted from before the read, so that nothing is believed for longer than this after it changed. */
  keptMs: number;
  entriesMax: number;
  read: (key: string) => Promise<Value | undefined>;
}

/** Answers of a slow question, believed for a short time. Askers of one key at once share one read. */
export interface TtlCache<Value extends object> {
  /** What is believed right now; undefined when nothing is. */
  peek(key: string): Value | undefined;
  /** Reads unless known, including known to be missing. A failed read is not remembered. */
  get(key: string): Promise<Value | undefined>;
  forget(key: string): void;
}

interface CacheEntry<Value> {
  value: Value;
  until: number;
}

interface PendingRead<Value> {
  answer: Promise<Value | undefined> | undefined;
}

export function ttlCache<Value extends object>(options: TtlCacheOptions<Value>): TtlCache<Value> {
  const { clock, keptMs, entriesMax, read } = options;
  const found = new Map<string, CacheEntry<Value>>();
  // Apart, so that a flood of keys that do not exist pushes none out that does.
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
      // Forgotten meanwhile: what was read may be older than what made somebody forget it.
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
    peek(key) {
      const kept = found.get(key);
      return kept !== undefined && kept.until > clock.elapsed() ? kept.value : undefined;
    },
    get(key) {
      const kept = found.get(key) ?? missing.get(key);
      if (kept !== undefined && kept.until > clock.elapsed()) return Promise.resolve(kept.value);
      const running = reading.get(key)?.answer;
      if (running) return running;
      const mine: PendingRead<Value> = { answer: undefined };
      reading.set(key, mine);
      mine.answer = ask(key, mine);
      return mine.answer;
    },
    forget(key) {
      found.delete(key);
      missing.delete(key);
      reading.delete(key);
    },
  };
}
