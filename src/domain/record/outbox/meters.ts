import { cachedQuery } from "../../../kit/cached-query.ts";
import { gaugeKeptMs, gaugeWaitMsMax } from "../../../kit/limits.ts";
import type { Basics } from "../../../store/store.ts";
import * as rows from "./rows.ts";
import { entryKinds } from "./rules.ts";

export type OutboxMeters = ReturnType<typeof openOutboxMeters>;

/** Counters of tries by kind, and gauges of what waits, which one query reads before the metrics are. */
export function openOutboxMeters({ store, clock, metrics }: Basics<"store" | "clock" | "metrics">) {
  const labels = ["kind"] as const;
  const sent = metrics.counter({
    name: "svc_outbox_told_total",
    help: "Outbox entries that reached the bus.",
    labels,
  });
  const refused = metrics.counter({
    name: "svc_outbox_refused_total",
    help: "Tries of outbox entries that were refused.",
    labels,
  });
  const died = metrics.counter({
    name: "svc_outbox_dead_lettered_total",
    help: "Outbox entries that ran out of attempts.",
    labels,
  });
  for (const kind of entryKinds) for (const count of [sent, refused, died]) count(kind);
  const waiting = metrics.gauge({
    name: "svc_outbox_waiting",
    help: "Outbox entries that wait to be sent.",
  })();
  const lag = metrics.gauge({
    name: "svc_outbox_lag_seconds",
    help: "How long the outbox entry that is due longest has been due.",
  })();
  const dead = metrics.gauge({
    name: "svc_outbox_dead_letters",
    help: "Dead letters of all environments.",
  })();
  const ask = () => rows.counts(store, entryKinds);
  const counted = cachedQuery({ clock, keptMs: gaugeKeptMs, waitMsMax: gaugeWaitMsMax, query: ask });
  metrics.beforeReading(async () => {
    const found = await counted();
    waiting.set(found?.waiting);
    dead.set(found?.dead);
    lag.set(found && Math.max(0, clock.now() - (found.oldest ?? clock.now())) / 1000);
  });

  return { sent, refused, died };
}
