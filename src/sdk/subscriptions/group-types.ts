import type { Duration } from "../wire/duration.ts";
import type { SvcError } from "../wire/errors.ts";
import type { Logger } from "../wire/types.ts";
import type { Delivery, SubscriptionState } from "./subscription-types.ts";

/** What is shared by the members of a consumer group, and how. */
export interface GroupSettings {
  pattern: string;
  /** A CEL expression on `data`, `metadata` and `topic`. */
  filter?: string;
  /**
   * `manual`: a delivery is given again until a member has handled it. `auto` (default): a delivery counts as
   * handled once it was sent to a member.
   */
  ackMode?: "auto" | "manual";
  /** Deliveries that may be with members at once. Default 100. */
  maxInflight?: number;
  /** How often a delivery is given at most. Default 3. */
  maxRedeliveries?: number;
  /** How long a member has for a delivery before another member gets it. Default 5 s. */
  redeliverDelay?: Duration;
  /** @deprecated Write `redeliverDelay`. */
  redeliverDelayMs?: number;
  metadata?: Record<string, unknown>;
}

export interface ConsumerGroup
  extends Required<Pick<GroupSettings, "pattern" | "ackMode" | "maxInflight" | "maxRedeliveries">> {
  id: string;
  namespace: string;
  name: string;
  filter?: string;
  redeliverDelayMs: number;
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
  /** How often it was given, from 1, to this member or to another. */
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
  /** Identifies the member to the server, over reconnects too. Default: a random one. */
  consumerId?: string;
  /** Handlers at once. Default 1. */
  concurrency?: number;
  signal?: AbortSignal | undefined;
  onNotice?: (notice: MembershipNotice) => void;
  /** Gets that the membership ended by an error, or that `onNotice` threw. Default: the console. */
  log?: Logger;
}

/** A place among the members of a group. */
export interface Membership {
  readonly consumerId: string;
  readonly state: SubscriptionState;
  /** Resolves when it takes part for the first time. */
  readonly ready: Promise<void>;
  /**
   * Resolves when the member has left and its handlers are done; rejects with what ended it. Its rejection is
   * logged and does not end the process, also where the program does not await it.
   */
  readonly done: Promise<void>;
  /** Takes no more deliveries, waits for its handlers, settles, then leaves. Resolves as `done` does. */
  leave(): Promise<void>;
}

/** Consumer groups: many members on any nodes share what comes; each delivery goes to one at a time. */
export interface GroupCalls {
  /**
   * The group begins with what happens from now on. SvcError `already_exists` for a name that is taken; with
   * `ifNotExists` the group of that name, with the settings that it has.
   */
  create(
    name: string,
    settings: GroupSettings & InNamespace & { ifNotExists?: boolean },
  ): Promise<ConsumerGroup>;
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
   * Takes part in a group, and reconnects by itself. With `ackMode` manual a delivery comes at least once: it
   * is settled when the handler returns or throws NonRetryableError; after any other error this member or
   * another gets it again. With `auto` what the handler throws ends the membership.
   */
  join<Data = unknown>(
    name: string,
    options: JoinOptions,
    handler: (delivery: GroupDelivery<Data>) => unknown,
  ): Membership;
}
