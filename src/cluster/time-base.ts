import type { SystemClock } from "../kit/clock.ts";
import { type Metrics, noMetrics } from "../kit/metrics.ts";
import type { Store } from "../store/store.ts";

export interface TimeBase {
  /** Sets the clock to the database's time; answers by how many milliseconds that may be wrong: half a round trip. */
  sample(): Promise<number>;
}

/** One time for all nodes, the database's (design: one time base). A file has this machine's time already. */
export function timeBase(
  store: Pick<Store, "engine" | "now">,
  clock: SystemClock,
  metrics: Metrics = noMetrics,
): TimeBase {
  const offset = metrics.gauge({
    name: "svc_clock_offset_seconds",
    help: "What is added to this machine's time to get the database's.",
  })();
  const uncertainty = metrics.gauge({
    name: "svc_clock_uncertainty_seconds",
    help: "By how much the offset may be wrong.",
  })();
  const told = (halfTripMs: number) => {
    offset.set(clock.offset() / 1000);
    uncertainty.set(halfTripMs / 1000);
    return halfTripMs;
  };
  return {
    async sample() {
      if (store.engine === "libsql") return told(0);
      const askedAt = clock.elapsed();
      const database = await store.now();
      const halfTrip = (clock.elapsed() - askedAt) / 2;
      clock.setOffset(database + halfTrip - clock.local());
      return told(halfTrip);
    },
  };
}
