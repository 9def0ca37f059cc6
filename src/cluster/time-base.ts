import type { SystemClock } from "../kit/clock.ts";
import type { Store } from "../store/store.ts";

export interface TimeBase {
  /** Sets the clock to the database's time; answers by how many milliseconds that may be wrong: half a round trip. */
  sample(): Promise<number>;
}

/** One time for all nodes, the database's (design: one time base). A file has this machine's time already. */
export function timeBase(store: Pick<Store, "engine" | "now">, clock: SystemClock): TimeBase {
  return {
    async sample() {
      if (store.engine === "libsql") return 0;
      const askedAt = clock.elapsed();
      const database = await store.now();
      const halfTrip = (clock.elapsed() - askedAt) / 2;
      clock.setOffset(database + halfTrip - clock.local());
      return halfTrip;
    },
  };
}
