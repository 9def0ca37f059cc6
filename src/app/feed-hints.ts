import { Type } from "@sinclair/typebox";
import { hasOthers } from "../bus/bus.ts";
import type { FeedsDeps, LogEntry, LogHint } from "../domain/log/core/feed-reader.ts";
import type { Host } from "./part.ts";

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
/** A follower repeats that at the first hint after five seconds, so that a busy log always comes with its events. */
const repeatMs = followedMs / 2;
/** Logs whose followers on other nodes are known; of others a hint names the head alone. */
const followedMax = 10_000;

/**
 * How nodes hear of each other's commits to one log, on `{log}.{environmentId}`. Most logs have no reader on any other node, and
 * writing the events out would be a third of what a commit costs its sender: a hint has none until a reader asks for them.
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
        // A node's own hints come back to it. A feed needs them that was still being opened at the commit; no other node has to know.
        if (from !== nodeId && clock.elapsed() - saidAt >= repeatMs) {
          saidAt = clock.elapsed();
          followed.publish({ from: nodeId, log, environmentId });
        }
        onHint(hint);
      });
    },
  };
}
