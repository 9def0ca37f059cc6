import { type Instant, rfc3339 } from "../../kit/clock.ts";
import { endsWaitingMax, frameSliceMax } from "../../kit/limits.ts";
import type { Log } from "../../kit/log.ts";
import type { Store } from "../../store/store.ts";
import type { NewRun, RunError } from "../runs/run.ts";
import type { Frames } from "./frames.ts";
import { endsOf, type RunNote } from "./rows.ts";

/** What a run frame says. Clients take `output` or `error` of the frame that ends a run for its result. */
export interface RunFrame {
  environmentId: string;
  topic: string;
  /** JSON text. */
  data: string;
  at: Instant;
  /** Place in the run's history. */
  sequence: number;
  isEnd: boolean;
}

const ends = new Set(["completed", "failed", "cancelled"]);

const statusWords: Record<string, string> = { created: "waiting_for_capacity", resumed: "running" };

export function frameOfNote(note: RunNote): RunFrame {
  const word = note.type.slice("run.".length);
  const detail = JSON.parse(note.detail) as { error?: RunError | null; cause?: string | null };
  const isEnd = ends.has(word);
  const head = JSON.stringify({
    runId: note.run_id,
    functionId: note.function_id,
    status: statusWords[word] ?? word,
    eventId: note.event_id,
    eventName: note.event_name,
    timestamp: rfc3339(note.at),
    ...(isEnd && detail.error && { error: { message: detail.error.message, code: detail.error.code } }),
    ...(word === "cancelled" && { error: { message: "the run was cancelled", code: "cancelled" } }),
    ...(word === "cancelled" && detail.cause && { cause: detail.cause }),
  });
  return {
    environmentId: note.environment_id,
    topic: `system.run.${note.run_id}.${word}`,
    data: word === "completed" ? `${head.slice(0, -1)},"output":${note.output ?? "null"}}` : head,
    at: note.at,
    sequence: note.sequence,
    isEnd,
  };
}

/** Told after the commit; costs nothing while nobody anywhere reads run frames. */
export interface RunFrames {
  created(runs: readonly NewRun[], at: Instant): void;
  /** Of any environments. */
  ended(runIds: readonly string[]): void;
}

export interface RunFramesDeps {
  store: Store;
  log: Log;
  frames: Pick<Frames, "wantsRuns" | "send">;
}

export function openRunFrames({ store, log, frames }: RunFramesDeps): RunFrames {
  /** Ended, and not yet looked up; one look at a time takes all that gathered. */
  const waiting: string[] = [];
  let looking = false;

  function send(note: RunNote): void {
    if (!frames.wantsRuns(note.environment_id)) return;
    const { environmentId, topic, data, at, sequence } = frameOfNote(note);
    frames.send(environmentId, { topic, data, at, sequence });
  }

  async function look(): Promise<void> {
    looking = true;
    try {
      while (waiting.length > 0)
        for (const note of await endsOf(store, waiting.splice(0, frameSliceMax))) send(note);
    } catch (error) {
      log.debug("frames.ends_unread", { error });
    } finally {
      looking = false;
    }
  }

  return {
    created(runs, at) {
      if (!frames.wantsRuns()) return;
      for (const { id, environmentId, functionId, eventId, eventName } of runs)
        send({
          run_id: id,
          environment_id: environmentId,
          function_id: functionId,
          event_id: eventId,
          event_name: eventName,
          type: "run.created",
          sequence: 1,
          at,
          detail: "{}",
          output: null,
        });
    },

    ended(runIds) {
      if (!frames.wantsRuns()) return;
      if (waiting.length < endsWaitingMax) waiting.push(...runIds);
      if (!looking) void look();
    },
  };
}
