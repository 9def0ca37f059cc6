import { type Clock, type Instant, rfc3339 } from "../../../kit/clock.ts";
import type { Basics } from "../../../store/store.ts";
import type { NewRun, RunError } from "../../engine/runs/run.ts";
import type { FrameTopic } from "./frame-things.ts";
import { type Frames, openLookupQueue } from "./frames.ts";
import { endsWaitingMax, frameSliceMax, quickRunMs, replayMax } from "./limits.ts";
import { endsOf, lastNotesOf, notesOf, type RunNote } from "./rows.ts";
import { runMoves, waitStates } from "./rules.ts";

/** A frame of a run. Clients take the run's result from `output` or `error` of the frame that ends it. */
export interface RunFrame {
  environmentId: string;
  topic: FrameTopic;
  /** JSON text. */
  data: string;
  at: Instant;
  /** Place in the run's history. */
  sequence: number;
  isEnd: boolean;
}

const ends = new Set(["completed", "failed", "cancelled"]);

const statusWords: Record<string, string> = { created: "waiting_for_capacity", resumed: "running" };

interface RunNoteDetail {
  error?: RunError | null;
  cause?: string | null;
  attempt?: number;
  state?: string;
}

export function frameOfNote(note: RunNote): RunFrame {
  const detail = JSON.parse(note.detail) as RunNoteDetail;
  const named = note.type === "run.waiting" ? waitStates.get(detail.state ?? "") : undefined;
  const moved = named ?? runMoves.get(note.type);
  const word = moved === undefined ? note.type.slice("run.".length) : "updated";
  const isEnd = ends.has(word);
  const startedAt = word === "created" ? null : note.started_at;
  const head = JSON.stringify({
    id: note.run_id,
    runId: note.run_id,
    functionId: note.function_id,
    status: moved?.status ?? statusWords[word] ?? word,
    ...(moved?.pauseReason && { pauseReason: moved.pauseReason }),
    ...(detail.attempt !== undefined && { attempt: detail.attempt }),
    eventId: note.event_id,
    eventName: note.event_name,
    timestamp: rfc3339(note.at),
    // The row has the run as it is now: a later start must not appear in a frame that is read again from
    // history.
    ...(startedAt !== null && startedAt <= note.at && { startedAt: rfc3339(startedAt) }),
    ...(isEnd && { endedAt: rfc3339(note.at) }),
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

/** Called after the commit. Costs nothing while run frames have no readers on any node. */
export type RunFrames = ReturnType<typeof openRunFrames>;

export interface RunFramesDeps extends Basics<"store" | "log"> {
  clock: Pick<Clock, "elapsed" | "sleep" | "after">;
  frames: Pick<Frames, "wantsRuns" | "send">;
}

export function openRunFrames({ store, clock, log, frames }: RunFramesDeps) {
  const ends = openLook((ids) => endsOf(store, ids), send);
  const moves = openLook((ids) => lastNotesOf(store, ids), sendMove);
  /**
   * The last published place in each run's history: two looks may find the same row, or finish out of order.
   */
  const announced = new Map<string, number>();
  /** Runs that a worker began at once: told a little later, so that of a quick run the end alone is told. */
  const begun: RunNote[] = [];

  function send(note: RunNote): void {
    if (!frames.wantsRuns(note.environment_id)) return;
    const last = announced.get(note.run_id) ?? 0;
    if (announced.size >= endsWaitingMax) announced.delete(announced.keys().next().value!);
    announced.set(note.run_id, Math.max(last, note.sequence));
    const { environmentId, topic, data, at, sequence } = frameOfNote(note);
    frames.send(environmentId, { topic, data, at, sequence });
  }

  function sendMove(note: RunNote): void {
    // `created`, `ended` and `resumed` publish the other types.
    if (!runMoves.has(note.type) || (announced.get(note.run_id) ?? 0) >= note.sequence) return;
    send(note);
  }

  function tellBegun(): void {
    for (const note of begun.splice(0)) sendMove(note);
  }

  function openLook(
    find: (runIds: readonly string[]) => Promise<RunNote[]>,
    announce: (note: RunNote) => void,
  ) {
    const look = openLookupQueue<string>({
      clock,
      sliceMax: frameSliceMax,
      onFailed: (error) => log.debug("frames.runs_unread", { error }),
      async look(runIds) {
        for (const note of await find(runIds)) announce(note);
      },
    });
    return (runIds: readonly string[]) => look(runIds.map((runId) => [runId, runId]));
  }

  return {
    created(runs: readonly NewRun[], at: Instant) {
      if (!frames.wantsRuns()) return;
      for (const { id, environmentId, functionId, eventId, eventName, lease } of runs) {
        const note = {
          run_id: id,
          environment_id: environmentId,
          function_id: functionId,
          event_id: eventId,
          event_name: eventName,
          at,
          started_at: at,
          detail: "{}",
          output: null,
        };
        send({ ...note, type: "run.created", sequence: 1 });
        if (lease && begun.push({ ...note, type: "run.started", sequence: 2, detail: '{"attempt":1}' }) === 1)
          clock.after(quickRunMs, tellBegun);
      }
    },

    /** The runs may be of several environments. */
    ended(runIds: readonly string[]) {
      if (frames.wantsRuns()) ends(runIds);
    },

    /** Runs whose execution stopped. Those that are over have `ends`; their frame comes from `ended`. */
    moved(runs: readonly { runId: string; environmentId: string; ends?: string | null }[]) {
      if (!frames.wantsRuns()) return;
      moves(
        runs.flatMap(({ runId, environmentId, ends: end }) =>
          (end ?? null) === null && frames.wantsRuns(environmentId) ? runId : [],
        ),
      );
    },

    /** Runs that began. */
    claimed(runs: readonly { run_id: string; environment_id: string }[]) {
      if (!frames.wantsRuns()) return;
      moves(runs.flatMap((run) => (frames.wantsRuns(run.environment_id) ? run.run_id : [])));
    },

    resumed(environmentId: string, runId: string) {
      if (!frames.wantsRuns(environmentId)) return;
      void notesOf(store, [runId], replayMax).then(
        (notes) => {
          const note = notes.find(({ type }) => type === "run.resumed");
          if (note) send(note);
        },
        (error) => log.debug("frames.runs_unread", { error }),
      );
    },
  };
}
