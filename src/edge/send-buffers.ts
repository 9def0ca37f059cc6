import type { Clock } from "../kit/clock.ts";

/** Bytes sent to sockets and not yet read by the clients: of a node in all, and for one key or user. */
export const unreadBytesMax = 256 * 1024 * 1024;
export const unreadOfCallerBytesMax = 64 * 1024 * 1024;
/** The buffers are measured each time this much was sent. */
const lookEveryBytes = 1024 * 1024;

/** A connection whose client may read slowly. */
export interface BufferedConnection {
  /** Key or user. */
  readonly holder: string;
  unread(): number;
  /** Closes it at once and drops its buffer. */
  cut(): void;
}

export type SendBuffers = ReturnType<typeof watchSendBuffers>;

export interface SendBufferOptions {
  clock: Pick<Clock, "after">;
  bytesMax?: number;
  callerBytesMax?: number;
}

/**
 * Cuts the slowest readers when unread bytes exceed a limit. Each connection has a limit of its own besides.
 */
export function watchSendBuffers({
  clock,
  bytesMax = unreadBytesMax,
  callerBytesMax = unreadOfCallerBytesMax,
}: SendBufferOptions) {
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
    add: (reader: BufferedConnection) => void readers.add(reader),
    remove: (reader: BufferedConnection) => void readers.delete(reader),
    /** Notes that this much was sent. */
    sent(bytes: number) {
      sentSince += bytes;
      if (looking || sentSince < lookEveryBytes) return;
      looking = true;
      // The runtime fills the sockets' buffers at the end of the turn; measured earlier they look empty.
      clock.after(0, look);
    },
  };
}
