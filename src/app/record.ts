import { purgeBacklogOf } from "../domain/access/tenancy/purge.ts";
import { statusOf } from "../domain/engine/runs/rules.ts";
import type { ExecutionState } from "../domain/engine/runs/run.ts";
import { openSweep } from "../domain/engine/runs/wakes/sweep.ts";
import { causalityOperations } from "../domain/record/causality/operations.ts";
import { openCausality } from "../domain/record/causality/service.ts";
import { erasureOperations } from "../domain/record/erasure/operations.ts";
import { openErasure } from "../domain/record/erasure/service.ts";
import { type CallTrail, historyOperations } from "../domain/record/history/operations.ts";
import { openHistory } from "../domain/record/history/service.ts";
import { integrityOperations } from "../domain/record/integrity/operations.ts";
import { openIntegrity } from "../domain/record/integrity/service.ts";
import { retentionOperations } from "../domain/record/retention/operations.ts";
import { openRetention } from "../domain/record/retention/service.ts";
import { Fault } from "../kit/fault.ts";
import { expireEveryMs, keptMs } from "../settings/retention.ts";
import type { EnginePart } from "./engine.ts";
import { foldParts, type Host, type Part, type PartShape } from "./part.ts";

export type RecordPart = ReturnType<typeof openRecord>;

export interface RecordNeeds {
  engine: Pick<EnginePart, "definitionAt" | "runs" | "quotas" | "observers" | "steering">;
  /** Whose invariants are checked, and whose readers retention does not overtake. */
  parts: readonly Part[];
  /** What callers did, for the history of an environment. */
  callTrail?: CallTrail;
  /** Forgets the captured requests of an org. */
  forgetCaptures: (orgId: string) => Promise<void>;
}

/** While a snapshot is held, a look of the sweeper walks over index entries of all runs that ended since. */
const sweepShareMax = 0.1;

/** What explains runs and keeps them whole: history, retention, integrity and the sweeper. */
export function openRecord(host: Host, { engine, parts, callTrail, forgetCaptures }: RecordNeeds) {
  const { config, store, clock, log } = host;
  const { metrics } = host.watch;
  const { definitionAt: definitionOf, runs, quotas, observers, steering } = engine;
  const { checks, floorGuards } = foldParts(parts);
  const kept = keptMs(config);
  const retention = openRetention({
    ...{ store, clock, log, metrics, kept, definitionOf, floorGuards },
    forgetBytes: quotas.forgetBytes,
  });
  const erasure = openErasure({
    ...{ store, clock, log, forgetCaptures, deleteRuns: retention.deleteRuns },
    forgetBytes: quotas.forgetBytes,
  });
  const history = openHistory({ store, clock, runs, definitionOf, retentionDaysOf: retention.runDaysOf });
  const causality = openCausality({
    store,
    statusOf: (stored, state) => statusOf(stored, state as ExecutionState | null).status,
    async cancel(environmentId, runId, reason) {
      try {
        await steering.cancel(environmentId, runId, reason);
        return true;
      } catch (error) {
        // It ended by itself meanwhile.
        if (error instanceof Fault && ["failed_precondition", "aborted"].includes(error.kind)) return false;
        throw error;
      }
    },
  });
  const integrity = openIntegrity({ store, clock, log, metrics, checks });
  const sweepOnce = openSweep({
    store,
    clock,
    wakeOnce: () => runs.wakeOnce(true),
    healed: integrity.healed,
    onQueued: observers.queued,
    definitionOf,
  });
  return {
    operations: [
      ...historyOperations(history, callTrail),
      ...causalityOperations(causality),
      ...integrityOperations(integrity, purgeBacklogOf(store)),
      ...retentionOperations(retention),
      ...erasureOperations(erasure),
    ],
    loops: [
      {
        name: "integrity.look",
        about: "Checks the invariants of some environments, for `/health` and metrics.",
        everyMs: 30_000,
        tick: integrity.lookOnce,
      },
    ],
    duties: [
      {
        duty: "retention",
        name: "events.expire",
        about: "Raises the floors of event logs and deletes the events below them, a slice a transaction.",
        everyMs: expireEveryMs(kept.events),
        tick: retention.expireEvents,
      },
      {
        duty: "retention",
        name: "runs.expire",
        about: "Deletes old runs that are over, with their steps and history, a slice a transaction.",
        everyMs: expireEveryMs(kept.runs),
        tick: retention.expireRuns,
      },
      {
        duty: "retention",
        name: "runs.sweep",
        about: "Moves runs that are overdue, and compares runs with their executions, a slice a tick.",
        everyMs: 5_000,
        shareMax: sweepShareMax,
        tick: sweepOnce,
      },
    ],
    /** What `/health` says of invariants that do not hold. */
    warnings: integrity.warnings,
    troubles: integrity.troubles,
    lastLook: integrity.lastLook,
  } satisfies PartShape;
}
