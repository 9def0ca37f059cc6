import { missing } from "../../../../kit/fault.ts";
import { storedJson } from "../../../../kit/stored-json.ts";
import type { Basics } from "../../../../store/store.ts";
import { outputCharsShown } from "./limits.ts";
import type { OutputNewsDeps } from "./output-news.ts";
import { openOutputReaders } from "./output-readers.ts";
import * as rows from "./output-rows.ts";
import { openOutputWrites } from "./write-queue.ts";

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
