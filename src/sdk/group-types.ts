import type { SvcError } from "./errors.ts";
import type { Delivery, SubscriptionState } from "./subscription-types.ts";

/** What is shared by the members of a consumer group, and how. */
export interface GroupSettings {
  pattern: string;
  /** A CEL expression on `data`, `metadata` and `topic`. */
  filter?: string;
  /**
   * `manual`: a delivery is given again until a member is done with it. `auto` (default): to be sent is to be done.
   */
  ackMode?: "auto" | "manual";
  /** Deliveries that may be with members at once. Default 100. */
  maxInflight?: number;
  /** How often one is given at most. Default 3. */
  maxRedeliveries?: number;
  /** How long a member has for one before it is given to another, in milliseconds. Default 5,000. */
  redeliverDelayMs?: number;
  metadata?: Record<string, unknown>;
}

export interface ConsumerGroup extends Required<Omit<GroupSettings, "filter" | "metadata">> {
  id: string;
  namespace: string;
  name: string;
  filter?: string;
  metadata?: Record<string, unknown>;
  status: "active" | "paused";
  memberCount: number;
  /** RFC 3339. */
  createdAt: string;
  updatedAt: string;
}

export interface InNamespace {
  /** Default `default`. */
  namespace?: string;
}

/** A delivery to one member of a group. */
export interface GroupDelivery<Data = unknown> extends Delivery<string, Data> {
  /** From 1: how often it was given, to whichever member. */
  attempt: number;
}

export type MembershipNotice =
  | { type: "live" }
  | { type: "waiting"; delayMs: number; error: SvcError | undefined }
  /** The handler threw: the delivery is given again, or no more when it threw a NonRetryableError. */
  | { type: "failed"; delivery: GroupDelivery; error: unknown }
  /** The handler took too long: the delivery went to another member meanwhile, or could not be settled. */
  | { type: "lost"; delivery: GroupDelivery; error: SvcError };

export interface JoinOptions extends InNamespace {
  /** By which the server knows the member; stays the same over reconnects. Default: made up. */
  consumerId?: string;
  /** Handlers at once. Default 1. */
  concurrency?: number;
  signal?: AbortSignal | undefined;
  onNotice?: (notice: MembershipNotice) => void;
}

/** A place among the members of a group. */
export interface Membership {
  readonly consumerId: string;
  readonly state: SubscriptionState;
  /** Resolves when it takes part for the first time. */
  readonly ready: Promise<void>;
  /** Resolves when it has left and its handlers are done; rejects with what ended it. */
  readonly done: Promise<void>;
  /** Takes nothing new, lets handlers end and settles what they were given, then leaves. Resolves as `done` does. */
  leave(): Promise<void>;
}

/** Consumer groups: many members on any nodes share what comes; each delivery goes to one of them at a time. */
export interface GroupCalls {
  /** Gets what happens from now on. */
  create(name: string, settings: GroupSettings & InNamespace): Promise<ConsumerGroup>;
  get(name: string, options?: InNamespace): Promise<ConsumerGroup>;
  list(
    options?: InNamespace & { status?: "active" | "paused"; limit?: number; cursor?: string },
  ): Promise<{ groups: ConsumerGroup[]; nextCursor?: string; totalCount: number }>;
  update(
    name: string,
    change: Partial<GroupSettings> & { status?: "active" | "paused" } & InNamespace,
  ): Promise<ConsumerGroup>;
  delete(name: string, options?: InNamespace): Promise<void>;
  /**
   * Takes part in a group. With `ackMode` manual, a handler that returns is done with its delivery, one that throws gets it again
   * later (or another member does), one that throws NonRetryableError never. It comes at least once. With `auto` what the
   * handler throws ends the membership. Reconnects by itself.
   */
  join<Data = unknown>(
    name: string,
    options: JoinOptions,
    handler: (delivery: GroupDelivery<Data>) => unknown,
  ): Membership;
}
