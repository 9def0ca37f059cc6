import type { Bus } from "./bus.ts";
import { type LocalBusOptions, localNetwork } from "./local.ts";
import { type NatsBusOptions, openNatsBus } from "./nats.ts";

type BusOptions = Omit<LocalBusOptions, "onError"> &
  Omit<NatsBusOptions, "url"> & { url: string | undefined };

/**
 * NATS where there is a URL; else the bus of a node that is alone. The server may be away: nothing waits for
 * it.
 */
export function openBus({ url, ...options }: BusOptions): Bus {
  if (url !== undefined) return openNatsBus({ ...options, url });
  const { log } = options;
  return localNetwork()({
    ...options,
    onError: (subject, error) => log.warn("bus.handler_failed", { subject, error }),
  });
}
