import { Fault, missing } from "../../../kit/fault.ts";
import type { Basics } from "../../../store/store.ts";
import type { Broadcast, ChannelSpec, Member } from "./channel.ts";
import { ChannelSubscription, followLog, RunFollowers, type Subscription } from "./channel-subscription.ts";
import type { Sources } from "./delivery.ts";
import type { Frames } from "./frames.ts";
import { type JoinGroup, subscribeInGroup } from "./group-subscription.ts";
import { readSubscriptionOptions, type SubscriptionOptions } from "./options.ts";
import { isOfFrames, literalRun, type Pattern, refusal, subscriptionIdOf } from "./rules.ts";
import { logNameOf, SharedHubs, type SharedHubsDeps } from "./shared-hubs.ts";

/** The end of a log, the first position that retention keeps, and the epoch. */
interface StartHead {
  position: number;
  retention_floor: number;
  epoch: number;
}

const field = "startAfterSequence";

/** The header that tells a client that resumes by itself why its position was refused. */
const because = (reason: "epoch_changed" | "position_ahead" | "position_expired") => ({
  "Svc-Error-Reason": reason,
});

/** A position from before a restore of the database may belong to another event after it. */
function requireEpoch(head: StartHead, epoch: bigint | undefined): void {
  if (epoch === undefined || epoch === BigInt(head.epoch)) return;
  throw new Fault("failed_precondition", `epoch: the log was restored since epoch ${epoch}`, {
    field: "epoch",
    code: "INVALID_ARGUMENT",
    headers: because("epoch_changed"),
  });
}

/**
 * The position that a subscription begins behind. Refuses one above the end of the log, or one that has
 * expired.
 */
function positionAfter(pattern: Pattern, head: StartHead, startAfter: bigint): number {
  if (startAfter > BigInt(head.position))
    throw refusal(
      "INVALID_ARGUMENT",
      `${field}: ${startAfter} is above the end of the log, ${head.position}`,
      { field, headers: because("position_ahead") },
    );
  // Zero means the first event that is kept. Events of entities do not expire.
  if (startAfter === 0n) return pattern.namespace === "entity" ? 0 : Math.max(0, head.retention_floor - 1);
  if (startAfter < BigInt(head.retention_floor - 1))
    throw new Fault("failed_precondition", `${field}: positions below ${head.retention_floor} have expired`, {
      field,
      code: "INVALID_ARGUMENT",
      headers: because("position_expired"),
    });
  return Number(startAfter);
}

export type { Broadcast, ChannelSpec, Member, Start } from "./channel.ts";
export type { Subscription } from "./channel-subscription.ts";
export type { Delivery } from "./delivery.ts";
export type { SubscriptionOptions } from "./options.ts";

export interface SubscribeRequest {
  environmentId: string;
  wanted: SubscriptionOptions;
  /** How many subscriptions with the same pattern and options the connection has. */
  ordinal: number;
}

export type PubSub = ReturnType<typeof openPubSub>;

export interface PubSubDeps extends Basics<"store" | "clock" | "log"> {
  sources: Sources;
  frames: Frames;
  joinGroup: JoinGroup;
  changePlaces: SharedHubsDeps["changePlaces"];
}

/** Frames of `system.*` are in no log: only those of one run can be read again, from its history. */
const isLogged = ({ pattern }: ChannelSpec): boolean => !isOfFrames(pattern);

/** Only the platform's credentials are let in without an environment, and they have its own frames alone. */
function requirePlace(environmentId: string, { pattern }: SubscriptionOptions): void {
  const isOfPlatform = pattern.namespace === "platform";
  if (isOfPlatform === (environmentId === "")) return;
  throw new Fault(
    "permission_denied",
    isOfPlatform
      ? "frames of the platform are for a platform credential that names no org"
      : "a platform credential must name an org: X-Svc-Org",
  );
}

export function openPubSub(deps: PubSubDeps) {
  const { sources } = deps;
  const hubs = new SharedHubs(deps);
  const runs = new RunFollowers(deps);

  /**
   * The log's epoch, and the position behind which the subscription begins; `after` undefined: the hub's
   * position.
   */
  async function startOf(
    spec: ChannelSpec,
    wanted: SubscriptionOptions,
  ): Promise<{ after?: number; epoch?: number }> {
    const { startAfter, epoch, withStart } = wanted;
    if (!isLogged(spec) || (startAfter === undefined && epoch === undefined && !withStart)) return {};
    const head = await sources[logNameOf(spec)].head(spec.environmentId);
    if (!head) throw missing("environment", spec.environmentId);
    requireEpoch(head, epoch);
    const after = startAfter === undefined ? undefined : positionAfter(spec.pattern, head, startAfter);
    return { epoch: head.epoch, ...(after !== undefined && { after }) };
  }

  return {
    /** Throws the refusal that names the pattern or the option. */
    read: readSubscriptionOptions,

    /**
     * Throws `permission_denied` for frames of the platform in an environment, and for others outside of any.
     */
    specOf({ environmentId, wanted, ordinal }: SubscribeRequest): ChannelSpec {
      requirePlace(environmentId, wanted);
      const { pattern, filterText: filter, includeMetadata, topicOnly, group, withPositions } = wanted;
      const told = { includeMetadata, topicOnly, withPositions };
      return {
        id: subscriptionIdOf({ environmentId, pattern, filter, group, ordinal, ...told }),
        environmentId,
        pattern,
        filter: wanted.filter,
        ...told,
      };
    },

    /**
     * Rejects when the start is above the log's end or has expired. Else the member is accepted, and then
     * gets what it asked for of the past and everything that follows.
     */
    async subscribe(
      spec: ChannelSpec,
      wanted: SubscriptionOptions,
      broadcast: Broadcast,
      member: Member,
    ): Promise<Subscription> {
      const { group } = wanted;
      if (group !== undefined) return subscribeInGroup(deps, spec, { ...wanted, group }, member);
      const { after, epoch } = await startOf(spec, wanted);
      const { hub: opening, release } = hubs.acquire(spec);
      const announced = opening.then(async (hub) => {
        await hub.announce(spec);
        return hub;
      });
      const hub = await announced.catch((error) => {
        release();
        throw error;
      });
      const subscription = new ChannelSubscription({ spec, wanted, broadcast, member, hub, release });
      const sequence = after ?? hub.position();
      member.accepted(wanted.withStart && epoch !== undefined ? { sequence, epoch } : undefined);
      const runId = literalRun(spec.pattern);
      if (runId !== undefined && (wanted.replay > 0 || wanted.startAfter !== undefined))
        runs.follow(subscription, runId);
      else if (after !== undefined || (wanted.replay > 0 && isLogged(spec)))
        void followLog(deps, subscription, after);
      else subscription.joinAt(hub.position());
      return subscription;
    },

    /** The tick of loop `pubsub.runs`: finds ends of followed runs that no frame told of. */
    lookOnce: () => runs.lookOnce(),

    tellPositions: () => hubs.tellPositions(),

    /** Logs with subscribers on this node. */
    size: () => hubs.size,
  };
}
