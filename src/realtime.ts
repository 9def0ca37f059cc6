import type { Bus } from "./bus/bus.ts";
import type { DutyLoop } from "./cluster/duties.ts";
import { type Feeds, openFeeds } from "./domain/log/log/feed.ts";
import { openPast } from "./domain/log/log/past.ts";
import { openExpiry } from "./domain/log/topics/expire.ts";
import { topicsOperations } from "./domain/log/topics/operations.ts";
import { openTopicsPast, type TopicMessage, topicReads } from "./domain/log/topics/past.ts";
import { openTopics, type Topics } from "./domain/log/topics/service.ts";
import { groupsOperations } from "./domain/realtime/groups/operations.ts";
import { leastUnhandled } from "./domain/realtime/groups/rows.ts";
import { type Groups, openGroups } from "./domain/realtime/groups/service.ts";
import { openTopicConsumers } from "./domain/realtime/groups/topic-consumers.ts";
import type { Frames } from "./domain/realtime/pubsub/frames.ts";
import { subscribeOperation } from "./domain/realtime/pubsub/operations.ts";
import { openScreenings } from "./domain/realtime/pubsub/screening.ts";
import { openPubSub, type PubSub } from "./domain/realtime/pubsub/service.ts";
import { openSocketSessions } from "./domain/realtime/pubsub/socket-session.ts";
import { sourcesOf } from "./domain/realtime/pubsub/source.ts";
import { openSubscriptionStreams } from "./domain/realtime/pubsub/subscription-streams.ts";
import type { Edge, Reauthorizer } from "./edge/call.ts";
import type { Upgrade } from "./edge/http.ts";
import { openReauthorizer } from "./edge/reauthorize.ts";
import { openSockets, type Sockets, socketOptions } from "./edge/sockets.ts";
import type { Clock } from "./kit/clock.ts";
import type { Ids } from "./kit/ids.ts";
import { groupRefreshMs, reauthorizeEveryMs } from "./kit/limits.ts";
import type { Log } from "./kit/log.ts";
import type { LoopOptions } from "./kit/loop.ts";
import type { Operation } from "./kit/operation.ts";
import type { Watch } from "./kit/watch.ts";
import type { Config } from "./settings.ts";
import type { Store } from "./store/store.ts";

export interface Realtime {
  pubsub: PubSub;
  topics: Topics;
  groups: Groups;
  /** Sockets, streams and held polls, asked again and again whether their callers may go on. */
  reauthorizer: Reauthorizer;
  operations: readonly Operation[];
  loops: readonly LoopOptions[];
  /** What one node does for all. */
  duties: readonly DutyLoop[];
  /** `/ws`, for the listener of the edge that it stands at. */
  standAt(edge: Edge): { upgrades: readonly Upgrade[]; websocket: object };
  /** Sockets and streams are let go at once: their clients find another node. */
  drain(): void;
  /** Resolves once nothing that was published or acknowledged is on its way to the store. */
  settled(): Promise<void>;
}

export interface RealtimeDeps {
  config: Pick<Config, "topicRetentionHours">;
  store: Store;
  clock: Clock;
  ids: Ids;
  log: Log;
  bus: Bus;
  feeds: Feeds;
  frames: Frames;
  watch: Watch;
  nodeId: string;
  /** False while this node is not sure of the time: it hands out nothing to groups then. */
  knowsTime: () => boolean;
}

/** Of `/api/v1/capabilities`. */
export const realtimeFeatures = ["replay", "wildcard-patterns", "cel-filter", "consumer-groups"] as const;

/** What one node tells the others about messages of topics. */
const subjectOf = (environmentId: string) => `topics.${environmentId}`;

/** Topics, subscriptions and consumer groups put together: one core, sockets and streams before it. */
export function openRealtime(deps: RealtimeDeps): Realtime {
  const { config, store, clock, log, bus, feeds, frames } = deps;
  const topicFeeds = openFeeds<TopicMessage>({
    reads: topicReads(store),
    log,
    hasOthers: () => bus.kind === "nats" && bus.present().length > 1,
    publishHint: (hint) => bus.hint(subjectOf(hint.environmentId), JSON.stringify(hint)),
    listen: (environmentId, heard) =>
      bus.onHint(subjectOf(environmentId), (payload) => heard(JSON.parse(new TextDecoder().decode(payload)))),
  });
  const topics = openTopics({ ...deps, feeds: topicFeeds, consumersOf: openTopicConsumers(store) });
  const past = openPast(store);
  const sources = sourcesOf({ feeds, past, topicFeeds, topicsPast: openTopicsPast(store) });
  const groups = openGroups({ ...deps, sources });
  const pubsub = openPubSub({
    store,
    clock,
    log,
    sources,
    frames,
    async joinGroup({ environmentId, wanted, startAfter, consumerId, ...reader }) {
      const { group: name, pattern, filterText: filterExpr = "" } = wanted;
      await groups.forSubscription(environmentId, name, { pattern: pattern.text, filterExpr }, startAfter);
      return groups.join(environmentId, { name, consumerId, clientId: "" }, reader);
    },
  });
  const screeningOf = openScreenings(deps.watch.metrics);
  const streams = openSubscriptionStreams(pubsub, screeningOf);
  const operation = subscribeOperation(streams);
  const reauthorizer = openReauthorizer(deps);
  let sockets: Sockets | undefined;
  const { metrics } = deps.watch;
  const help = "Open WebSockets at this node.";
  const open = metrics.gauge({ name: "svc_websockets_open", help })();
  metrics.beforeReading(async () => open.set(sockets?.size() ?? 0));
  const connect = openSocketSessions({
    pubsub,
    log,
    publish: (channelId, text) => sockets?.publish(channelId, text),
    screeningOf,
  });
  const { topicRetentionHours: retentionHours } = config;
  const expireOnce = openExpiry({
    store,
    clock,
    log,
    retentionHours,
    floorGuards: [(environmentId) => leastUnhandled(store, environmentId, "topics")],
  });
  return {
    pubsub,
    topics,
    groups,
    reauthorizer,
    operations: [operation, ...topicsOperations(topics), ...groupsOperations(groups, streams)],
    loops: [
      {
        name: "topics.feeds",
        about:
          "Compares how far readers here have read with the heads of the topic logs, in case a hint was lost.",
        everyMs: 1_000,
        tick: topicFeeds.compareOnce,
      },
      {
        name: "groups.look",
        about:
          "Writes the heartbeats of group members here, dismisses silent members anywhere, and delivers what no hint told of.",
        everyMs: 1_000,
        tick: groups.lookOnce,
      },
      {
        name: "groups.refresh",
        about:
          "Reads the consumer groups that have members here, for changes that no hint told of; only on PostgreSQL.",
        everyMs: groupRefreshMs,
        tick: groups.refreshOnce,
      },
      {
        name: "pubsub.interest",
        about: "Tells other nodes which lifecycle frames are read here, and forgets nodes that fell silent.",
        everyMs: 1_000,
        tick: frames.publishInterestOnce,
      },
      {
        name: "pubsub.runs",
        about: "Looks in one query for the ends of runs that subscribers here wait for.",
        everyMs: 1_000,
        tick: pubsub.lookOnce,
      },
      {
        name: "edge.standing",
        about:
          "Checks that the callers of open sockets, streams and held polls still may go on, and ends those that may not.",
        everyMs: reauthorizeEveryMs,
        tick: reauthorizer.reauthorizeOnce,
      },
    ],
    duties: [
      {
        duty: "retention",
        name: "topics.expire",
        about: "Raises the floors of topic logs and deletes the messages below them, a slice a transaction.",
        everyMs: 10 * 60_000,
        tick: expireOnce,
      },
      {
        duty: "retention",
        name: "groups.forget",
        about: "Deletes consumer groups that subscriptions made and nobody came back to.",
        everyMs: 10 * 60_000,
        tick: groups.forgetOnce,
      },
    ],
    standAt(edge) {
      sockets = openSockets({ edge, operation, connect });
      return { upgrades: [sockets.upgrade], websocket: socketOptions };
    },
    drain() {
      sockets?.drain();
      streams.drain();
    },
    async settled() {
      await Promise.all([topics.drain(), groups.settled()]);
    },
  };
}
