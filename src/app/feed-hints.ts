import { Type } from "@sinclair/typebox";
import type { Bus } from "../bus/bus.ts";
import { hasOthers, messageReader } from "../bus/channel.ts";
import type { FeedsDeps, LogEntry, LogHint } from "../domain/log/log/feed.ts";

/** What every log's entries have; older nodes may lack what a newer log adds to them. */
const readHint = messageReader(
  Type.Object({
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
  }),
);

/** How nodes hear of each other's commits to one log, on `{log}.{environmentId}`. */
export const feedHints = <Entry extends LogEntry>(
  bus: Bus,
  log: "log" | "topics",
): Pick<FeedsDeps<Entry>, "hasOthers" | "publishHint" | "listen"> => ({
  hasOthers: () => hasOthers(bus),
  publishHint: (hint) => bus.hint(`${log}.${hint.environmentId}`, JSON.stringify(hint)),
  listen: (environmentId, heard) =>
    bus.onHint(`${log}.${environmentId}`, (payload) => heard(readHint(payload) as LogHint<Entry>)),
});
