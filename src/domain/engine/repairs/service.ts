import type { Caller } from "../../../kit/caller.ts";
import { missing } from "../../../kit/fault.ts";
import { gaugeKeptMs, gaugeWaitMsMax, purgeSliceMax } from "../../../kit/limits.ts";
import { cachedQuery } from "../../../kit/ttl-cache.ts";
import type { Basics, Session, Store } from "../../../store/store.ts";
import { repairKeptMs, repairLeaseMs, repairTurnsMax } from "./limits.ts";
import { insertWhereRoom, newRepair } from "./new-repair.ts";
import { openReplayStarts, type ReplayStartDeps } from "./replays/service.ts";
import type { RepairKey } from "./rows.ts";
import * as rows from "./rows.ts";
import { notOpen, type RepairInput, repairOutcomes, requestOf } from "./rules.ts";
import { RepairTurn, type RepairTurnDeps } from "./turn.ts";
import { openRepairViews, type ShownRepair, shownRepair } from "./views.ts";

export interface RepairsDeps
  extends Basics<"ids" | "metrics" | "nodeId">,
    Omit<RepairTurnDeps, "count" | "isStopped">,
    ReplayStartDeps {
  /** False while this node is not sure of the time: it would believe a lease to be over too early. */
  knowsTime: () => boolean;
  shareEnvironment: (session: Session, environmentId: string) => Promise<void>;
}

/** Actions on many runs: who started them, the work on them, and what became of each run. */
export function openRepairs(deps: RepairsDeps) {
  const { store, clock, ids, log, select, wake } = deps;
  const count = openMeters(deps);
  const views = openRepairViews(deps);
  const keyOf = (environmentId: string, id: string): RepairKey => ({ environment_id: environmentId, id });

  /** A repair that is in the status already stays as it is. */
  async function steer(
    environmentId: string,
    id: string,
    { from, to, verb, note = "" }: { from: readonly string[]; to: string; verb: string; note?: string },
  ): Promise<ShownRepair> {
    const row = await store.write(async (session) => {
      const held = await rows.holdRepair(session, keyOf(environmentId, id));
      if (!held) throw missing("repair", id);
      if (held.status === to) return held;
      if (!from.includes(held.status)) throw notOpen(held.status, verb);
      return (await rows.steerRepair(session, held, { status: to, note, at: clock.now() }))!;
    });
    wake();
    return shownRepair(store, row);
  }

  /** The turns of this node, by environment. */
  const underWay = new Map<string, Promise<void>>();
  let isStopped = false;

  async function begin(key: RepairKey): Promise<void> {
    const now = clock.now();
    const claim = { holder: deps.nodeId, now, until: now + repairLeaseMs };
    const row = await store.write((session) => rows.claimRepair(session, key, claim));
    if (!row) return;
    const turn = new RepairTurn({ ...deps, count, isStopped: () => isStopped }, row)
      .run()
      // The repair stays this node's until its lease is over, so that a defect makes no busy loop.
      .catch((error) => log.warn("repair.turn_failed", { repairId: row.id, error }))
      .finally(() => {
        underWay.delete(row.environment_id);
        wake();
      });
    underWay.set(row.environment_id, turn);
  }

  return {
    views,
    replays: openReplayStarts(deps),

    async start(environmentId: string, caller: Caller, input: RepairInput): Promise<ShownRepair> {
      const { action, request } = requestOf(input);
      await select.checked(environmentId, request.filter);
      const now = clock.now();
      const asked = { environmentId, caller, action, reason: input.reason, request };
      const row = newRepair(asked, { id: ids.next("rep"), now });
      await store.write(async (session) => {
        await deps.shareEnvironment(session, environmentId);
        await insertWhereRoom(session, row);
      });
      log.info("repair.started", { repairId: row.id, environmentId, action, by: caller.id });
      wake();
      return shownRepair(store, row);
    },

    pause: (environmentId: string, id: string) =>
      steer(environmentId, id, { from: ["running"], to: "paused", verb: "paused" }),
    goOn: (environmentId: string, id: string) =>
      steer(environmentId, id, { from: ["paused"], to: "running", verb: "continued" }),
    stop: (environmentId: string, id: string, by: string) =>
      steer(environmentId, id, {
        ...{ from: ["running", "paused"], to: "stopping", verb: "stopped", note: `stopped by ${by}` },
      }),

    /** The tick of loop `repairs.work`: begins a turn for one repair of each environment. */
    async workOnce(): Promise<void> {
      if (!deps.knowsTime()) return;
      const due = await rows.dueRepairs(store, clock.now(), repairTurnsMax + underWay.size);
      for (const key of due) {
        if (isStopped || underWay.size >= repairTurnsMax) return;
        if (!underWay.has(key.environment_id)) await begin(key);
      }
    },

    /** Begins nothing more; resolves once no turn is under way. */
    async drain(): Promise<void> {
      isStopped = true;
      await Promise.all(underWay.values());
    },

    /** Part of the duty `retention`. */
    async forgetOnce(write: Store["write"]): Promise<void> {
      const before = clock.now() - repairKeptMs;
      while ((await write((session) => rows.forget(session, before, purgeSliceMax))) === purgeSliceMax);
    },
  };
}

export type Repairs = ReturnType<typeof openRepairs>;

function openMeters({ store, clock, metrics }: Pick<RepairsDeps, "store" | "clock" | "metrics">) {
  const items = metrics.counter({
    name: "svc_repair_runs_total",
    help: "Runs that repairs came to, by what became of them.",
    labels: ["outcome"],
  });
  for (const outcome of repairOutcomes) if (outcome !== "pending") items(outcome);
  const open = metrics.gauge({
    name: "svc_repairs_open",
    help: "Repairs that are not over.",
    labels: ["status"],
  });
  const query = () => rows.countsByStatus(store);
  const counted = cachedQuery({ clock, keptMs: gaugeKeptMs, waitMsMax: gaugeWaitMsMax, query });
  metrics.beforeReading(async () => {
    const found = await counted();
    for (const status of ["running", "paused", "stopping"])
      open(status).set(found && Number(found.find((row) => row.status === status)?.count ?? 0));
  });
  return (outcome: string) => items(outcome).add();
}
