import type { Bus, BusTransport } from "../../src/bus/bus.ts";
import { busOver } from "../../src/bus/channel.ts";
import { localNetwork } from "../../src/bus/local.ts";
import { silentLog } from "../../src/kit/log.ts";
import type { Chance } from "../support/chance.ts";
import type { ProcessTime } from "./time.ts";

/** The in-process bus, losing hints by chance and doing nothing for the dead. */
export function simulatedHub(): (
  nodeId: string,
  process: ProcessTime,
  chance: Chance,
  lossOf: () => number,
) => Bus {
  const join = localNetwork();
  return (nodeId, process, chance, lossOf) => {
    const transport = join({ clock: process.clock, nodeId, onError: () => {} });
    const troubled: BusTransport = {
      ...transport,
      // Several nodes are on it: what stands in for NATS here.
      kind: "nats",
      hint(subject, payload) {
        if (process.alive() && !chance.happens(lossOf())) transport.hint(subject, payload);
      },
      onHint: (subject, handler) =>
        transport.onHint(subject, (payload, sent) => {
          if (process.alive()) void process.awake().then(() => handler(payload, sent));
        }),
    };
    return busOver(troubled, silentLog);
  };
}
