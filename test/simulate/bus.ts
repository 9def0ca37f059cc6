import type { Bus } from "../../src/bus/bus.ts";
import { localNetwork } from "../../src/bus/local.ts";
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
    const bus = join({ clock: process.clock, nodeId, onError: () => {} });
    return {
      ...bus,
      // Several nodes are on it: what stands in for NATS here.
      kind: "nats",
      hint(subject, payload) {
        if (process.alive() && !chance.happens(lossOf())) bus.hint(subject, payload);
      },
      onHint: (subject, handler) =>
        bus.onHint(subject, (payload, sent) => {
          if (process.alive()) void process.awake().then(() => handler(payload, sent));
        }),
    };
  };
}
