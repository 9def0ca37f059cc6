/** What waits to be written to one stream: bounded, in order, read by one. */
export interface WriteBuffer<Item> {
  /** False when it is full or closed: the item is not taken. */
  push(item: Item): boolean;
  room(): number;
  /** The reader sees what is still in it and then the end, or the error; `now` drops what is in it. */
  end(error?: unknown, now?: "now"): void;
  read(): AsyncGenerator<Item>;
}

export function openWriteBuffer<Item>(max: number): WriteBuffer<Item> {
  let items: Item[] = [];
  let ended: { error: unknown } | undefined;
  let wake = () => {};
  return {
    push(item) {
      if (ended || items.length >= max) return false;
      items.push(item);
      wake();
      return true;
    },
    room: () => (ended ? 0 : max - items.length),
    end(error, now) {
      ended ??= { error };
      if (now) items = [];
      wake();
    },
    async *read() {
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
