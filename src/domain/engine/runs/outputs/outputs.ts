import type { Instant } from "../../../../kit/clock.ts";
import type { Combiner, ItemOutcome } from "../../../../kit/combine.ts";
import { Fault, missing } from "../../../../kit/fault.ts";
import { flushQueue, weightChars } from "../../../../kit/flush-queue.ts";
import { storedJson } from "../../../../kit/stored-json.ts";
import { type Basics, isOfItem, isStuck, type Session } from "../../../../store/store.ts";
import { runNotRunning, whyRefused } from "../execution/refusal.ts";
import type { Fence } from "../run.ts";
import {
  outputBytesMax,
  outputCharsShown,
  outputFlushMs,
  outputStoredBytesMax,
  outputsMax,
  outputWriteBytesMax,
} from "./limits.ts";
import type { OutputNewsDeps } from "./output-news.ts";
import { openOutputReaders } from "./output-readers.ts";
import * as rows from "./output-rows.ts";

export interface OutputWrite extends Fence {
  environmentId: string;
  name: string;
  /** The step that writes, and which of its tries in this execution; null outside of steps. */
  step: { id: string; entry: number } | null;
  /** How many chunks the writer wrote before, in this try, or in this attempt of the handler. */
  first: number;
  /** JSON texts. */
  chunks: readonly string[];
}

export interface OutputWritesDeps extends Basics<"store" | "clock" | "watch"> {
  /** Told after the commit of the runs that wrote. */
  onWritten: (runIds: readonly string[]) => void;
}

/** Nothing that is tried again: it stays full. */
const full = (message: string): Fault => new Fault("failed_precondition", message, { code: "OUTPUT_FULL" });

/** Whatever enters the handler anew in its attempt writes the same again. */
const draftOf = (write: OutputWrite): rows.OutputDraft => ({
  ...write,
  source: write.step && `${write.executionSeq}.${write.step.entry} ${write.step.id}`,
});

/** By write: how many bytes of its output would count beside it; of outputs that have many. */
async function countedBeside(
  session: Session,
  writes: readonly OutputWrite[],
  places: ReadonlyMap<number, rows.WritePlace>,
): Promise<Map<OutputWrite, number>> {
  const counted = new Map<OutputWrite, number>();
  for (const [at, write] of writes.entries()) {
    const { total, reached } = places.get(at + 1) ?? {};
    if ((total ?? 0) < outputBytesMax - 2 * outputWriteBytesMax) continue;
    // The first write of a try supersedes what its step wrote before.
    const without = reached === null ? (write.step?.id ?? "") : undefined;
    counted.set(write, await rows.countedBytes(session, write, without));
  }
  return counted;
}

/** What the write adds to its output; undefined for what is stored already. Throws beyond the bounds. */
function added(
  write: OutputWrite,
  place: rows.WritePlace,
  beside = place.total ?? 0,
): rows.NewOutput | undefined {
  const { environmentId, runId, name, step, first, chunks } = write;
  if (place.state !== "leased") throw runNotRunning();
  if (place.names >= outputsMax) throw full(`the run has ${outputsMax} outputs already, which is the most`);
  const isKnown = Math.max(0, (place.reached ?? 0) - first);
  const fresh = chunks.slice(isKnown);
  if (fresh.length === 0) return undefined;
  const text = `[${fresh.join(",")}]`;
  const bytes = Buffer.byteLength(text);
  const total = (place.total ?? 0) + bytes;
  if (beside + bytes > outputBytesMax)
    throw full(`output ${name} of the run has ${outputBytesMax} bytes, which is the most`);
  if (total > outputStoredBytesMax)
    throw full(
      `output ${name} of the run has ${outputStoredBytesMax} bytes with what is superseded, which is the most`,
    );
  const { source, attempt } = place;
  return {
    ...{ runId, environmentId, name, source, attempt, stepId: step?.id ?? null },
    ...{ first: place.next ?? 0, sourceFirst: first + isKnown, count: fresh.length, total, chunks: text },
  };
}

/** Stores what the writes add; `gone` are those whose fences do not hold. */
async function storeAll(session: Session, writes: readonly OutputWrite[], now: Instant) {
  const places = new Map(
    (await rows.lockPlaces(session, writes.map(draftOf))).map((place) => [place.ord, place]),
  );
  const counted = await countedBeside(session, writes, places);
  const gone: number[] = [];
  const outputs: rows.NewOutput[] = [];
  const superseding: rows.NewOutput[] = [];
  const outcomes = writes.map((write, at): ItemOutcome<void> => {
    const place = places.get(at + 1);
    if (!place) {
      gone.push(at);
      return { error: undefined };
    }
    try {
      const output = added(write, place, counted.get(write));
      if (!output) return { value: undefined };
      outputs.push(output);
      if (place.reached === null && place.next !== null) superseding.push(output);
      return { value: undefined };
    } catch (error) {
      return { error };
    }
  });
  await rows.supersede(session, superseding);
  if (outputs.length > 0) await rows.insertOutputs(session, outputs, now);
  return { outcomes, gone, runIds: outputs.map(({ runId }) => runId) };
}

/** Combines the writes of all workers into flushes, each under the fences of its executions. */
function openOutputWrites(deps: OutputWritesDeps): Combiner<OutputWrite, void> {
  const { clock, watch, onWritten } = deps;
  return flushQueue<OutputWrite, void>({
    name: "runs.outputs",
    ...{ clock, watch, paceMs: outputFlushMs },
    environmentOf: ({ environmentId }) => environmentId,
    keyOf: ({ runId }) => runId,
    weigh: ({ chunks }) => 1 + chunks.reduce((sum, { length }) => sum + length, 0) / weightChars,
    async flush(writes, committed) {
      const { outcomes, gone, runIds } = await deps.store.write((session) =>
        storeAll(session, writes, clock.now()),
      );
      committed();
      onWritten(runIds);
      if (gone.length > 0) {
        const why = await whyRefused(
          deps.store,
          gone.map((at) => writes[at]!),
        );
        for (const [place, at] of gone.entries()) outcomes[at] = { error: why[place] };
      }
      return outcomes;
    },
    isOfItem,
    isStuck,
  });
}

/** What handlers write while they run, for who reads along. */
export type RunOutputs = ReturnType<typeof openOutputs>;

export interface OutputsDeps
  extends Basics<"store" | "clock" | "watch">,
    Pick<OutputNewsDeps, "hearsAll" | "watchEnd"> {
  /** Tells the other nodes that something was written; may be lost. */
  tell: (runId: string) => void;
}

export interface OutputSummary {
  name: string;
  chunks: number;
  bytes: number;
  /** The end of what counts, as text. */
  tail: string;
}

export function openOutputs({ store, clock, watch, tell, hearsAll, watchEnd }: OutputsDeps) {
  const readers = openOutputReaders({ store, clock, hearsAll, watchEnd });
  const writes = openOutputWrites({
    ...{ store, clock, watch },
    onWritten(runIds) {
      for (const runId of runIds) {
        readers.wake(runId);
        tell(runId);
      }
    },
  });
  return {
    /**
     * Stores chunks once each, under the fence. What a step wrote in an earlier try, and the handler outside
     * of steps in an earlier attempt, is superseded by its first chunk.
     */
    write: writes.submit,
    /** Resolves once every write is stored or refused. */
    drain: writes.drain,

    ...readers,

    async list(environmentId: string, runId: string): Promise<OutputSummary[]> {
      if ((await rows.statusOf(store, environmentId, runId)) === undefined) throw missing("run", runId);
      const found = await rows.outputsOf(store, environmentId, runId);
      return Promise.all(
        found.map(async (output) => {
          const newest = await rows.tailOf(store, runId, output.name);
          const texts = newest.toReversed().flatMap(({ chunks }) => storedJson<unknown[]>(chunks) ?? []);
          const text = texts.map((one) => (typeof one === "string" ? one : JSON.stringify(one))).join("");
          return { ...output, tail: text.slice(-outputCharsShown).toWellFormed() };
        }),
      );
    },
  };
}
