import { Type } from "@sinclair/typebox";
import { hasOthers } from "../bus/bus.ts";
import type { FeedsDeps, LogEntry, LogHint } from "../domain/log/log/feed-reader.ts";
import type { Host } from "./part.ts";

/** What every log's entries have; older nodes may lack what a newer log adds to them. */
const AnyLogHint = Type.Object({
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

/** The node `from` follows this log, and a hint came to it without events. */
const FollowedLog = Type.Object({ from: Type.String(), log: Type.String(), environmentId: Type.String() });

/** For so long other nodes send it the events themselves. The first hint behind that has none, so that it says so again. */
const followedMs = 10_000;
/** Hints of large commits never have events: it says so no more often than this. */
const repeatMs = followedMs / 2;
/** Logs whose followers on other nodes are known; of others a hint names the head alone. */
const followedMax = 1_000;

/**
 * How nodes hear of each other's commits to one log, on `{log}.{environmentId}`. Events cost their sender more than a whole
 * emit, and most logs have no reader on any other node: a hint without them is the rule, until a reader asks for them.
 */
export function feedHints<Entry extends LogEntry>(
  { bus, clock, nodeId }: Pick<Host, "bus" | "clock" | "nodeId">,
  log: "log" | "topics",
): Pick<FeedsDeps<Entry>, "hasOthers" | "hasReadersElsewhere" | "publishHint" | "listen"> {
  const hints = bus.channels(log, Type.Unsafe<LogHint<Entry>>(AnyLogHint));
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
    publishHint: (hint) => hints.publish(hint.environmentId, hint),
    listen(environmentId, onHint) {
      let askedAt = Number.NEGATIVE_INFINITY;
      return hints.listen(environmentId, (hint) => {
        if (hint.events === undefined && clock.elapsed() - askedAt >= repeatMs) {
          askedAt = clock.elapsed();
          followed.publish({ from: nodeId, log, environmentId });
        }
        onHint(hint);
      });
    },
  };
}
