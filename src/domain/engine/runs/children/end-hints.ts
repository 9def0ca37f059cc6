import type { Bus } from "../../../../bus/bus.ts";
import type { Clock, Instant } from "../../../../kit/clock.ts";
import { endWaitsMax } from "../../../../kit/limits.ts";

interface EndHint {
  from: string;
  runIds: string[];
  /** With `runs.awaited`: how long the other nodes shall report the ends of these runs. */
  forMs?: number;
}

/**
 * Hints between nodes: a node names the runs that its callers wait for, the others answer when they end one
 * of them.
 */
export interface EndHints {
  /** Tells the other nodes that callers here wait for these runs. */
  await(runIds: readonly string[], forMs: number): void;
  /** Of runs that ended here, tells the nodes that wait for them. */
  ended(runIds: readonly string[]): void;
  forgetExpired(): void;
}

const decoder = new TextDecoder();

/** `onEnded` is called with runs that ended at another node. */
export function openEndHints(
  { clock, bus, self }: { clock: Pick<Clock, "now">; bus: Bus; self: string },
  onEnded: (runIds: readonly string[]) => void,
): EndHints {
  /** Runs that callers at other nodes wait for, until when. */
  const awaitedElsewhere = new Map<string, Instant>();
  const hint = (subject: string, content: Omit<EndHint, "from">) => {
    if (bus.kind === "nats" && bus.present().length > 1)
      bus.hint(subject, JSON.stringify({ from: self, ...content } satisfies EndHint));
  };
  const listen = (subject: string, onContent: (content: EndHint) => void) => {
    if (bus.kind !== "nats") return;
    bus.onHint(subject, (payload) => {
      const content = JSON.parse(decoder.decode(payload)) as EndHint;
      if (content.from !== self) onContent(content);
    });
  };
  listen("runs.ended", ({ runIds }) => onEnded(runIds));
  listen("runs.awaited", ({ runIds, forMs = 0 }) => {
    const until = clock.now() + forMs;
    for (const runId of runIds) if (awaitedElsewhere.size < endWaitsMax) awaitedElsewhere.set(runId, until);
  });
  return {
    await: (runIds, forMs) => hint("runs.awaited", { runIds: [...runIds], forMs }),
    ended(runIds) {
      if (awaitedElsewhere.size === 0) return;
      const awaited = runIds.filter((runId) => awaitedElsewhere.delete(runId));
      if (awaited.length > 0) hint("runs.ended", { runIds: awaited });
    },
    forgetExpired() {
      const now = clock.now();
      for (const [runId, until] of awaitedElsewhere) if (until < now) awaitedElsewhere.delete(runId);
    },
  };
}
