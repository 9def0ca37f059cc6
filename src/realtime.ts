import type { Feeds } from "./domain/log/feed.ts";
import { openPast } from "./domain/log/past.ts";
import type { Frames } from "./domain/pubsub/frames.ts";
import { subscribeOperation } from "./domain/pubsub/operations.ts";
import { openPubSub, type PubSub } from "./domain/pubsub/service.ts";
import { openStreams } from "./domain/pubsub/stream.ts";
import { openTalks } from "./domain/pubsub/talk.ts";
import type { Upgrade } from "./edge/http.ts";
import type { Edge } from "./edge/perform.ts";
import { openSockets, type Sockets, socketOptions } from "./edge/sockets.ts";
import { openStanding, type Standing } from "./edge/standing.ts";
import type { Clock } from "./kit/clock.ts";
import { standingLookMs } from "./kit/limits.ts";
import type { Log } from "./kit/log.ts";
import type { LoopOptions } from "./kit/loop.ts";
import type { Metrics } from "./kit/metrics.ts";
import type { Operation } from "./kit/operation.ts";
import type { Store } from "./store/store.ts";

export interface Realtime {
  pubsub: PubSub;
  /** Sockets, streams and held polls, asked again and again whether their callers may go on. */
  standing: Standing;
  operations: readonly Operation[];
  loops: readonly LoopOptions[];
  /** `/ws`, for the listener of the edge that it stands at. */
  standAt(edge: Edge): { upgrades: readonly Upgrade[]; websocket: object };
  /** Sockets and streams are let go at once: their clients find another node. */
  drain(): void;
}

export interface RealtimeDeps {
  store: Store;
  clock: Clock;
  log: Log;
  feeds: Feeds;
  frames: Frames;
  metrics: Metrics;
  /** Everybody is let in: a page of any site may open a socket. */
  isOpenToAll: boolean;
}

/** Subscriptions put together: one core, sockets and streams before it. */
export function openRealtime(deps: RealtimeDeps): Realtime {
  const { log, frames } = deps;
  const pubsub = openPubSub({ ...deps, past: openPast(deps.store) });
  const streams = openStreams(pubsub);
  const operation = subscribeOperation(streams);
  const standing = openStanding(deps);
  let sockets: Sockets | undefined;
  const help = "Open WebSockets at this node.";
  const open = deps.metrics.gauge({ name: "svc_websockets_open", help })();
  deps.metrics.beforeReading(async () => open.set(sockets?.size() ?? 0));
  const connect = openTalks({
    pubsub,
    log,
    publish: (channelId, text) => sockets?.publish(channelId, text),
  });
  return {
    pubsub,
    standing,
    operations: [operation],
    loops: [
      { name: "pubsub.interest", everyMs: 1_000, tick: frames.tellOnce },
      { name: "pubsub.runs", everyMs: 1_000, tick: pubsub.lookOnce },
      { name: "edge.standing", everyMs: standingLookMs, tick: standing.lookOnce },
    ],
    standAt(edge) {
      sockets = openSockets({ edge, operation, connect, checksOrigin: !deps.isOpenToAll });
      return { upgrades: [sockets.upgrade], websocket: socketOptions };
    },
    drain() {
      sockets?.drain();
      streams.drain();
    },
  };
}
