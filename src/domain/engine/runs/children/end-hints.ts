import { type Static, Type } from "@sinclair/typebox";
import { type Bus, type BusChannel, hasOthers } from "../../../../bus/bus.ts";
import type { Clock, Instant } from "../../../../kit/clock.ts";
import { endWaitsMax } from "../limits.ts";

const EndHint = Type.Object({
  from: Type.String(),
  runIds: Type.Array(Type.String()),
  /** With `runs.awaited`: how long the other nodes shall report the ends of these runs. */
  forMs: Type.Optional(Type.Number()),
});
type EndHint = Static<typeof EndHint>;

/** `onEnded` is called with runs that ended at another node. */
export function openEndHints(
  { clock, bus, self }: { clock: Pick<Clock, "now">; bus: Bus; self: string },
  onEnded: (runIds: readonly string[]) => void,
) {
  /** Runs that callers at other nodes wait for, until when. */
  const awaitedElsewhere = new Map<string, Instant>();
  const runsEnded = bus.channel("runs.ended", EndHint);
  const runsAwaited = bus.channel("runs.awaited", EndHint);
  const hint = (channel: BusChannel<EndHint>, content: Omit<EndHint, "from">) => {
    if (hasOthers(bus)) channel.publish({ from: self, ...content });
  };
  const listen = (channel: BusChannel<EndHint>, onContent: (content: EndHint) => void) => {
    if (bus.kind !== "nats") return;
    channel.listen((content) => {
      if (content.from !== self) onContent(content);
    });
  };
  listen(runsEnded, ({ runIds }) => onEnded(runIds));
  listen(runsAwaited, ({ runIds, forMs = 0 }) => {
    const until = clock.now() + forMs;
    for (const runId of runIds) if (awaitedElsewhere.size < endWaitsMax) awaitedElsewhere.set(runId, until);
  });
  return {
    /** Tells the other nodes that callers here wait for these runs. */
    await: (runIds: readonly string[], forMs: number) => hint(runsAwaited, { runIds: [...runIds], forMs }),
    /** Of runs that ended here, tells the nodes that wait for them. */
    ended(runIds: readonly string[]) {
      if (awaitedElsewhere.size === 0) return;
      const awaited = runIds.filter((runId) => awaitedElsewhere.delete(runId));
      if (awaited.length > 0) hint(runsEnded, { runIds: awaited });
    },
    forgetExpired() {
      const now = clock.now();
      for (const [runId, until] of awaitedElsewhere) if (until < now) awaitedElsewhere.delete(runId);
    },
  };
}
