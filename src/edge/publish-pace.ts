import type { Caller } from "../kit/caller.ts";
import type { Clock } from "../kit/clock.ts";
import { Fault } from "../kit/fault.ts";
import { tokenBuckets } from "../kit/token-buckets.ts";

/** How long texts of a kind gather. */
interface Gathering {
  /** Writes to sockets that a node aims at: each costs a call of the kernel, however little it carries. */
  writesPerSecond: number;
  /** The longest that a text waits for others to go with it. */
  msMax: number;
}

export const gatherings = {
  /** Events and messages of users. */
  data: { writesPerSecond: 10_000, msMax: 30 },
  /** Frames of `system.*`, which lists and dashboards follow. */
  hints: { writesPerSecond: 1_500, msMax: 130 },
} satisfies Record<string, Gathering>;

/** With this much gathered a write is not made cheaper by waiting. */
const gatherCharsMax = 256 * 1024;

export interface PublishPaceDeps {
  clock: Pick<Clock, "elapsed" | "after">;
  /** Writes the text to each connection that has joined the channel. */
  send: (channelId: string, text: string) => void;
  /** Connections that have joined the channel. */
  readersOf: (channelId: string) => number;
}

export type PublishPace = ReturnType<typeof openPublishPace>;

/**
 * Lets texts for many connections gather for a few milliseconds, so that a connection gets them in one write.
 * A text goes at once if none was sent just before, or few connections read. Texts always keep their order.
 */
export function openPublishPace({ clock, send, readersOf }: PublishPaceDeps) {
  let gathered: { channelId: string; text: string }[] = [];
  let chars = 0;
  /** Of the last flush: when it was, by the monotonic clock, and how many writes it took. */
  let last = { at: Number.NEGATIVE_INFINITY, writes: 0 };
  let due: { at: number; cancel: () => void } | undefined;

  function flush(): void {
    due?.cancel();
    due = undefined;
    if (gathered.length === 0) return;
    const texts = gathered;
    gathered = [];
    chars = 0;
    for (const { channelId, text } of texts) send(channelId, text);
    const channels = new Set(texts.map(({ channelId }) => channelId));
    const writes = [...channels].reduce((sum, channelId) => sum + readersOf(channelId), 0);
    last = { at: clock.elapsed(), writes };
  }

  return {
    /**
     * Sends what has gathered. Called before a connection joins or leaves a channel: otherwise a new reader
     * would get what its replay had already, and a leaving one would miss the end.
     */
    flush,

    publish(channelId: string, text: string, kind: keyof typeof gatherings) {
      gathered.push({ channelId, text });
      chars += text.length;
      const { writesPerSecond, msMax } = gatherings[kind];
      const at = last.at + Math.min(msMax, (last.writes / writesPerSecond) * 1_000);
      const waitMs = at - clock.elapsed();
      // Timers have a resolution of a millisecond.
      if (waitMs < 1 || chars >= gatherCharsMax) flush();
      else if (!due || at < due.at) {
        due?.cancel();
        due = { at, cancel: clock.after(waitMs, flush) };
      }
    },
  };
}

/** Keys whose requests one node counts at a time. */
const rateLimitedKeysMax = 10_000;

export interface RateLimitOptions {
  clock: Pick<Clock, "elapsed">;
  /** Requests a second of one key or user, at this node. */
  perSecond: number;
  burst: number;
}

/** Throws `resource_exhausted` for a caller that asks more often than its rate and burst allow. */
export function rateLimit(options: RateLimitOptions): (caller: Caller) => void {
  const take = tokenBuckets({ ...options, holdersMax: rateLimitedKeysMax });
  return ({ id }) => {
    if (id === "") return;
    const seconds = take(id);
    if (seconds > 0)
      throw new Fault("resource_exhausted", "too many requests of this key, try again later", {
        headers: { "Retry-After": String(seconds) },
      });
  };
}
