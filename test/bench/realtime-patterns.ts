import type { LoggedEvent } from "../../src/domain/log/core/service.ts";
import { deliveriesOf } from "../../src/domain/realtime/pubsub/delivery.ts";
import { Hub, type HubDeps } from "../../src/domain/realtime/pubsub/hub.ts";
import { readSubscriptionOptions } from "../../src/domain/realtime/pubsub/options.ts";
import { eventFrame } from "../../src/domain/realtime/pubsub/socket-frames.ts";
import { systemClock } from "../../src/kit/clock.ts";
import { median } from "./figures.ts";

const noFrames: HubDeps["frames"] = { want() {}, async announce() {} };

const eventOf = (name: string, number: number): LoggedEvent =>
  ({
    id: "evt_01J0000000000000000000000",
    environment_id: "env",
    position: number,
    name,
    data: JSON.stringify({ n: number, customer: "c-1042", note: "n".repeat(150) }),
    metadata: null,
    at: 1_700_000_000_000,
    version: 1,
    source: "api",
    entity_id: null,
    entity_type: null,
    entity_version: null,
  }) as unknown as LoggedEvent;

/** Events that come at once: what waits in the hub stays within its backlog. */
const together = 100;

/** CPU microseconds a message and matching pattern, from the log's event to the bytes of its frames. */
async function costOf(matching: number, others: number): Promise<number> {
  let fed = 0;
  const hub = new Hub({
    environmentId: "env",
    frames: noFrames,
    clock: systemClock(),
    fedTo: () => fed,
    failed(error) {
      throw error;
    },
  });
  let frames = 0;
  const outlet = {
    publish: (spec: Parameters<typeof eventFrame>[0], delivery: Parameters<typeof eventFrame>[1]) => {
      if (eventFrame(spec, delivery).length > 0) frames++;
    },
  };
  const add = (pattern: string, place: number) => {
    const wanted = readSubscriptionOptions({
      pattern,
      filter: `data.n >= -${place} && data.customer == "c-1042"`,
    });
    const spec = { ...wanted, id: `sub_${place}`, environmentId: "env" };
    const channel = hub.channelOf(spec, outlet);
    channel.joined.add({} as never);
  };
  for (let place = 0; place < matching; place++) add(place % 2 === 0 ? "load.*.hit" : "load.>", place);
  for (let place = 0; place < others; place++) add(`load${place}.*.miss`, matching + place);
  const events = Array.from({ length: 100_000 / matching }, (_, number) =>
    eventOf("load.k1.hit", number + 1),
  );
  const run = async () => {
    frames = 0;
    fed = 0;
    const from = process.cpuUsage();
    for (let from = 0; from < events.length; from += together) {
      const some = events.slice(from, from + together);
      fed = some.at(-1)!.position;
      hub.onEntries(some.map((event) => ({ position: event.position, placed: deliveriesOf(event) })));
      // The hub computes in bursts; a sleep costs no processor.
      while (hub.position() < fed) await Bun.sleep(1);
    }
    const { user, system } = process.cpuUsage(from);
    if (frames !== events.length * matching) throw new Error(`${frames} frames instead`);
    return (user + system) / frames;
  };
  await run();
  const costs: number[] = [];
  while (costs.length < 5) costs.push(await run());
  return median(costs);
}

export async function patterns(): Promise<void> {
  console.log("1,000 patterns with filters, CPU microseconds a message and matching pattern (target < 5):");
  for (const [matching, others] of [
    [1_000, 0],
    [100, 900],
    [10, 990],
    [10, 0],
    [1, 999],
    [1, 0],
  ] as const)
    console.log(`  ${matching} match, ${others} do not: ${(await costOf(matching, others)).toFixed(2)}`);
}
