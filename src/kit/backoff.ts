export interface BackoffOptions {
  minMs: number;
  maxMs: number;
  /** A number in [0, 1): `Ids.chance`. */
  chance: () => number;
}

/**
 * Pause before attempt `failures + 1`: doubles from `minMs` to `maxMs`, then a half of it is left to chance,
 * so that those who failed together do not return together.
 */
export function backoff({ minMs, maxMs, chance }: BackoffOptions): (failures: number) => number {
  return (failures) => {
    const fullMs = Math.min(maxMs, minMs * 2 ** Math.min(Math.max(0, failures - 1), 30));
    return fullMs / 2 + (fullMs / 2) * chance();
  };
}
