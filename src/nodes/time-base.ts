import type { SystemClock } from "../kit/clock.ts";
import { type Metrics, noMetrics } from "../kit/metrics.ts";
import type { Store } from "../store/store.ts";

/** Above this uncertainty of the time a node neither claims nor leads. */
export const clockUncertaintyMsMax = 250;

export type TimeBase = ReturnType<typeof timeBase>;

/** What a computer's clock loses or gains in a second, at most. */
const driftMsPerMs = 0.0002;

const unsureAgainMs = 250;

/** A file's server follows the monotonic clock, and nears the wall clock this much faster or slower. */
const followedShare = 0.5;
/** A wall clock set forward by more, such as from 1970, is followed at once: no time runs back by that. */
const leapMsMin = 5 * 60_000;
/** Within this the two are the same. */
const followedMsMin = 50;
const toldMsMin = 1_000;

/** One time for all nodes: the database's. A database file has this machine's, which never jumps back. */
export function timeBase(
  store: Pick<Store, "isShared" | "now">,
  clock: SystemClock,
  metrics: Metrics = noMetrics,
) {
  let sampled: { at: number; halfTripMs: number } | undefined;
  const uncertaintyMs = () => {
    if (!store.isShared) return 0;
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
  let followedAt: number | undefined;
  const behindMs = () => (store.isShared ? 0 : clock.wall() - clock.local() - clock.offset());
  const follow = () => {
    const at = clock.elapsed();
    const most = Math.min(unsureAgainMs, at - (followedAt ?? at)) * followedShare;
    followedAt = at;
    const wanted = behindMs();
    const slewed = Math.abs(wanted) < followedMsMin ? 0 : Math.max(-most, Math.min(most, wanted));
    const step = wanted > leapMsMin ? wanted : slewed;
    clock.setOffset(clock.offset() + step);
  };
  const sample = async () => {
    if (!store.isShared) {
      follow();
      return 0;
    }
    const askedAt = clock.elapsed();
    const database = await store.now();
    const halfTripMs = (clock.elapsed() - askedAt) / 2;
    const offsetMs = database + halfTripMs - clock.local();
    const knownMs = uncertaintyMs();
    // A slow round trip says less than is known: it is taken only when it contradicts what is known, which
    // then is wrong.
    const agrees = Math.abs(offsetMs - clock.offset()) <= halfTripMs + knownMs;
    if (halfTripMs > knownMs && agrees) return knownMs;
    clock.setOffset(offsetMs);
    sampled = { at: clock.elapsed(), halfTripMs };
    return halfTripMs;
  };
  return {
    /**
     * Sets the clock to the database's time, unless the answer was slow and says less than is known already;
     * answers by how many milliseconds the clock may be wrong then.
     */
    sample,
    /**
     * The tick of loop `cluster.time`: a sample, and another one soon for as long as the time is not known
     * well enough.
     */
    async sampleOnce() {
      const isUnsure = (await sample()) > clockUncertaintyMsMax || Math.abs(behindMs()) >= followedMsMin;
      return isUnsure ? { againInMs: unsureAgainMs } : undefined;
    },
    /**
     * By how many milliseconds the clock may be wrong now; it grows with the age of the last sample. Infinite
     * before the first.
     */
    uncertaintyMs,
    /** How far a server over a file is from its machine's wall clock, once that was set; for `/health`. */
    warnings(): string[] {
      const ms = behindMs();
      if (Math.abs(ms) < toldMsMin) return [];
      const where = ms > 0 ? "behind" : "ahead of";
      return [
        `the server's time is ${Math.round(Math.abs(ms) / 1_000)} s ${where} this machine's clock, and follows it slowly`,
      ];
    },
  };
}
