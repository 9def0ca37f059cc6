import type { Clock } from "./clock.ts";

export interface PacedOptions<Item> {
  clock: Pick<Clock, "after">;
  everyMs: number;
  /** Of those noted between two tells; what comes beyond them is dropped. */
  itemsMax: number;
  tell: (items: Item[]) => void;
}

/** Brings together what is noted often: `tell` gets each item, by its key, at most once per `everyMs`. */
export function paced<Item>({ clock, everyMs, itemsMax, tell }: PacedOptions<Item>) {
  const noted = new Map<string, Item>();
  let isWaiting = false;
  return (key: string, item: Item): void => {
    if (noted.size < itemsMax) noted.set(key, item);
    if (isWaiting) return;
    isWaiting = true;
    clock.after(everyMs, () => {
      isWaiting = false;
      const items = [...noted.values()];
      noted.clear();
      tell(items);
    });
  };
}
