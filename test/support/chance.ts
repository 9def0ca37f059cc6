/** Chance that repeats itself: the same seed answers the same numbers in the same order. */
export interface Chance {
  /** In [0, 1). */
  number(): number;
  /** Whole, from `low` to `high`, both included. */
  between(low: number, high: number): number;
  happens(probability: number): boolean;
  oneOf<T>(list: readonly T[]): T;
  /** A chance of its own, so that one actor's draws do not move another's. */
  branch(name: string): Chance;
}

/** Mulberry32 over a hashed seed. */
export function chanceOf(seed: string): Chance {
  let state = Number(BigInt.asUintN(32, Bun.hash.wyhash(seed)));
  const number = () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296;
  };
  const between = (low: number, high: number) => low + Math.floor(number() * (high - low + 1));
  return {
    number,
    between,
    happens: (probability) => number() < probability,
    oneOf: (list) => list[between(0, list.length - 1)]!,
    branch: (name) => chanceOf(`${seed}/${name}`),
  };
}
