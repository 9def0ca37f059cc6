import type { Clock } from "./clock.ts";

export interface PacedOptions<Item> {
  clock: Pick<Clock, "after">;
  everyMs: number;
  /** Of those noted between two tells; what comes beyond them is dropped. */
  itemsMax: number;
  /** The next tell waits until the one before is over; it never rejects. */
  tell: (items: Item[]) => Promise<void> | void;
}

/** Brings together what is noted often: `tell` gets each item, by its key, at most once per `everyMs`. */
export function paced<Item>({ clock, everyMs, itemsMax, tell }: PacedOptions<Item>) {
  const noted = new Map<string, Item>();
  let isWaiting = false;

  function tellLater(): void {
    isWaiting = true;
    clock.after(everyMs, () => {
      const items = [...noted.values()];
      noted.clear();
      const told = tell(items);
      if (told) void told.then(goOn);
      else goOn();
    });
  }

  function goOn(): void {
    isWaiting = false;
    if (noted.size > 0) tellLater();
  }

  return (key: string, item: Item): void => {
    if (noted.size < itemsMax) noted.set(key, item);
    if (!isWaiting) tellLater();
  };
}

/** The same, but at once after a pause: what comes within `everyMs` is sent at its end, the last alone. */
export function pacedAtOnce<Item>({
  clock,
  everyMs,
  itemsMax,
  tell,
}: Omit<PacedOptions<Item>, "tell"> & { tell: (item: Item) => void }) {
  /** What came for a key since it was last sent. */
  const resting = new Map<string, Item | undefined>();

  function tellNow(key: string, item: Item): void {
    resting.set(key, undefined);
    clock.after(everyMs, () => {
      const later = resting.get(key);
      if (later === undefined) resting.delete(key);
      else tellNow(key, later);
    });
    tell(item);
  }

  return (key: string, item: Item): void => {
    if (resting.has(key)) resting.set(key, item);
    else if (resting.size < itemsMax) tellNow(key, item);
  };
}
