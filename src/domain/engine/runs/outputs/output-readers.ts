import type { Clock } from "../../../../kit/clock.ts";
import { Fault, missing } from "../../../../kit/fault.ts";
import { openHolderLimit } from "../../../../kit/holder-limit.ts";
import { storedJson } from "../../../../kit/stored-json.ts";
import type { Store } from "../../../../store/store.ts";
import { outputBeatMs, outputIdleMs, outputLookMs, outputReadersAllMax, outputReadersMax } from "./limits.ts";
import * as rows from "./output-rows.ts";

/** What a reader is handed. */
export type OutputFrame =
  | { kind: "chunk"; index: number; attempt: number; data: unknown; isSuperseded: boolean }
  /** Chunks from `index` to before `until` are tried again, and count no more. */
  | { kind: "superseded"; index: number; until: number }
  /** The run is over. */
  | { kind: "end"; index: number; status: string }
  | { kind: "heartbeat"; index: number };

export interface OutputReadersDeps {
  store: Store;
  clock: Pick<Clock, "after" | "elapsed">;
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

interface OutputNews extends OutputReadersDeps {
  /** Resolves when something was written, or it is time to look. */
  news: (runId: string, signal: AbortSignal) => Promise<void>;
}

export function openOutputReaders({ store, clock }: OutputReadersDeps) {
  const waiting = new Map<string, Set<() => void>>();
  const seats = openHolderLimit({
    ...{ most: outputReadersMax, all: outputReadersAllMax, what: "readers of outputs" },
  });

  const wake = (runId: string) => {
    for (const go of waiting.get(runId) ?? []) go();
  };

  /** Until something was written, for at most `outputLookMs`; a reader that leaves waits no longer. */
  const news = (runId: string, signal: AbortSignal) =>
    new Promise<void>((done) => {
      if (signal.aborted) return done();
      const own = waiting.get(runId) ?? new Set();
      waiting.set(runId, own);
      const go = () => {
        cancel();
        signal.removeEventListener("abort", go);
        own.delete(go);
        if (own.size === 0) waiting.delete(runId);
        done();
      };
      const cancel = clock.after(outputLookMs, go);
      own.add(go);
      signal.addEventListener("abort", go, { once: true });
    });

  return {
    /** Something was written, here or at another node, or the run has ended. */
    wake,

    /** From the chunk `from` on, to the end of the run. Throws for a run that is missing. */
    async read(holder: string, at: ReadFrom): Promise<AsyncGenerator<OutputFrame>> {
      if ((await rows.statusOf(store, at.environmentId, at.runId)) === undefined)
        throw missing("run", at.runId);
      const leave = seats.acquire(holder);
      // Who has left before the first frame never begins.
      const cancel = clock.after(outputIdleMs, leave);
      return seated({ clock }, framesOf({ store, clock, news }, at), () => {
        cancel();
        leave();
      });
    },
  };
}

async function* framesOf(
  { store, clock, news }: OutputNews,
  { from, signal, ...at }: ReadFrom,
): AsyncGenerator<OutputFrame> {
  let next = from;
  let saidAt = clock.elapsed();
  while (!signal.aborted) {
    // Read before what is written: nothing is written behind the end.
    const status = await rows.statusOf(store, at.environmentId, at.runId);
    if (status === undefined) throw missing("run", at.runId);
    const found = await rows.rowsFrom(store, at, next);
    for (const row of found) {
      const gone = row.source_first === 0 ? await rows.supersededBy(store, at, row.first) : [];
      for (const { index, until } of rangesOf(gone, from, next)) yield { kind: "superseded", index, until };
      const chunks = storedJson<unknown[]>(row.chunks) ?? [];
      const { attempt } = row;
      for (const [place, data] of chunks.entries())
        if (row.first + place >= next)
          yield {
            ...{ kind: "chunk", index: row.first + place, attempt, data },
            isSuperseded: row.superseded_by !== null,
          };
      next = row.first + row.count;
      saidAt = clock.elapsed();
    }
    if (found.length > 0) continue;
    if (status !== "active") {
      yield { kind: "end", index: next, status };
      return;
    }
    if (clock.elapsed() - saidAt >= outputBeatMs) {
      saidAt = clock.elapsed();
      yield { kind: "heartbeat", index: next };
    }
    await news(at.runId, signal);
  }
}

/** Ends a reader that takes nothing: its seat is free at once, and it is told when it comes again. */
async function* seated(
  { clock }: Pick<OutputNews, "clock">,
  frames: AsyncGenerator<OutputFrame>,
  leave: () => void,
) {
  let isCut = false;
  try {
    for await (const frame of frames) {
      const cancel = clock.after(outputIdleMs, () => {
        isCut = true;
        leave();
      });
      try {
        yield frame;
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
