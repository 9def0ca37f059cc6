import { gaugeKeptMs, gaugeWaitMsMax } from "../../../kit/limits.ts";
import { cachedQuery } from "../../../kit/ttl-cache.ts";
import type { Basics } from "../../../store/store.ts";
import { countAllLetters } from "./letter-rows.ts";
import { countsByStatus } from "./rows.ts";
import { endpointStatuses } from "./rules.ts";

export type DeliveryMeters = ReturnType<typeof openDeliveryMeters>;

/** Metrics of outbound webhooks: calls by outcome, and what one query finds before they are read. */
export function openDeliveryMeters(
  { store, clock, metrics }: Basics<"store" | "clock" | "metrics">,
  senders: () => number,
) {
  const calls = metrics.counter({
    name: "svc_webhook_calls_total",
    help: "Calls of outbound webhooks by outcome, and events that became dead letters.",
    labels: ["outcome"],
  });
  for (const outcome of ["delivered", "failed", "dead_lettered"]) calls(outcome);
  const count = metrics.gauge({
    name: "svc_webhook_endpoints",
    help: "Endpoints of outbound webhooks.",
    labels: ["status"],
  });
  const behind = metrics.gauge({
    name: "svc_webhook_lag_positions",
    help: "How many positions the active endpoint that is farthest behind has to go to the end of its log.",
  })();
  const letters = metrics.gauge({
    name: "svc_webhook_dead_letters",
    help: "Dead letters of outbound webhooks.",
  })();
  const open = metrics.gauge({
    name: "svc_webhook_senders",
    help: "Endpoints that this node sends to now.",
  })();
  const query = async () => ({ found: await countsByStatus(store), dead: await countAllLetters(store) });
  const counted = cachedQuery({ clock, keptMs: gaugeKeptMs, waitMsMax: gaugeWaitMsMax, query });
  metrics.beforeReading(async () => {
    open.set(senders());
    const read = await counted();
    letters.set(read?.dead);
    for (const status of endpointStatuses) {
      const own = read?.found.find((row) => row.status === status);
      count(status).set(read && Number(own?.count ?? 0));
      if (status === "active") behind.set(read && Math.max(0, Number(own?.behind ?? 0)));
    }
  });
  return { calls };
}
