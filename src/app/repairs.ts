import { newRun } from "../domain/engine/emit/new-runs.ts";
import { triggersAlone } from "../domain/engine/functions/definitions.ts";
import type { StarterRights } from "../domain/engine/repairs/act.ts";
import { replayHoldsMs } from "../domain/engine/repairs/limits.ts";
import { repairsOperations } from "../domain/engine/repairs/operations.ts";
import { replaysOperations } from "../domain/engine/repairs/replays/operations.ts";
import { leastUnreplayed } from "../domain/engine/repairs/replays/rows.ts";
import { type ReplayRequest, replayAction } from "../domain/engine/repairs/replays/rules.ts";
import type { RepairAction } from "../domain/engine/repairs/rules.ts";
import { openRepairs } from "../domain/engine/repairs/service.ts";
import { insertStartedRuns } from "../domain/engine/runs/create.ts";
import { openSelectRuns } from "../domain/engine/runs/list-runs.ts";
import { openPast } from "../domain/log/core/feed-reader.ts";
import { hiderOfEvents } from "../gate/things.ts";
import type { Caller } from "../kit/caller.ts";
import { Waker } from "../kit/loop.ts";
import type { Operation } from "../kit/operation.ts";
import { callerNow, refusalIn } from "./caller-now.ts";
import type { EnginePart } from "./engine.ts";
import type { IdentityPart } from "./identity.ts";
import type { Host, Part } from "./part.ts";
import type { AppRights } from "./rights.ts";

export interface RepairsNeeds {
  engine: Pick<EnginePart, "runs" | "steeringOn" | "functions" | "definitions" | "names" | "observers">;
  identity: Pick<IdentityPart, "keys" | "users" | "platformUsers">;
  rights: Pick<AppRights, "gate">;
  /** Every operation of the server; called once all parts are open. */
  registry: () => readonly Operation[];
}

/** The operation whose rights an action on one run needs. */
const operationOf: Record<RepairAction | typeof replayAction, string> = {
  ...{ cancel: "runs.cancel", resume: "runs.resume", rerun: "runs.resume" },
  ...{ patch: "steps.patch", inject: "runs.inject", replay: "replays.start" },
};

/** Actions on many runs, with the rights that who started them has when they act. */
export function openRepairsPart(host: Host, { engine, identity, rights, registry }: RepairsNeeds): Part {
  const { store, clock, ids, log, nodeId, shareEnvironment, knowsTime } = host;
  const waker = new Waker();
  const repairs = openRepairs({
    ...{ store, clock, ids, log, nodeId, shareEnvironment, knowsTime },
    metrics: host.watch.metrics,
    wake: () => waker.wakeIn(0),
    onMoved: (environmentId) => host.changes.ofEnvironment(environmentId, "repairs"),
    select: openSelectRuns(store, engine.names),
    steeringOn: engine.steeringOn,
    stepsOf: engine.runs.steps,
    functions: engine.functions,
    ...{ onQueued: engine.observers.queued, onCreated: engine.observers.created },
    ...{ eventsAt: openPast(store).at, triggersAlone, newRun, insertRuns: insertStartedRuns },
    functionOf: async (environmentId, functionId) =>
      (await engine.definitions.current(environmentId)).functions.get(functionId),
    async rightsOf(starter, { environmentId, action, request }) {
      const caller = await callerNow(host, identity, starter, environmentId);
      if (!caller) return undefined;
      const wanted = operationOf[action as keyof typeof operationOf];
      const operation = registry().find(({ name }) => name === wanted)!;
      const input =
        action === replayAction ? { function_id: (request as ReplayRequest).functionId } : undefined;
      return rightsNow(rights.gate, { caller, environmentId }, operation, input);
    },
  });
  return {
    operations: [...repairsOperations(repairs), ...replaysOperations(repairs)],
    drain: repairs.drain,
    floorGuards: [(environmentId) => leastUnreplayed(store, environmentId, clock.now() - replayHoldsMs)],
    loops: [
      {
        name: "repairs.work",
        about: "Goes on with repairs that no other node works on, one of each environment.",
        everyMs: 1_000,
        waker,
        tick: repairs.workOnce,
      },
    ],
    duties: [
      {
        duty: "retention",
        name: "repairs.forget",
        about: "Deletes repairs 30 days after their end, with what became of each run.",
        everyMs: 10 * 60_000,
        tick: repairs.forgetOnce,
      },
    ],
  };
}

/** Undefined when no role of the caller grants the operation any more, or a policy denies it this input. */
async function rightsNow(
  gate: AppRights["gate"],
  call: { caller: Caller; environmentId: string },
  operation: Operation,
  input: object | undefined,
): Promise<StarterRights | undefined> {
  if (await refusalIn(() => gate.gate(call, operation))) return undefined;
  if (input && (await refusalIn(() => gate.guard(call, operation, input)))) return undefined;
  return {
    hidesEvent: await hiderOfEvents({
      screen: (action, type) => gate.screen(call, operation, { action, type }),
    }),
    refusalOf: async ({ runId, stepId }) =>
      (await refusalIn(() => gate.guard(call, operation, { id: runId }))) ??
      (stepId === undefined ? undefined : refusalIn(() => gate.guard(call, operation, { id: stepId }))),
  };
}
