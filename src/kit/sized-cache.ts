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
