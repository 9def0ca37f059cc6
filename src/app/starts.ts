import { openAskNodes } from "../domain/engine/capacity/node-requests.ts";
import { capacityOperations } from "../domain/engine/capacity/operations.ts";
import { openCapacity } from "../domain/engine/capacity/service.ts";
import type { Events } from "../domain/engine/emit/service.ts";
import { scheduleChecks } from "../domain/engine/schedules/invariants.ts";
import { schedulesOperations } from "../domain/engine/schedules/operations.ts";
import { openSchedules } from "../domain/engine/schedules/service.ts";
import { startsOperations } from "../domain/engine/starts/operations.ts";
import { openStarts } from "../domain/engine/starts/service.ts";
import type { Steering } from "../domain/engine/steering/service.ts";
import { cronFrames } from "../domain/realtime/pubsub/lifecycle-frames.ts";
import type { Host, Part } from "./part.ts";
import type { AppRights } from "./rights.ts";
import type { RunsPart } from "./runs.ts";

export interface StartsNeeds {
  runsPart: RunsPart;
  events: Events;
  steering: Pick<Steering, "cancel">;
  may: AppRights["may"];
}

/**
 * What starts runs besides events: cron triggers, parent runs, and callers who wait for the end; and whether
 * there is room for more.
 */
export function openStartsPart(host: Host, { runsPart, events, steering, may }: StartsNeeds): Part {
  const { store, clock, ids, log, bus, frames, nodeId, isDraining, watch } = host;
  const { definitions, dispatcher, ends, serving, runs, childWaker, cronWaker } = runsPart;
  const publishCron = cronFrames(frames);
  const schedules = openSchedules({
    ...{ store, clock, log, definitions, events },
    ...{ self: ids.uuid(), tracer: watch.tracer },
    onFrame(frame) {
      log.info(`cron.${frame.leaf}`, { ...frame });
      publishCron(frame);
    },
  });
  const starts = openStarts({
    events,
    ends,
    cancelRun: async (environmentId, runId) =>
      void (await steering.cancel(environmentId, runId, "the caller of a synchronous start went away")),
  });
  const askNodes = openAskNodes({ bus, log, nodeId, isDraining, facts: dispatcher.facts });
  const capacity = openCapacity({ store, askNodes, serving });
  return {
    operations: [
      ...startsOperations(starts),
      ...schedulesOperations(schedules, may),
      ...capacityOperations(capacity),
    ],
    loops: [
      {
        name: "runs.children",
        about:
          "Starts child runs and tells parent runs how their children ended; woken by what is settled here.",
        everyMs: 1_000,
        waker: childWaker,
        tick: runs.openChildren(events.invoke).moveOnce,
      },
    ],
    duties: [
      {
        duty: "cron",
        name: "schedules.tick",
        about:
          "Takes up changed cron triggers and fires the slots that are due; woken by changes at any node.",
        everyMs: 1_000,
        waker: cronWaker,
        tick: schedules.tickOnce,
      },
    ],
    checks: scheduleChecks(store, clock),
  };
}
