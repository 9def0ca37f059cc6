import { Type } from "@sinclair/typebox";
import { type Bus, hasOthers } from "../bus/bus.ts";
import type { FeedsDeps, LogEntry, LogHint } from "../domain/log/log/feed-reader.ts";

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

/** How nodes hear of each other's commits to one log, on `{log}.{environmentId}`. */
export function feedHints<Entry extends LogEntry>(
  bus: Bus,
  log: "log" | "topics",
): Pick<FeedsDeps<Entry>, "hasOthers" | "publishHint" | "listen"> {
  const hints = bus.channels(log, Type.Unsafe<LogHint<Entry>>(AnyLogHint));
  return {
    hasOthers: () => hasOthers(bus),
    publishHint: (hint) => hints.publish(hint.environmentId, hint),
    listen: hints.listen,
  };
}
