import { type Metrics, secondsBuckets } from "../kit/metrics.ts";
import type { Bus } from "./bus.ts";

/** The metrics of every bus, in-process or NATS. */
export function watchBus(metrics: Metrics, connected: Bus["connected"]) {
  const hints = metrics.counter({
    name: "svc_bus_hints_total",
    help: "Hints that this node sent (out) and that reached a listener of it (in).",
    labels: ["direction"],
  });
  const state = metrics.gauge({
    name: "svc_bus_connected",
    help: "1 while the bus can be reached; a node that is alone always reaches its own.",
  })();
  metrics.beforeReading(() => state.set(connected() ? 1 : 0));
  return {
    sent: hints("out"),
    received: hints("in"),
    dropped: metrics.counter({
      name: "svc_bus_hints_dropped_total",
      help: "Hints that were not sent because the bus could not be reached.",
    })(),
    lag: metrics.histogram({
      name: "svc_bus_hint_lag_seconds",
      help: "From another node's sending of a heartbeat to its arrival here, by the clocks of both.",
      buckets: secondsBuckets,
    })(),
  };
}
