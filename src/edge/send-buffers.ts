import type { Clock } from "../kit/clock.ts";

/** What was sent and not read by the other ends of sockets may take so much of a node, all together and for one key or user. */
export const unreadBytesMax = 256 * 1024 * 1024;
export const unreadOfCallerBytesMax = 64 * 1024 * 1024;
/** After so much was sent the buffers are looked at. */
const lookEveryBytes = 1024 * 1024;

/** A connection whose other end may be slow. */
export interface BufferedConnection {
  /** Key or user. */
  readonly holder: string;
  unread(): number;
  /** At once: what waits for it is let go. */
  cut(): void;
}

export interface SendBuffers {
  add(reader: BufferedConnection): void;
  remove(reader: BufferedConnection): void;
  /** So much was handed to readers. */
  sent(bytes: number): void;
}

export interface SendBufferOptions {
  clock: Pick<Clock, "after">;
  bytesMax?: number;
  callerBytesMax?: number;
}

/** Cuts the slowest readers where there is too much that they have not read. Each has a bound of its own beside this one. */
export function watchSendBuffers({
  clock,
  bytesMax = unreadBytesMax,
  callerBytesMax = unreadOfCallerBytesMax,
}: SendBufferOptions): SendBuffers {
  const readers = new Set<BufferedConnection>();
  let sentSince = 0;
  let looking = false;

  function cutDownTo(most: number, list: { reader: BufferedConnection; bytes: number }[]): void {
    let total = list.reduce((sum, { bytes }) => sum + bytes, 0);
    if (total <= most) return;
    list.sort((one, other) => other.bytes - one.bytes);
    for (const { reader, bytes } of list) {
      if (total <= most) return;
      total -= bytes;
      readers.delete(reader);
      reader.cut();
    }
  }

  function look(): void {
    looking = false;
    sentSince = 0;
    const slow = [...readers].flatMap((reader) => {
      const bytes = reader.unread();
      return bytes > 0 ? [{ reader, bytes }] : [];
    });
    for (const list of Map.groupBy(slow, ({ reader }) => reader.holder).values())
      cutDownTo(callerBytesMax, list);
    cutDownTo(
      bytesMax,
      slow.filter(({ reader }) => readers.has(reader)),
    );
  }

  return {
    add: (reader) => void readers.add(reader),
    remove: (reader) => void readers.delete(reader),
    sent(bytes) {
      sentSince += bytes;
      if (looking || sentSince < lookEveryBytes) return;
      looking = true;
      // The runtime hands over what was published at the end of its turn.
      clock.after(0, look);
    },
  };
}
