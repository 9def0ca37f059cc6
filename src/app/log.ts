import { openDelayedEvents } from "../domain/engine/emit/delayed-events.ts";
import { eventsOperations } from "../domain/engine/emit/operations.ts";
import { openEvents } from "../domain/engine/emit/service.ts";
import { openTellFailures } from "../domain/engine/failures/service.ts";
import type { SecretValues } from "../domain/engine/secrets/values.ts";
import { openFeeds } from "../domain/log/core/feed.ts";
import { eventReads } from "../domain/log/core/past.ts";
import { headsOf, type LoggedEvent } from "../domain/log/core/rows.ts";
import { openLogSequences } from "../domain/log/core/sequences.ts";
import { openEventLog } from "../domain/log/core/service.ts";
import type { Upcasts } from "../domain/log/schemas/service.ts";
import { leastUnhandled } from "../domain/realtime/groups/rows.ts";
import { appendFrames } from "../domain/realtime/pubsub/lifecycle-frames.ts";
import type { Flow } from "../domain/record/flow/service.ts";
import { logCheck } from "../domain/record/integrity/service.ts";
import type { Usage } from "../domain/record/usage/service.ts";
import type { EmitRights } from "./caller-now.ts";
import { feedHints } from "./feed-hints.ts";
import type { OutboxPart } from "./outbox.ts";
import type { Host, PartShape } from "./part.ts";
import type { RunsPart } from "./runs.ts";

export interface LogNeeds extends Pick<OutboxPart, "buryDelayed"> {
  runsPart: RunsPart;
  schemas: Upcasts;
  flow: Flow;
  usage: Pick<Usage, "logged">;
  emitRights: EmitRights;
  secretValues: SecretValues["of"];
}

export type LogPart = ReturnType<typeof openLog>;

/** The event log of every environment: what is emitted into it, who follows it, and what its events start. */
export function openLog(host: Host, needs: LogNeeds) {
  const { runsPart, schemas, flow, usage, buryDelayed, emitRights, secretValues } = needs;
  const { store, clock, ids, log, watch, frames } = host;
  const { definitions, dispatcher, debounce, batches, quotas, observers, runs, serving } = runsPart;
  const feeds = openFeeds({ ...{ reads: eventReads(store), log }, ...feedHints<LoggedEvent>(host, "log") });
  const tellAppended = appendFrames(frames);
  const events = openEvents({
    ...{ store, clock, ids, definitions, dispatcher, feeds, watch, quotas, serving },
    onQueued: observers.queued,
    onArmed: debounce.armed,
    onJoined: batches.joined,
    onCreated: observers.created,
    onLogged(event, at) {
      flow.logged(event);
      usage.logged(event, at);
    },
    onAppended(event, at) {
      tellAppended(event, at);
      runs.states.changed(event.environmentId);
    },
    matcher: runs.matcher,
  });
  const delays = openDelayedEvents({
    ...{ store, clock, ids, log, watch, events },
    shareEnvironment: host.shareEnvironment,
    requireRoom: quotas.requireRoom,
    knowsTime: host.knowsTime,
    refusalOf: emitRights,
    bury: buryDelayed,
  });
  const failures = openTellFailures({
    ...{ store, clock, log, events, secretValues, definitionOf: runsPart.definitionAt },
    ...{ knowsTime: host.knowsTime, bury: buryDelayed },
  });
  return {
    events,
    requeueDelayed: delays.requeue,
    /** Readers of the event log here. */
    feeds,
    sequences: openLogSequences({ log: "events", clock, feeds, heads: (ids) => headsOf(store, ids) }),
    operations: eventsOperations(events, delays, openEventLog(store), schemas),
    loops: [
      {
        name: "events.delayed",
        about: "Emits delayed events whose time has come.",
        everyMs: 500,
        tick: delays.emitOnce,
      },
      {
        name: "runs.failures",
        about: "Emits `svc.run.failed` for runs that failed, in environments that ask for it.",
        everyMs: 500,
        tick: failures.tellOnce,
      },
      {
        name: "log.feeds",
        about:
          "Compares how far readers here have read with the heads of the event logs, in case a hint was lost.",
        everyMs: 1_000,
        tick: feeds.compareOnce,
      },
    ],
    duties: [
      {
        duty: "retention",
        name: "events.keys",
        about: "Deletes idempotency keys of events whose time is over.",
        everyMs: 10 * 60_000,
        tick: events.purgeOnce,
      },
    ],
    checks: [logCheck(store)],
    floorGuards: [(environmentId) => leastUnhandled(store, environmentId, "events")],
    settled: events.drain,
  } satisfies PartShape;
}
