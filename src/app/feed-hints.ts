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
