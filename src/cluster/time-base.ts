import type { SystemClock } from "../kit/clock.ts";
import { clockUncertaintyMsMax } from "../kit/limits.ts";
import { type Metrics, noMetrics } from "../kit/metrics.ts";
import type { Store } from "../store/store.ts";

export interface TimeBase {
  /** Sets the clock to the database's time; answers by how many milliseconds that may be wrong: half a round trip. */
  sample(): Promise<number>;
  /** The tick of loop `cluster.time`: one that was held up on its way says little, and is taken again soon. */
  sampleOnce(): Promise<{ againInMs?: number }>;
  /** By how many milliseconds the clock may be wrong now; it grows with the age of the last sample. Infinite before the first. */
  uncertaintyMs(): number;
}

/** Between a sample too vague to claim or lead by, and the next. */
const vagueMs = 100;
/** What a computer's clock loses or gains in a second, at most. */
const driftMsPerMs = 0.0002;

/** One time for all nodes, the database's (design: one time base). A file has this machine's time already. */
export function timeBase(
  store: Pick<Store, "engine" | "now">,
  clock: SystemClock,
  metrics: Metrics = noMetrics,
): TimeBase {
  let sampled: { at: number; halfTripMs: number } | undefined;
  const uncertaintyMs = () => {
    if (store.engine === "libsql") return 0;
    if (!sampled) return Number.POSITIVE_INFINITY;
    return sampled.halfTripMs + (clock.elapsed() - sampled.at) * driftMsPerMs;
  };
  const offset = metrics.gauge({
    name: "svc_clock_offset_seconds",
    help: "What is added to this machine's time to get the database's.",
  })();
  const uncertainty = metrics.gauge({
    name: "svc_clock_uncertainty_seconds",
    help: "By how much the clock may be wrong now.",
  })();
  metrics.beforeReading(() => {
    offset.set(clock.offset() / 1000);
    uncertainty.set(uncertaintyMs() / 1000);
  });
  async function sample(): Promise<number> {
    if (store.engine === "libsql") return 0;
    const askedAt = clock.elapsed();
    const database = await store.now();
    const halfTrip = (clock.elapsed() - askedAt) / 2;
    clock.setOffset(database + halfTrip - clock.local());
    sampled = { at: clock.elapsed(), halfTripMs: halfTrip };
    return halfTrip;
  }
  return {
    sample,
    sampleOnce: async () => ((await sample()) > clockUncertaintyMsMax ? { againInMs: vagueMs } : {}),
    uncertaintyMs,
  };
}
