import type { Clock } from "./clock.ts";
import type { Combiner } from "./combine.ts";
import type { Loop } from "./loop.ts";
import { type Metrics, noMetrics, secondsBuckets, sizeBuckets } from "./metrics.ts";
import { noTracer, type Tracer } from "./trace.ts";

/** Where a part reports its work: metrics and traces. */
export interface Watch {
  metrics: Metrics;
  tracer: Tracer;
}

export const noWatch: Watch = { metrics: noMetrics, tracer: noTracer };

/** Metrics of a loop's progress and failures, filled at each reading. */
export function watchLoop(metrics: Metrics, loop: Loop): void {
  const progress = metrics.gauge({
    name: "svc_loop_last_progress_timestamp_seconds",
    help: "When a background loop last ended a round without an error.",
    labels: ["loop"],
  })(loop.name);
  const failures = metrics.counter({
    name: "svc_loop_failures_total",
    help: "Rounds of a background loop that failed; each is tried again.",
    labels: ["loop"],
  })(loop.name);
  const failing = metrics.gauge({
    name: "svc_loop_failed_rounds",
    help: "Rounds of a background loop that failed since its last good one; 10 make `/health` degraded.",
    labels: ["loop"],
  })(loop.name);
  let counted = 0;
  metrics.beforeReading(() => {
    const at = loop.progressAt();
    failing.set(loop.failing()?.rounds ?? 0);
    progress.set(at === undefined ? undefined : at / 1000);
    failures.add(loop.failures() - counted);
    counted = loop.failures();
  });
}

/** Called when a flush begins; the function it returns is called when the flush ends. */
export type WatchFlush = (itemCount: number) => (failed: boolean) => void;

export function watchFlushes({ metrics, tracer }: Watch, clock: Pick<Clock, "elapsed">, name: string) {
  const labels = ["flush"] as const;
  const items = metrics.histogram({
    name: "svc_flush_items",
    help: "How many callers' items one flush carried.",
    labels,
    buckets: sizeBuckets,
  })(name);
  const seconds = metrics.histogram({
    name: "svc_flush_duration_seconds",
    help: "How long a flush took, to its commit or its failure.",
    labels,
    buckets: secondsBuckets,
  })(name);
  const spanName = `flush ${name}`;
  const watch: WatchFlush = (itemCount) => {
    const startedAt = clock.elapsed();
    const span = tracer.start(spanName, "client");
    span.set("svc.flush.items", itemCount);
    return (failed) => {
      items.observe(itemCount);
      seconds.observe((clock.elapsed() - startedAt) / 1000);
      span.end(failed ? "failed" : undefined);
    };
  };
  return metrics.on || tracer.on ? watch : undefined;
}

/** Metrics of a combiner's waiting and refused items, filled at each reading. */
export function watchWaiting(
  metrics: Metrics,
  { name, counters }: Pick<Combiner<never, unknown>, "name" | "counters">,
): void {
  const labels = ["flush"] as const;
  const waiting = metrics.gauge({
    name: "svc_flush_waiting",
    help: "Weight of what waits for a flush.",
    labels,
  })(name);
  const refused = metrics.counter({
    name: "svc_flush_refused_total",
    help: "Items turned away because too much waited.",
    labels,
  })(name);
  let counted = 0;
  metrics.beforeReading(() => {
    const now = counters();
    waiting.set(now.waiting);
    refused.add(now.refused - counted);
    counted = now.refused;
  });
}
