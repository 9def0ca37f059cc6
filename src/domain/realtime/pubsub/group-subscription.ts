import type { Clock } from "../../../kit/clock.ts";
import type { Fault } from "../../../kit/fault.ts";
import { newestOf, openEffort } from "./catch-up.ts";
import type { ChannelSpec, Member } from "./channel.ts";
import type { GroupVerdict, Subscription } from "./channel-subscription.ts";
import type { Delivery, Sources } from "./delivery.ts";
import type { SubscriptionOptions } from "./options.ts";
import { logNameOf } from "./shared-hubs.ts";

export type GroupSubscriptionOptions = SubscriptionOptions & { group: string };

/** A subscription that shares deliveries with the other members of a consumer group. */
export interface GroupRequest {
  environmentId: string;
  wanted: GroupSubscriptionOptions;
  /** The name that acknowledgements give. */
  consumerId: string;
  /** The position that a new group begins behind; undefined: the end of the log. */
  startAfter: () => Promise<number | undefined>;
  /** See `Member.deliver`. */
  deliver: (delivery: Delivery, isStillHeld: () => boolean) => void | Promise<void>;
  permit: (pattern: string) => Promise<void>;
  ended: (fault: Fault) => void;
}

/** A place in a group: no other member has its id. */
export interface GroupPlace {
  id: string;
  settle(verdict: GroupVerdict): Promise<void>;
  stop(): void;
}

export type JoinGroup = (request: GroupRequest) => Promise<GroupPlace>;

export interface GroupSubscriptionDeps {
  clock: Clock;
  sources: Sources;
  joinGroup: JoinGroup;
}

/**
 * Makes the subscription a member of its group. A group has a position of its own, so the member has no
 * start.
 */
export async function subscribeInGroup(
  { clock, sources, joinGroup }: GroupSubscriptionDeps,
  spec: ChannelSpec,
  wanted: GroupSubscriptionOptions,
  member: Member,
): Promise<Subscription> {
  const { environmentId } = spec;
  const { promise: accepted, resolve: accept } = Promise.withResolvers<void>();
  const place = await joinGroup({
    environmentId,
    wanted,
    consumerId: spec.id,
    startAfter: () => replayStart({ clock, sources }, spec, wanted.replay),
    // The first delivery may be claimed before `joinGroup` resolves: it waits for the confirmation.
    deliver: (delivery, isStillHeld) => accepted.then(() => member.deliver(spec, delivery, isStillHeld)),
    permit: (pattern) => member.permit(pattern),
    ended: (fault) => member.ended(fault),
  });
  member.accepted(undefined, place.id);
  accept();
  return { ...place, id: spec.id, setApart() {} };
}

/** The position right before the newest `replay` entries of the channel; undefined: the end of the log. */
async function replayStart(
  { clock, sources }: Pick<GroupSubscriptionDeps, "clock" | "sources">,
  spec: ChannelSpec,
  replay: number,
): Promise<number | undefined> {
  const { environmentId, filter } = spec;
  const source = sources[logNameOf(spec)];
  const head = await source.head(environmentId);
  if (!head || replay === 0) return undefined;
  const effort = openEffort({ environmentId, clock, filter });
  const [first] = await newestOf(source, spec, { last: head.position, count: replay, effort });
  return first === undefined ? head.position : first.position - 1;
}
