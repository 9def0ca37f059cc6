import { Fault, missing } from "../../../../kit/fault.ts";
import { pageSize } from "../../../../kit/page.ts";
import type { Basics } from "../../../../store/store.ts";
import type { QueueHint } from "../run.ts";
import { queueHintsOfRows } from "../waits/resolve-steps.ts";
import { signalsKeptMax } from "./limits.ts";
import * as rows from "./signal-rows.ts";
import { takeSignals } from "./take-signals.ts";

/** What is sent to runs by name, for steps that wait for it. */
export type SignalBox = ReturnType<typeof openSignals>;

export interface SignalsDeps extends Basics<"store" | "clock"> {
  /** Called after the commit, with the queues that got runs. */
  onQueued: (lanes: readonly QueueHint[]) => void;
}

/** A step that waited has the signal, or the next step that waits for its name gets it. */
export type SignalState = "taken" | "kept";

export interface SignalsPage {
  signals: rows.SignalRow[];
  /** Of all signals of the run. */
  kept: number;
  hasMore: boolean;
}

export function openSignals({ store, clock, onQueued }: SignalsDeps) {
  return {
    /** A repeat with the key of an earlier call answers what became of that signal. */
    async send(signal: rows.NewSignal): Promise<SignalState> {
      const { environmentId, runId, idempotencyKey } = signal;
      const sent = await store.write(async (session) => {
        const now = clock.now();
        const row = await rows.lockSignalled(session, environmentId, runId);
        const status = row ? "active" : await rows.statusOf(session, environmentId, runId);
        if (status === undefined) throw missing("run", runId);
        const before =
          idempotencyKey === null ? undefined : await rows.sentBefore(session, runId, idempotencyKey);
        if (before) return { isTaken: before.taken_at !== null, lanes: [] };
        if (!row) throw takesNone(`is ${status}`);
        if (row.ending !== null) throw takesNone("is being undone");
        if ((await rows.countKept(session, runId)) >= signalsKeptMax)
          throw new Fault(
            "resource_exhausted",
            `the run keeps ${signalsKeptMax} signals that no step has waited for, which is the most`,
            { code: "SIGNALS_FULL" },
          );
        const sequence = await rows.insertSignal(session, signal, now);
        const taken = await takeSignals(session, new Map([[runId, row]]), now);
        return {
          isTaken: taken.some((one) => one.sequence === sequence),
          lanes: queueHintsOfRows(taken.map((one) => one.row)),
        };
      });
      if (sent.lanes.length > 0) onQueued(sent.lanes);
      return sent.isTaken ? "taken" : "kept";
    },

    /** Newest first. */
    async list(
      environmentId: string,
      { runId, limit, before }: { runId: string; limit?: number | undefined; before?: number | undefined },
    ): Promise<SignalsPage> {
      if ((await rows.statusOf(store, environmentId, runId)) === undefined) throw missing("run", runId);
      const size = pageSize(limit);
      const found = await rows.signalsOf(store, { environmentId, runId, before }, size);
      const kept = await rows.countKept(store, runId);
      return { signals: found.slice(0, size), kept, hasMore: found.length > size };
    },
  };
}

const takesNone = (why: string): Fault =>
  new Fault("failed_precondition", `the run ${why} and takes no signal`);
