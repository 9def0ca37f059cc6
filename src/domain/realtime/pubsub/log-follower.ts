import { Fault, type FaultKind } from "../../../kit/fault.ts";
import type { Basics } from "../../../store/store.ts";
import { catchUp, deliveriesFound, newestOf } from "./catch-up.ts";
import type { ChannelSubscription } from "./channel-subscription.ts";
import type { Delivery } from "./delivery.ts";
import { type Effort, openEffort } from "./effort.ts";
import { logNameOf } from "./shared-hubs.ts";
import type { Source, Sources } from "./source.ts";

export interface LogFollowerDeps extends Basics<"clock" | "log"> {
  sources: Sources;
}

/** Faults of the position or the filter: another try would not help. */
const endsReading: ReadonlySet<FaultKind> = new Set(["failed_precondition", "resource_exhausted"]);

/** The fault that ends a subscription whose reading failed; undefined when reading is to be tried again. */
export const endOfReading = (error: unknown): Fault | undefined =>
  error instanceof Fault && endsReading.has(error.kind) ? error : undefined;

/** Pauses before a failed read of the store is tried again. */
const retryMsMin = 100;
const retryMsMax = 5_000;

/**
 * Delivers what the subscription asked for of the past, reads on to the hub's position, and joins there. A
 * failed read is tried again behind the last delivery, for as long as the subscription lasts.
 */
export async function followLog(
  { sources, clock, log }: LogFollowerDeps,
  subscription: ChannelSubscription,
  start: number | undefined,
): Promise<void> {
  const { spec, member, hub } = subscription;
  const source = sources[logNameOf(spec)];
  const effort = openEffort({ environmentId: spec.environmentId, clock, filter: spec.filter });
  const isOver = () => subscription.isOver;
  /** The last position that was delivered; undefined while a replay by count has delivered nothing. */
  let after = start;
  const give = (delivery: Delivery) => {
    after = delivery.sequence ?? after;
    return member.deliver(spec, delivery);
  };
  for (let pauseMs = retryMsMin; !isOver(); pauseMs = Math.min(retryMsMax, pauseMs * 2)) {
    try {
      if (after === undefined) {
        const last = hub.position();
        await replayNewest(source, subscription, { last, effort, give });
        if (isOver()) return;
        after = last;
      }
      const reading = { source, spec, give, position: () => hub.position(), isOver, effort };
      const reached = await catchUp(reading, after);
      if (!isOver()) subscription.joinAt(reached);
      return;
    } catch (error) {
      const end = endOfReading(error);
      if (end) return subscription.end(end);
      log.warn("pubsub.read_failed", { subscriptionId: spec.id, error });
      if (!isOver()) member.troubled();
      await clock.sleep(pauseMs);
    }
  }
}

/** Delivers the newest `replay` entries up to and with `last`. */
async function replayNewest(
  source: Source,
  subscription: ChannelSubscription,
  { last, effort, give }: { last: number; effort: Effort; give: (one: Delivery) => void | Promise<void> },
): Promise<void> {
  const { spec, wanted } = subscription;
  const found = await newestOf(source, spec, { last, count: wanted.replay, effort });
  for await (const delivery of deliveriesFound(source, spec, found, effort)) {
    if (subscription.isOver) return;
    const full = give(delivery);
    if (full) await full;
  }
}
