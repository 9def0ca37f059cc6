import type { Clock } from "../kit/clock.ts";
import { gaugeKeptMs, gaugeWaitMsMax } from "../kit/limits.ts";
import { type Metrics, secondsBuckets } from "../kit/metrics.ts";
import { cachedQuery } from "../kit/ttl-cache.ts";
import type { Pool, Pooled } from "./pool.ts";
import { codeOf } from "./postgres-errors.ts";

const labels = ["pool"] as const;

/** How long callers of a pool waited; for `PoolOptions.onWaited`. */
export function watchWaits(metrics: Metrics, name: string): ((ms: number) => void) | undefined {
  if (!metrics.on) return undefined;
  const seconds = metrics.histogram({
    name: "svc_store_pool_wait_seconds",
    help: "How long callers waited that found no database connection free.",
    labels,
    buckets: secondsBuckets,
  })(name);
  return (ms) => seconds.observe(ms / 1000);
}

/** A pool as it stands, read when somebody asks. */
export function watchPool(
  metrics: Metrics,
  name: string,
  pool: Pick<Pool<Pooled>, "size" | "inUse" | "waiting">,
): void {
  const gauge = (what: string, help: string) =>
    metrics.gauge({ name: `svc_store_pool_${what}`, help, labels })(name);
  const size = gauge("connections", "Database connections that are open or being opened.");
  const inUse = gauge("in_use", "Database connections that somebody uses.");
  const waiting = gauge("waiting", "Callers that wait for a database connection.");
  metrics.beforeReading(() => {
    size.set(pool.size());
    inUse.set(pool.inUse());
    waiting.set(pool.waiting());
  });
}

/** Counts what the server undid or refused because somebody else held the rows. */
export function watchConflicts(metrics: Metrics): (error: unknown) => void {
  const conflicts = metrics.counter({
    name: "svc_store_conflicts_total",
    help: "Transactions that lost against another one; deadlocks and serialization failures are run again.",
    labels: ["kind"],
  });
  const deadlock = conflicts("deadlock");
  const serialization = conflicts("serialization");
  const lockTimeout = conflicts("lock_timeout");
  return (error) => {
    const code = codeOf(error);
    if (code === "40P01") deadlock.add();
    else if (code === "40001") serialization.add();
    else if (code === "55P03") lockTimeout.add();
  };
}

/** Sessions of ours that wait for a lock. Says nothing while the database does not answer at once. */
export function watchLockWaiters(metrics: Metrics, clock: Clock, ask: () => Promise<number>): void {
  const waiters = metrics.gauge({
    name: "svc_store_lock_waiters",
    help: "Sessions of the whole installation that wait for a lock in the database.",
  })();
  const asked = cachedQuery({ clock, keptMs: gaugeKeptMs, waitMsMax: gaugeWaitMsMax, query: ask });
  metrics.beforeReading(async () => waiters.set(await asked()));
}
