import type { Bus } from "./bus.ts";
import { busOver } from "./channel.ts";
import { type LocalTransportOptions, localNetwork } from "./local.ts";
import type { NatsTransportOptions } from "./nats.ts";

type BusOptions = Omit<LocalTransportOptions, "onError"> &
  Omit<NatsTransportOptions, "url"> & { url: string | undefined };

/**
 * Core NATS with a URL, else the bus of a node that is alone, which loads no client of NATS. A NATS server
 * that cannot be reached does not keep a node from starting.
 */
export async function openBus({ url, ...options }: BusOptions): Promise<Bus> {
  const { log } = options;
  const transport =
    url !== undefined
      ? (await import("./nats.ts")).openNatsTransport({ ...options, url })
      : localNetwork()({
          ...options,
          onError: (subject, error) => log.warn("bus.handler_failed", { subject, error }),
        });
  return busOver(transport, log);
}
