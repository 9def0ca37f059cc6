import type { Clock } from "../kit/clock.ts";

/** Writes to sockets that a node aims at: each costs a call of the kernel, however little it carries. */
const writesPerSecond = 4_000;
/** The longest that a text waits for others to go with it. */
export const gatherMsMax = 50;
/** With this much gathered a write is not made cheaper by waiting. */
const gatherCharsMax = 256 * 1024;

export interface PublishPaceDeps {
  clock: Pick<Clock, "elapsed" | "after">;
  /** Writes the text to each connection that has joined the channel. */
  send: (channelId: string, text: string) => void;
  /** Connections that have joined the channel. */
  readersOf: (channelId: string) => number;
}

export interface PublishPace {
  publish(channelId: string, text: string): void;
  /**
   * Sends what has gathered. Called before a connection joins or leaves a channel: otherwise a new reader would get
   * what its replay had already, and a leaving one would miss the end.
   */
  flush(): void;
}

/**
 * Lets texts for many connections gather for a few milliseconds, so that a connection gets them in one write. A text
 * goes at once when nothing was sent shortly before, or when few connections read. Texts keep their order, over all channels.
 */
export function openPublishPace({ clock, send, readersOf }: PublishPaceDeps): PublishPace {
  let gathered: { channelId: string; text: string }[] = [];
  let chars = 0;
  /** Until then texts gather, by the monotonic clock. */
  let restsUntil = 0;
  let cancel: (() => void) | undefined;

  function flush(): void {
    cancel?.();
    cancel = undefined;
    if (gathered.length === 0) return;
    const texts = gathered;
    gathered = [];
    chars = 0;
    for (const { channelId, text } of texts) send(channelId, text);
    const channels = new Set(texts.map(({ channelId }) => channelId));
    const writes = [...channels].reduce((sum, channelId) => sum + readersOf(channelId), 0);
    restsUntil = clock.elapsed() + Math.min(gatherMsMax, (writes / writesPerSecond) * 1_000);
  }

  return {
    flush,

    publish(channelId, text) {
      gathered.push({ channelId, text });
      chars += text.length;
      if (cancel && chars < gatherCharsMax) return;
      const restMs = restsUntil - clock.elapsed();
      // Timers have a resolution of a millisecond.
      if (restMs < 1 || chars >= gatherCharsMax) flush();
      else cancel = clock.after(restMs, flush);
    },
  };
}
