import type { Clock } from "../../../../kit/clock.ts";
import { gatheredReads } from "../../../../kit/gathered-reads.ts";
import { sizedCache } from "../../../../kit/sized-cache.ts";
import type { Store } from "../../../../store/store.ts";
import {
  outputBytesRead,
  outputCharsKept,
  outputChunksRead,
  outputLookMs,
  outputReadsAtOnce,
  outputReadsKept,
} from "./limits.ts";
import * as rows from "./output-rows.ts";

/** What stands behind a place of an output. */
export interface OutputPart {
  status: string;
  rows: readonly rows.OutputRow[];
  /** What each write of `rows` took the place of, by its first index. */
  gone: ReadonlyMap<number, readonly { first: number; count: number }[]>;
  /** That is all there was when it was read. */
  isAll: boolean;
  readAt: number;
}

export type OutputReads = ReturnType<typeof openOutputReads>;

/**
 * Reads what stands behind places of outputs. Readers at one place share what was read; those of all outputs
 * share a query.
 */
export function openOutputReads({ store, clock }: { store: Store; clock: Pick<Clock, "after" | "elapsed"> }) {
  const kept = sizedCache<OutputPart>({ entriesMax: outputReadsKept, charsMax: outputCharsKept });

  async function partOf(
    at: { runId: string; name: string },
    status: string,
    found: readonly rows.OutputRow[],
    how: Pick<OutputPart, "isAll" | "readAt">,
  ): Promise<OutputPart> {
    const tries = found.flatMap(({ first, source_first }) => (first > 0 && source_first === 0 ? first : []));
    const gone = tries.length === 0 ? [] : await rows.supersededBy(store, at, tries);
    return { status, rows: found, gone: Map.groupBy(gone, (one) => one.superseded_by), ...how };
  }

  async function readAll(keys: readonly string[]): Promise<Map<string, OutputPart>> {
    const readAt = clock.elapsed();
    const places = keys.map((key) => JSON.parse(key) as rows.OutputPlace);
    const found = new Map<number, { status: string | null; rows: rows.OutputRow[] }>();
    for (const { ord, status, ...row } of await rows.readBehind(store, places)) {
      const one = found.get(ord) ?? { status, rows: [] };
      found.set(ord, one);
      if (row.first !== null) one.rows.push(row);
    }
    const parts = await Promise.all(
      places.map(async (place, at): Promise<[string, OutputPart][]> => {
        const { status, rows: read } = found.get(at + 1)!;
        if (status === null) return [];
        const last = read.at(-1);
        // Whether there is more is only asked once more for nothing, where this is wrong.
        const isAll =
          !last ||
          (last.first + last.count < place.next + outputChunksRead &&
            last.total - place.total < outputBytesRead / 2);
        return [[keys[at]!, await partOf(place, status, read, { isAll, readAt })]];
      }),
    );
    return new Map(parts.flat());
  }

  const gathered = gatheredReads({ clock, keysMax: outputReadsAtOnce, read: readAll });

  return {
    /**
     * Undefined where the run is missing. `mayBeKept`: what was read at most `outputLookMs` ago will do, if
     * the run went on.
     */
    async behind(place: rows.OutputPlace, mayBeKept: boolean): Promise<OutputPart | undefined> {
      const key = JSON.stringify(place);
      const known = mayBeKept ? kept.get(key) : undefined;
      if (known && clock.elapsed() - known.readAt < outputLookMs) return known;
      const part = await gathered(key);
      if (part && part.rows.length > 0 && part.status === "active" && kept.get(key) !== part)
        kept.set(
          key,
          part,
          part.rows.reduce((sum, { chunks }) => sum + chunks.length, 0),
        );
      return part;
    },

    /** From the chunk `from` on, which may stand within a write. */
    async from(at: Omit<rows.OutputPlace, "next" | "total">, from: number): Promise<OutputPart | undefined> {
      const readAt = clock.elapsed();
      // Read before what is written: nothing is written behind the end.
      const status = await rows.statusOf(store, at.environmentId, at.runId);
      if (status === undefined) return undefined;
      return partOf(at, status, await rows.rowsFrom(store, at, from), { isAll: false, readAt });
    },
  };
}
