import { streamWaitingMax } from "./limits.ts";

/** Limit for the messages of one worker that are not stored yet, by the estimate of `weightOf`. */
export const streamWaitingBytesMax = 16 * 1024 * 1024;
const bytesAValue = 16;

/**
 * An estimate of the memory that a value takes: its characters, and `bytesAValue` each. Stops counting at
 * `most`.
 */
export function weightOf(value: unknown, most: number): number {
  let weight = 0;
  const left: unknown[] = [value];
  while (left.length > 0 && weight < most) {
    const one = left.pop();
    weight += bytesAValue;
    if (typeof one === "string" || one instanceof Uint8Array) weight += one.length;
    else if (Array.isArray(one)) for (const item of one) left.push(item);
    else if (typeof one === "object" && one !== null)
      for (const [key, item] of Object.entries(one)) {
        weight += key.length;
        left.push(item);
      }
  }
  return weight;
}

export function openIntake() {
  const weights = new Map<object, number>();
  let bytes = 0;
  let closed = false;
  let whenReady = () => {};
  const isFull = () => !closed && (weights.size >= streamWaitingMax || bytes >= streamWaitingBytesMax);

  return {
    add(message: object) {
      const weight = weightOf(message, streamWaitingBytesMax);
      weights.set(message, weight);
      bytes += weight;
    },
    remove(messages: readonly object[]) {
      for (const message of messages) {
        bytes -= weights.get(message) ?? 0;
        weights.delete(message);
      }
      if (!isFull()) whenReady();
    },
    /** Resolves when there is room for the next message. */
    async ready() {
      while (isFull())
        await new Promise<void>((ready) => {
          whenReady = ready;
        });
    },
    /** Resolves `ready` at once from now on. */
    close() {
      closed = true;
      whenReady();
    },
  };
}

/** Messages that wait to be written to one stream: bounded, in order, for one reader. */
export function openWriteBuffer<Item>(max: number) {
  let items: Item[] = [];
  let ended: { error: unknown } | undefined;
  let wake = () => {};
  return {
    /** False when the buffer is full or ended: the item is dropped. */
    push(item: Item): boolean {
      if (ended || items.length >= max) return false;
      items.push(item);
      wake();
      return true;
    },
    room: () => (ended ? 0 : max - items.length),
    /** The reader gets the items that are left, then the end or the error. With `now` they are dropped. */
    end(error?: unknown, now?: "now") {
      ended ??= { error };
      if (now) items = [];
      wake();
    },
    async *read(): AsyncGenerator<Item> {
      for (;;) {
        for (let item = items.shift(); item !== undefined; item = items.shift()) yield item;
        if (ended) {
          if (ended.error !== undefined) throw ended.error;
          return;
        }
        await new Promise<void>((woken) => {
          wake = woken;
        });
      }
    },
  };
}
