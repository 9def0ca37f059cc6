import { gaugeKeptMs, gaugeWaitMsMax } from "../../../kit/limits.ts";
import { sql } from "../../../kit/sql.ts";
import { cachedQuery } from "../../../kit/ttl-cache.ts";
import type { Basics, Store } from "../../../store/store.ts";
import { projectionModes, projectionStatuses } from "./rules.ts";

interface LagRow {
  mode: string;
  status: string;
  count: number;
  lag: number;
}

/** Who reads projections at this node. */
export function meterReaders(
  { metrics }: Basics<"metrics">,
  sizes: { waits: () => number; streams: () => number },
): void {
  const waits = metrics.gauge({
    name: "svc_projection_waits",
    help: "Callers that wait for projections at this node.",
  })();
  const streams = metrics.gauge({
    name: "svc_projection_streams_open",
    help: "Streams of projection runners at this node.",
  })();
  metrics.beforeReading(async () => {
    waits.set(sizes.waits());
    streams.set(sizes.streams());
  });
}

/** Metrics of projections, by mode and status, never by name. */
export function meterProjections({
  store,
  clock,
  metrics,
}: Basics<"clock" | "metrics"> & { store: Pick<Store, "all"> }) {
  const count = metrics.gauge({
    name: "svc_projections",
    help: "Registered projections.",
    labels: ["mode", "status"],
  });
  const lag = metrics.gauge({
    name: "svc_projection_lag_positions",
    help: "How many positions the projection that is farthest behind has to go to the end of its log; one that is paused or in error does not count.",
    labels: ["mode"],
  });
  const delivered = metrics.counter({
    name: "svc_projection_events_delivered_total",
    help: "Events handed to projection runners.",
  })();
  const saves = metrics.counter({
    name: "svc_projection_saves_total",
    help: "Saves and acknowledgements of projection runners.",
  })();
  const folded = metrics.counter({
    name: "svc_projection_events_folded_total",
    help: "Events that the server folded into SQL projections.",
  })();
  const query = cachedQuery({
    clock,
    keptMs: gaugeKeptMs,
    waitMsMax: gaugeWaitMsMax,
    query: () =>
      store.all<LagRow>(sql`SELECT p.mode, p.status, count(*) AS count, max(h.position - g.position) AS lag
        FROM projections p JOIN projection_generations g ON g.environment_id = p.environment_id AND g.name = p.name
            AND g.generation = p.generation
          JOIN heads h ON h.environment_id = p.environment_id
        GROUP BY p.mode, p.status`),
  });
  metrics.beforeReading(async () => {
    const rows = await query();
    for (const mode of projectionModes) {
      const own = rows?.filter((row) => row.mode === mode) ?? [];
      const moving = own.filter(({ status }) => status === "running" || status === "rebuilding");
      lag(mode).set(rows && Math.max(0, ...moving.map((row) => Number(row.lag))));
      for (const status of projectionStatuses)
        count(mode, status).set(rows && Number(own.find((row) => row.status === status)?.count ?? 0));
    }
  });
  return { delivered, saves, folded };
}
