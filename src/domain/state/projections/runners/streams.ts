import { tryAgain } from "../../../../kit/fault.ts";
import { openHolderLimit } from "../../../../kit/holder-limit.ts";
import type { Ids } from "../../../../kit/ids.ts";
import { projectionDrainMs, projectionStreamsMax } from "../limits.ts";
import type { ProjectionKey } from "../rows.ts";
import { Rest } from "./signals.ts";
import {
  mustPoll,
  type RunnerMessage,
  RunnerStream,
  type RunnerStreamDeps,
  type StreamAsk,
} from "./stream.ts";

export type { RunnerMessage } from "./stream.ts";

export type ProjectionStreams = ReturnType<typeof openProjectionStreams>;

export interface OpenStream {
  /** To be read to its end, or returned from. */
  messages(): AsyncIterable<RunnerMessage>;
}

export interface RunnerStreamsDeps extends Omit<RunnerStreamDeps, "isDraining"> {
  ids: Ids;
  /** Wakes on events that the projection may want, and on changes of it. */
  listen: (key: ProjectionKey, rest: Rest) => Promise<() => void>;
}

export function openProjectionStreams(deps: RunnerStreamsDeps) {
  const { clock, ids, listen } = deps;
  const holdings = openHolderLimit({ most: projectionStreamsMax, what: "projection streams" });
  const open = new Set<{ rest: Rest; over: Promise<void> }>();
  let isDraining = false;
  const streamDeps = { ...deps, isDraining: () => isDraining };

  async function* read(stream: RunnerStream, rest: Rest, signal: AbortSignal) {
    const over = Promise.withResolvers<void>();
    const entry = { rest, over: over.promise };
    open.add(entry);
    const onAbort = () => rest.wake();
    signal.addEventListener("abort", onAbort, { once: true });
    try {
      yield* stream.messages();
    } finally {
      signal.removeEventListener("abort", onAbort);
      open.delete(entry);
      await stream.release().finally(over.resolve);
    }
  }

  return {
    /**
     * Resolves when the runner may be streamed to. Throws `unimplemented` where it has to poll: its memory
     * may not be what is stored, and a poll brings the state along.
     */
    async admit(ask: StreamAsk): Promise<OpenStream> {
      if (isDraining) throw tryAgain("unavailable", "the server is going away");
      if (ask.isPart) throw mustPoll(ask.key);
      const giveBack = holdings.acquire(ask.callerId);
      const rest = new Rest();
      let unlisten: () => void = () => {};
      const close = () => {
        unlisten();
        giveBack();
      };
      try {
        unlisten = await listen(ask.key, rest);
        const stream = new RunnerStream(streamDeps, ask, { id: ids.next("stream"), rest });
        await stream.open();
        return {
          async *messages() {
            try {
              yield* read(stream, rest, ask.signal);
            } finally {
              close();
            }
          },
        };
      } catch (error) {
        close();
        throw error;
      }
    },

    /** Ends every stream once what it delivered is saved, or a moment later. */
    async drain() {
      isDraining = true;
      const all = [...open];
      for (const { rest } of all) rest.wake();
      await Promise.race([Promise.all(all.map(({ over }) => over)), clock.sleep(4 * projectionDrainMs)]);
    },

    size: () => open.size,
  };
}
