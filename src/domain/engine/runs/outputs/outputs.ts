import type { Clock } from "../../../../kit/clock.ts";
import { Fault, missing } from "../../../../kit/fault.ts";
import { storedJson } from "../../../../kit/stored-json.ts";
import type { Store } from "../../../../store/store.ts";
import { runNotRunning, whyRefused } from "../execution/why-refused.ts";
import type { Fence } from "../run.ts";
import { outputBytesMax, outputCharsShown, outputsMax } from "./limits.ts";
import { openOutputReaders } from "./output-readers.ts";
import * as rows from "./output-rows.ts";

/** What handlers write while they run, for who reads along. */
export type RunOutputs = ReturnType<typeof openOutputs>;

export interface OutputsDeps {
  store: Store;
  clock: Pick<Clock, "now" | "after" | "elapsed">;
  /** Tells the other nodes that something was written; may be lost. */
  tell: (runId: string) => void;
}

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

export interface OutputSummary {
  name: string;
  chunks: number;
  bytes: number;
  /** The end of what counts, as text. */
  tail: string;
}

export function openOutputs({ store, clock, tell }: OutputsDeps) {
  const readers = openOutputReaders({ store, clock });
  return {
    /**
     * Stores chunks once each, under the fence. What a step wrote in an earlier try, and the handler outside
     * of steps in an earlier attempt, is superseded by its first chunk.
     */
    async write({ environmentId, name, step, first, chunks, ...fence }: OutputWrite): Promise<void> {
      const { runId, executionSeq } = fence;
      const held = await store.write(async (session) => {
        const writer = await rows.lockWriter(session, { ...fence, environmentId });
        if (writer?.state !== "leased") return writer && "not running";
        const last = await rows.lastOf(session, runId, name);
        if (!last && (await rows.countNames(session, runId)) >= outputsMax)
          throw full(`the run has ${outputsMax} outputs already, which is the most`);
        // Whatever enters the handler anew in its attempt writes the same again.
        const source = step ? `${executionSeq}.${step.entry} ${step.id}` : `attempt ${writer.attempt}`;
        const reached = await rows.reachedBy(session, { runId, name, source });
        const isKnown = Math.max(0, (reached ?? 0) - first);
        const added = chunks.slice(isKnown);
        if (added.length === 0) return "stored";
        const text = `[${added.join(",")}]`;
        const total = (last?.total ?? 0) + Buffer.byteLength(text);
        if (total > outputBytesMax)
          throw full(`output ${name} of the run has ${outputBytesMax} bytes, which is the most`);
        const output = {
          ...{ runId, environmentId, name, source, stepId: step?.id ?? null, attempt: writer.attempt },
          ...{
            first: last?.next ?? 0,
            sourceFirst: first + isKnown,
            count: added.length,
            total,
            chunks: text,
          },
        };
        if (reached === undefined) await rows.supersede(session, output);
        await rows.insertOutput(session, output, clock.now());
        return "stored";
      });
      if (held === undefined) throw (await whyRefused(store, [{ ...fence, environmentId }]))[0]!;
      if (held === "not running") throw runNotRunning();
      readers.wake(runId);
      tell(runId);
    },

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

/** Nothing that is tried again: it stays full. */
const full = (message: string): Fault => new Fault("failed_precondition", message, { code: "OUTPUT_FULL" });
