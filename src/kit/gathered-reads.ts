import type { Clock } from "./clock.ts";

export interface GatheredReadsOptions<Row> {
  clock: Pick<Clock, "after">;
  /** Keys of one query. */
  keysMax: number;
  /** The rows of these keys; a key without one is missing. */
  read: (keys: readonly string[]) => Promise<ReadonlyMap<string, Row>>;
}

interface AskedRow<Row> {
  answer: Promise<Row | undefined>;
  resolve: (row: Row | undefined) => void;
  reject: (error: unknown) => void;
}

/**
 * Reads single rows, and those that are asked for in one turn of the event loop by one query. The query
 * begins after it was asked for, so what was committed before a call is in its answer.
 */
export function gatheredReads<Row>({ clock, keysMax, read }: GatheredReadsOptions<Row>) {
  let waiting = new Map<string, AskedRow<Row>>();

  async function readSlice(slice: readonly (readonly [string, AskedRow<Row>])[]): Promise<void> {
    try {
      const rows = await read(slice.map(([key]) => key));
      for (const [key, { resolve }] of slice) resolve(rows.get(key));
    } catch (error) {
      for (const [, { reject }] of slice) reject(error);
    }
  }

  function readAll(): void {
    const asked = [...waiting];
    waiting = new Map();
    for (let from = 0; from < asked.length; from += keysMax)
      void readSlice(asked.slice(from, from + keysMax));
  }

  return (key: string): Promise<Row | undefined> => {
    const known = waiting.get(key);
    if (known) return known.answer;
    if (waiting.size === 0) clock.after(0, readAll);
    const { promise: answer, resolve, reject } = Promise.withResolvers<Row | undefined>();
    waiting.set(key, { answer, resolve, reject });
    return answer;
  };
}
