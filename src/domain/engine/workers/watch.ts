import { cachedQuery } from "../../../kit/cached-query.ts";
import { gaugeCountMax, gaugeKeptMs, gaugeWaitMsMax, workerSilenceMsMax } from "../../../kit/limits.ts";
import type { Counter } from "../../../kit/metrics.ts";
import type { Basics } from "../../../store/store.ts";
import * as rows from "./rows.ts";

/**
 * Metrics of workers. Answers the counter of disconnects: only the node that deletes a worker's row counts
 * it.
 */
export function watchWorkers({ store, clock, metrics }: Basics<"store" | "clock" | "metrics">): Counter {
  const connected = metrics.gauge({
    name: "svc_workers_connected",
    help: "Workers of the whole installation that were heard of in the last 90 seconds.",
  })();
  const countAlive = cachedQuery({
    clock,
    keptMs: gaugeKeptMs,
    waitMsMax: gaugeWaitMsMax,
    query: () => rows.countAlive(store, clock.now() - workerSilenceMsMax, gaugeCountMax),
  });
  metrics.beforeReading(async () => connected.set(await countAlive()));
  return metrics.counter({
    name: "svc_worker_disconnects_total",
    help: "Streams of workers that ended, and workers forgotten after 90 seconds without a heartbeat; counted by the node that saw it.",
  })();
}
