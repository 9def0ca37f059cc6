import type { DutyLoop } from "./cluster/duties.ts";
import { purgeBacklogOf } from "./domain/access/tenancy/purge.ts";
import { debounceCheck } from "./domain/engine/debounce/invariants.ts";
import { leastPosition } from "./domain/engine/debounce/rows.ts";
import type { Functions } from "./domain/engine/functions/service.ts";
import { runChecks } from "./domain/engine/runs/invariants.ts";
import type { Runs } from "./domain/engine/runs/service.ts";
import { leastUnmatched } from "./domain/engine/runs/waits/wait-rows.ts";
import type { QueueHint } from "./domain/engine/runs/wakes/due.ts";
import { openSweep } from "./domain/engine/runs/wakes/sweep.ts";
import { scheduleChecks } from "./domain/engine/schedules/invariants.ts";
import { topicChecks } from "./domain/log/topics/invariants.ts";
import { groupCheck } from "./domain/realtime/groups/invariants.ts";
import { leastUnhandled } from "./domain/realtime/groups/rows.ts";
import { type CallTrail, historyOperations } from "./domain/record/history/operations.ts";
import { openHistory } from "./domain/record/history/service.ts";
import { integrityOperations } from "./domain/record/integrity/operations.ts";
import { type IntegrityCheck, logCheck, openIntegrity } from "./domain/record/integrity/service.ts";
import { retentionOperations } from "./domain/record/retention/operations.ts";
import { type FloorGuard, openRetention } from "./domain/record/retention/service.ts";
import type { Clock } from "./kit/clock.ts";
import type { Log } from "./kit/log.ts";
import type { LoopOptions } from "./kit/loop.ts";
import type { Operation } from "./kit/operation.ts";
import type { Watch } from "./kit/watch.ts";
import type { Config } from "./settings.ts";
import type { Store } from "./store/store.ts";

export interface Upkeep {
  operations: readonly Operation[];
  loops: readonly LoopOptions[];
  duties: readonly DutyLoop[];
  /** What `/health` says of balances that do not add up. */
  warnings: () => string[];
}

export interface UpkeepDeps {
  config: Pick<Config, "eventRetentionDays" | "runRetentionDays">;
  store: Store;
  clock: Clock;
  log: Log;
  watch: Watch;
  functions: Pick<Functions, "definitionAt">;
  runs: Runs;
  onQueued: (lanes: readonly QueueHint[]) => void;
  /** Of parts that are not the engine's: whoever reads a log behind its end, and what must add up there. */
  floorGuards: readonly FloorGuard[];
  checks: readonly IntegrityCheck[];
  callTrail: CallTrail | undefined;
}

const expireEveryMs = 10 * 60_000;

/** What keeps runs whole and explains them put together: history, retention, integrity and the sweeper. */
export function openUpkeep(deps: UpkeepDeps): Upkeep {
  const { config, store, clock, log, runs } = deps;
  const { metrics } = deps.watch;
  const definitionOf = deps.functions.definitionAt;
  const floorGuards: FloorGuard[] = [
    (environmentId) => leastPosition(store, environmentId),
    (environmentId) => leastUnmatched(store, environmentId),
    (environmentId) => leastUnhandled(store, environmentId, "events"),
    ...deps.floorGuards,
  ];
  const checks = [
    logCheck(store),
    ...runChecks(store, clock),
    debounceCheck(store, clock),
    ...scheduleChecks(store, clock),
    ...topicChecks(store),
    groupCheck(store),
    ...deps.checks,
  ];
  const retention = openRetention({ store, clock, log, metrics, config, definitionOf, floorGuards });
  const history = openHistory({ store, clock, runs, definitionOf, retentionDaysOf: retention.runDaysOf });
  const integrity = openIntegrity({ store, clock, log, metrics, checks });
  const sweepOnce = openSweep({
    store,
    clock,
    wakeOnce: runs.wakeOnce,
    healed: integrity.healed,
    onQueued: deps.onQueued,
    definitionOf,
  });
  return {
    operations: [
      ...historyOperations(history, deps.callTrail),
      ...integrityOperations(integrity, purgeBacklogOf(store)),
      ...retentionOperations(retention),
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
        everyMs: expireEveryMs,
        tick: retention.expireEvents,
      },
      {
        duty: "retention",
        name: "runs.expire",
        about: "Deletes old runs that are over, with their steps and history, a slice a transaction.",
        everyMs: expireEveryMs,
        tick: retention.expireRuns,
      },
      {
        duty: "retention",
        name: "runs.sweep",
        about: "Moves runs that are overdue, and compares runs with their executions, a slice a tick.",
        everyMs: 5_000,
        tick: sweepOnce,
      },
    ],
    warnings: integrity.warnings,
  };
}
