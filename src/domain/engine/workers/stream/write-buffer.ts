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
