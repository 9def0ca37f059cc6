import type { Tenancy } from "../domain/access/tenancy/service.ts";
import type { Feeds } from "../domain/log/core/feed.ts";
import { openPast } from "../domain/log/core/feed-reader.ts";
import { openTopicsPast, type TopicMessage } from "../domain/log/topics/past.ts";
import { groupRefreshMs } from "../domain/realtime/groups/limits.ts";
import { groupsOperations } from "../domain/realtime/groups/operations.ts";
import { namesOfGroups } from "../domain/realtime/groups/rows.ts";
import { type Groups, groupCheck, openGroups } from "../domain/realtime/groups/service.ts";
import { placesOf } from "../domain/realtime/pubsub/changes.ts";
import type { GroupVerdict } from "../domain/realtime/pubsub/channel-subscription.ts";
import { type Sources, sourcesOf } from "../domain/realtime/pubsub/delivery.ts";
import { groupFrames } from "../domain/realtime/pubsub/moved-frames.ts";
import { subscribeOperation } from "../domain/realtime/pubsub/operations.ts";
import { openScreenings } from "../domain/realtime/pubsub/screening.ts";
import { openPubSub } from "../domain/realtime/pubsub/service.ts";
import { openSocketSessions } from "../domain/realtime/pubsub/socket-session.ts";
import { openSubscriptionStreams } from "../domain/realtime/pubsub/subscription-streams.ts";
import type { Outbox } from "../domain/record/outbox/service.ts";
import type { Edge } from "../edge/call.ts";
import type { Upgrade } from "../edge/http.ts";
import { openReauthorizer } from "../edge/reauthorize.ts";
import { openSockets, type Sockets, socketOptions } from "../edge/sockets.ts";
import { missing } from "../kit/fault.ts";
import type { Operation } from "../kit/operation.ts";
import { expireEveryMs, keptMs } from "../settings/retention.ts";
import type { Host, PartShape } from "./part.ts";

/**
 * How often open sockets, streams and held polls are re-authorized: with `keyLeaseMs`, a revocation ends them
 * within a second.
 */
const reauthorizeEveryMs = 250;

export type RealtimePart = ReturnType<typeof openRealtime>;

export interface RealtimeNeeds {
  feeds: Feeds;
  topicFeeds: Feeds<TopicMessage>;
  tenancy: Pick<Tenancy, "findEnvironment">;
  bury: Outbox["bury"];
}

/** Subscriptions and consumer groups: one core, with sockets and streams before it. */
export function openRealtime(host: Host, { feeds, topicFeeds, tenancy, bury }: RealtimeNeeds) {
  const { store, log, watch, frames } = host;
  const { events, topics } = keptMs(host.config);
  const past = openPast(store);
  const sources = sourcesOf({ feeds, past, topicFeeds, topicsPast: openTopicsPast(store) });
  const groups = openGroups({
    ...{ ...host, sources, bury },
    announce: groupFrames(host, (groups) => namesOfGroups(store, groups)),
  });
  const pubsub = openPubSubOver(host, { sources, groups, tenancy });
  const screeningOf = openScreenings(watch.metrics);
  const streams = openSubscriptionStreams(pubsub, screeningOf);
  const operation = subscribeOperation(streams);
  const reauthorizer = openReauthorizer(host);
  let sockets: Sockets | undefined;
  const help = "Open WebSockets at this node.";
  const open = watch.metrics.gauge({ name: "svc_websockets_open", help })();
  watch.metrics.beforeReading(async () => open.set(sockets?.size() ?? 0));
  const connect = openSocketSessions({
    ...{ pubsub, log, screeningOf },
    publish: (...text) => sockets?.publish(...text),
  });
  return {
    /** Of `/api/v1/capabilities`. */
    features: ["replay", "wildcard-patterns", "cel-filter", "consumer-groups"],
    /** Asks again and again whether the callers of sockets, streams and held polls may go on. */
    reauthorizer,
    operations: [operation, ...groupsOperations(groups, streams)],
    loops: [
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
        name: "pubsub.positions",
        about: "Tells quiet subscriptions how far they have come, so that retention does not overtake them.",
        everyMs: Math.min(expireEveryMs(events), expireEveryMs(topics)),
        tick: pubsub.tellPositions,
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
        name: "groups.forget",
        about: "Deletes consumer groups that subscriptions made and that have had no member for a day.",
        everyMs: 10 * 60_000,
        tick: groups.forgetOnce,
      },
    ],
    checks: [groupCheck(store)],
    /** Puts `/ws`, and each path of a watch, at a listener of the edge. */
    serveAt(edge: Edge, registry: readonly Operation[]): { upgrades: readonly Upgrade[]; websocket: object } {
      const watches = registry.filter((one) => one.mode === "watch");
      sockets = openSockets({ edge, operation, watches, connect });
      return { upgrades: sockets.upgrades, websocket: socketOptions };
    },
    /** Lets sockets and streams go at once: their clients find another node. */
    async disconnect() {
      sockets?.drain();
      streams.drain();
    },
    redeliver: groups.redeliver,
    settled: groups.settled,
  } satisfies PartShape;
}

function openPubSubOver(
  { store, clock, log, frames }: Host,
  { sources, groups, tenancy }: { sources: Sources; groups: Groups; tenancy: RealtimeNeeds["tenancy"] },
) {
  return openPubSub({
    ...{ store, clock, log, sources, frames },
    async changePlaces(environmentId) {
      if (environmentId === "") return placesOf("", "");
      const place = await tenancy.findEnvironment(environmentId);
      if (!place) throw missing("environment", environmentId);
      return placesOf(environmentId, place.orgId);
    },
    async joinGroup({ environmentId, wanted, startAfter, consumerId, ...reader }) {
      const { group: name, pattern, filterText: filterExpr = "" } = wanted;
      await groups.forSubscription(environmentId, name, { pattern: pattern.text, filterExpr }, startAfter);
      const { id, stop } = await groups.join(environmentId, { name, consumerId, clientId: "" }, reader);
      const settle = (said: GroupVerdict) => groups.ack(environmentId, { name, consumerId: id, ...said });
      return { id, stop, settle };
    },
  });
}
