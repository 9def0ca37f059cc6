import { Type } from "@sinclair/typebox";
import { hasOthers } from "../bus/bus.ts";
import { openDelayedEvents } from "../domain/engine/emit/delayed-events.ts";
import { eventsOperations } from "../domain/engine/emit/operations.ts";
import { openEvents } from "../domain/engine/emit/service.ts";
import { openTellFailures } from "../domain/engine/failures/service.ts";
import type { Quotas } from "../domain/engine/quotas/service.ts";
import type { SecretValues } from "../domain/engine/secrets/service.ts";
import { openFeeds } from "../domain/log/core/feed.ts";
import { eventReads, type FeedsDeps, type LogEntry, type LogHint } from "../domain/log/core/feed-reader.ts";
import { headsOf, type LoggedEvent } from "../domain/log/core/rows.ts";
import { type LogSequences, openLogSequences } from "../domain/log/core/sequences.ts";
import { openEventLog } from "../domain/log/core/service.ts";
import type { Upcasts } from "../domain/log/schemas/service.ts";
import { topicChecks } from "../domain/log/topics/invariants.ts";
import { topicsOperations } from "../domain/log/topics/operations.ts";
import { type TopicMessage, topicReads } from "../domain/log/topics/past.ts";
import { topicHeads } from "../domain/log/topics/rows.ts";
import { openExpiry, openTopics } from "../domain/log/topics/service.ts";
import { leastUnhandled } from "../domain/realtime/groups/rows.ts";
import { openTopicConsumers } from "../domain/realtime/groups/service.ts";
import { appendFrames } from "../domain/realtime/pubsub/lifecycle-frames.ts";
import type { Flow } from "../domain/record/flow/service.ts";
import { logCheck } from "../domain/record/integrity/service.ts";
import type { Usage } from "../domain/record/usage/service.ts";
import type { Waits } from "../domain/state/projections/waits/service.ts";
import type { Sequences, SequenceWait } from "../edge/call.ts";
import { openHolderLimit } from "../kit/holder-limit.ts";
import type { LogName, ReadFirst, Sequence } from "../kit/sequence.ts";
import { expireEveryMs, keptMs } from "../settings/retention.ts";
import type { EmitRights } from "./caller-now.ts";
import type { OutboxPart } from "./outbox.ts";
import type { Host, PartShape } from "./part.ts";
import type { RunsPart } from "./runs.ts";

/** What every log's entries have; older nodes may lack what a newer log adds to them. */
const AnyLogHint = Type.Object({
  /** Older nodes do not say it. */
  from: Type.Optional(Type.String()),
  environmentId: Type.String(),
  head: Type.Integer(),
  events: Type.Optional(
    Type.Array(
      Type.Object({
        position: Type.Integer(),
        data: Type.String(),
        metadata: Type.Union([Type.String(), Type.Null()]),
      }),
    ),
  ),
});

/** The node `from` follows this log. */
const FollowedLog = Type.Object({ from: Type.String(), log: Type.String(), environmentId: Type.String() });

/** A node that said that it follows a log gets events with the hints of the next ten seconds. */
const followedMs = 10_000;
/** A follower repeats this at the first hint after five seconds: a busy log always sends its events along. */
const repeatMs = followedMs / 2;
/** Logs whose followers on other nodes are known; of others a hint names the head alone. */
const followedMax = 10_000;

/**
 * Hints between nodes about commits to one log, on `{log}.{environmentId}`. Most logs have no reader on
 * another node, and writing events out is a third of a commit's cost: a hint has none until a reader asks.
 */
export function feedHints<Entry extends LogEntry>(
  { bus, clock, nodeId }: Pick<Host, "bus" | "clock" | "nodeId">,
  log: "log" | "topics",
): Pick<FeedsDeps<Entry>, "hasOthers" | "hasReadersElsewhere" | "publishHint" | "listen"> {
  const hints = bus.channels(log, Type.Unsafe<LogHint<Entry> & { from?: string }>(AnyLogHint));
  const followed = bus.channel("feeds.followed", FollowedLog);
  const followedUntil = new Map<string, number>();
  if (bus.kind === "nats")
    followed.listen(({ from, log: which, environmentId }) => {
      if (from === nodeId || which !== log) return;
      followedUntil.delete(environmentId);
      if (followedUntil.size >= followedMax) followedUntil.delete(followedUntil.keys().next().value!);
      followedUntil.set(environmentId, clock.elapsed() + followedMs);
    });

  return {
    hasOthers: () => hasOthers(bus),
    hasReadersElsewhere: (environmentId) => (followedUntil.get(environmentId) ?? 0) > clock.elapsed(),
    publishHint: (hint) => hints.publish(hint.environmentId, { from: nodeId, ...hint }),
    listen(environmentId, onHint) {
      let saidAt = Number.NEGATIVE_INFINITY;
      return hints.listen(environmentId, ({ from, ...hint }) => {
        // Own hints come back, too: a feed being opened at the commit needs them. Other nodes need not know.
        if (from !== nodeId && clock.elapsed() - saidAt >= repeatMs) {
          saidAt = clock.elapsed();
          followed.publish({ from: nodeId, log, environmentId });
        }
        onHint(hint);
      });
    },
  };
}

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

/** Developer topics, and their log in every environment. */
export function openTopicsPart(host: Host, flow: Flow, { requireRoom }: Pick<Quotas, "requireRoom">) {
  const { config, store, clock, ids, log, watch } = host;
  const topicFeeds = openFeeds({
    ...{ reads: topicReads(store), log },
    ...feedHints<TopicMessage>(host, "topics"),
  });
  const topics = openTopics({
    ...{ store, clock, ids, watch, feeds: topicFeeds },
    ...{ requireRoom, consumersOf: openTopicConsumers(store) },
    onPublished: flow.published,
  });
  const { topics: kept } = keptMs(config);
  const expireOnce = openExpiry({
    ...{ store, clock, log, keptMs: kept },
    floorGuards: [(environmentId) => leastUnhandled(store, environmentId, "topics")],
  });
  const sequences = openLogSequences({
    ...{ log: "topics", clock, feeds: topicFeeds },
    heads: (ids) => topicHeads(store, ids),
  });
  return {
    /** Readers of the topic log here. */
    topicFeeds,
    sequences,
    operations: topicsOperations(topics),
    loops: [
      {
        name: "topics.feeds",
        about:
          "Compares how far readers here have read with the heads of the topic logs, in case a hint was lost.",
        everyMs: 1_000,
        tick: topicFeeds.compareOnce,
      },
    ],
    duties: [
      {
        duty: "retention",
        name: "topics.expire",
        about: "Raises the floors of topic logs and deletes the messages below them, a slice a transaction.",
        everyMs: expireEveryMs(kept),
        tick: expireOnce,
      },
    ],
    checks: topicChecks(store),
    drain: async () => sequences.drain(),
    settled: topics.drain,
  } satisfies PartShape;
}

/** Reads of one key or user that wait at a node. */
export const sequenceWaitsOfHolderMax = 1_000;

export interface SequencesNeeds {
  logs: Record<LogName, LogSequences>;
  waits: Pick<Waits, "reached">;
}

/** Positions of all that is written, and of all that may be read too early. */
export function openSequences({ logs, waits }: SequencesNeeds): Sequences {
  const holders = openHolderLimit({
    most: sequenceWaitsOfHolderMax,
    what: "reads that wait for a position",
  });

  async function folded(
    environmentId: string,
    least: Sequence,
    reads: ReadFirst,
    options: SequenceWait,
  ): Promise<void> {
    const { log, epoch, position } = least;
    if (reads === "log") return logs[log].reached(environmentId, least, { ...options, ofFeed: false });
    await logs[log].requireEpoch(environmentId, epoch);
    // Nothing of topics is ever folded.
    if (log === "topics") return;
    await Promise.all(
      reads.map(({ name, partition = "" }) =>
        waits.reached(environmentId, { name, partition, minPosition: position }, options),
      ),
    );
  }

  return {
    sequenceAt: (environmentId, log, position) => logs[log].sequenceAt(environmentId, position),
    reached(environmentId, least, reads) {
      const log = logs[least.log];
      if (reads === "log" && log.has(environmentId, least)) return undefined;
      return async (options) => {
        const leave = holders.acquire(options.holder);
        try {
          if (typeof reads === "function") await folded(environmentId, least, await reads(), options);
          else await log.reached(environmentId, least, { ...options, ofFeed: reads === "feed" });
        } finally {
          leave();
        }
      };
    },
  };
}
