import type { Clock } from "../../../../kit/clock.ts";
import { Fault, missing } from "../../../../kit/fault.ts";
import { gatheredReads } from "../../../../kit/gathered-reads.ts";
import { type OwnedHolder, openOrgLimit } from "../../../../kit/holder-limit.ts";
import { storedJson } from "../../../../kit/stored-json.ts";
import { sizedCache } from "../../../../kit/ttl-cache.ts";
import type { Store } from "../../../../store/store.ts";
import {
  outputBatchChars,
  outputBeatMs,
  outputBytesRead,
  outputCharsKept,
  outputChunksRead,
  outputIdleMs,
  outputLookMs,
  outputReadersAllMax,
  outputReadersMax,
  outputReadsAtOnce,
  outputReadsKept,
} from "./limits.ts";
import { type OutputNewsDeps, openOutputNews } from "./output-news.ts";
import * as rows from "./output-rows.ts";

/** What stands behind a place of an output. */
interface OutputPart {
  status: string;
  rows: readonly rows.OutputRow[];
  /** What each write of `rows` took the place of, by its first index. */
  gone: ReadonlyMap<number, readonly { first: number; count: number }[]>;
  /** That is all there was when it was read. */
  isAll: boolean;
  readAt: number;
}

type OutputReads = ReturnType<typeof openOutputReads>;

/**
 * Reads what stands behind places of outputs. Readers at one place share what was read; those of all outputs
 * share a query.
 */
function openOutputReads({ store, clock }: { store: Store; clock: Pick<Clock, "after" | "elapsed"> }) {
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

/** What a reader is handed. */
export type OutputFrame =
  | { kind: "chunk"; index: number; attempt: number; data: unknown; isSuperseded: boolean }
  /** Chunks from `index` to before `until` are tried again, and count no more. */
  | { kind: "superseded"; index: number; until: number }
  /** The run is over. */
  | { kind: "end"; index: number; status: string }
  | { kind: "heartbeat"; index: number };

/** Frames that are handed over together. Readers at one place are handed the same. */
export type OutputFrames = readonly OutputFrame[];

export interface OutputReadersDeps extends OutputNewsDeps {
  store: Store;
}

export interface ReadFrom {
  environmentId: string;
  runId: string;
  name: string;
  /** Index of the first chunk. */
  from: number;
  /** Raised when the reader has left. */
  signal: AbortSignal;
}

interface OutputReading extends Pick<OutputReadersDeps, "clock"> {
  reads: OutputReads;
  news: ReturnType<typeof openOutputNews>;
  /** The run was over when the reader came: what it reads may have been overwritten since. */
  isOver: boolean;
}

export function openOutputReaders({ store, clock, ...told }: OutputReadersDeps) {
  const news = openOutputNews({ clock, ...told });
  const reads = openOutputReads({ store, clock });
  const seats = openOrgLimit({
    ...{ most: outputReadersMax, all: outputReadersAllMax, what: "readers of outputs" },
  });

  return {
    wake: news.wake,
    wakeEvery: news.wakeEvery,

    /** From the chunk `from` on, to the end of the run. Throws for a run that is missing. */
    async read(holder: OwnedHolder, at: ReadFrom): Promise<AsyncGenerator<OutputFrames>> {
      const status = await rows.statusOf(store, at.environmentId, at.runId);
      if (status === undefined) throw missing("run", at.runId);
      const leave = seats.acquire(holder);
      // Who has left before the first frame never begins.
      const cancel = clock.after(outputIdleMs, leave);
      return seated(clock, framesOf({ clock, reads, news, isOver: status !== "active" }, at), () => {
        cancel();
        leave();
      });
    },
  };
}

async function* framesOf(
  { clock, reads, news, isOver }: OutputReading,
  { from, signal, ...at }: ReadFrom,
): AsyncGenerator<OutputFrames> {
  const seat = news.join(at.runId);
  // What is before the output is a place of it; behind any other chunk, one is found by the first read.
  let place = from === 0 ? { ...at, next: 0, total: 0 } : undefined;
  let saidAt = clock.elapsed();
  try {
    while (!signal.aborted) {
      const seen = seat.version();
      const part = await (place ? reads.behind(place, !isOver) : reads.from(at, from));
      if (!part) throw missing("run", at.runId);
      for (const frames of partFrames(part, place?.next ?? from, from)) {
        yield frames;
        saidAt = clock.elapsed();
      }
      const last = part.rows.at(-1);
      if (last) place = { ...at, next: last.first + last.count, total: last.total };
      if (last && (!part.isAll || part.status !== "active")) continue;
      const index = place?.next ?? from;
      if (part.status !== "active") {
        yield [{ kind: "end", index, status: part.status }];
        return;
      }
      if (clock.elapsed() - saidAt >= outputBeatMs) {
        saidAt = clock.elapsed();
        yield [{ kind: "heartbeat", index }];
      }
      await seat.wait(seen, signal);
    }
  } finally {
    seat.leave();
  }
}

const shared = new WeakMap<OutputPart, readonly OutputFrames[]>();

/** Of a reader that began at `from`; those who began at 0, or lose nothing, are handed the same. */
function partFrames(part: OutputPart, next: number, from: number): readonly OutputFrames[] {
  if (from > 0 && part.gone.size > 0) return batchesOf(part, next, from);
  const known = shared.get(part) ?? batchesOf(part, next, 0);
  shared.set(part, known);
  return known;
}

function batchesOf(part: OutputPart, next: number, from: number): OutputFrames[] {
  const batches: OutputFrame[][] = [];
  let left = 0;
  const add = (frame: OutputFrame, chars: number) => {
    if (left < chars || batches.length === 0) {
      batches.push([]);
      left = outputBatchChars;
    }
    left -= chars;
    batches.at(-1)!.push(frame);
  };
  for (const { first, attempt, count, chunks, superseded_by } of part.rows) {
    for (const { index, until } of rangesOf(part.gone.get(first) ?? [], from, Math.max(first, next)))
      add({ kind: "superseded", index, until }, 0);
    const isSuperseded = superseded_by !== null;
    for (const [place, data] of (storedJson<unknown[]>(chunks) ?? []).entries()) {
      const index = first + place;
      if (index >= next) add({ kind: "chunk", index, attempt, data, isSuperseded }, chunks.length / count);
    }
  }
  return batches;
}

/** Ends a reader that takes nothing: its seat is free at once, and it is told when it comes again. */
async function* seated(
  clock: OutputReadersDeps["clock"],
  batches: AsyncGenerator<OutputFrames>,
  leave: () => void,
) {
  let isCut = false;
  try {
    for await (const frames of batches) {
      const cancel = clock.after(outputIdleMs, () => {
        isCut = true;
        leave();
      });
      try {
        yield frames;
      } finally {
        cancel();
      }
      if (isCut)
        throw new Fault(
          "aborted",
          `the reader took nothing for ${outputIdleMs} ms: read on from the next index`,
        );
    }
  } finally {
    leave();
  }
}

/** Of what is gone, the ranges that the reader was handed. */
function rangesOf(gone: readonly { first: number; count: number }[], from: number, next: number) {
  const ranges: { index: number; until: number }[] = [];
  for (const { first, count } of gone) {
    const index = Math.max(first, from);
    const until = Math.min(first + count, next);
    const last = ranges.at(-1);
    if (index >= until) continue;
    if (last?.until === index) last.until = until;
    else ranges.push({ index, until });
  }
  return ranges;
}
