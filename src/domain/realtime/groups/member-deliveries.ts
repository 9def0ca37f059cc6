import type { Basics } from "../../../store/store.ts";
import type { Delivery } from "../pubsub/delivery.ts";
import type { Acks } from "./ack.ts";
import type { ClaimedDelivery, MemberSeat } from "./claim.ts";
import { groupStuckMs, groupWindow } from "./limits.ts";
import { type GroupMember, holdsDelivery, isFresh, isPermitted, type QueuedDelivery } from "./member.ts";
import type { GroupRow } from "./rows.ts";

/** The group whose claimed deliveries are handed to its members at this node. */
export interface DeliveredGroup {
  readonly group: GroupRow;
  readonly members: ReadonlyMap<string, GroupMember>;
  /** Whether the look-ahead has something that a member with room could have. */
  hasCandidates(): boolean;
  look(): void;
}

export interface MemberDeliveriesDeps extends Basics<"clock" | "log"> {
  acks: Pick<Acks, "sent" | "unsent">;
  counters: { delivered: (count: number) => void; redelivered: (count: number) => void };
}

/**
 * For how long a claim holds its deliveries: the claim's time on this process' monotonic clock, and the
 * length.
 */
export type DeliveryHold = Pick<QueuedDelivery, "claimedAt" | "holdMs">;

/** Claimed deliveries on their way to the members of one group at this node: room, queues and writes. */
export class MemberDeliveries {
  readonly #deps: MemberDeliveriesDeps;
  readonly #delivered: DeliveredGroup;

  constructor(deps: MemberDeliveriesDeps, delivered: DeliveredGroup) {
    this.#deps = deps;
    this.#delivered = delivered;
  }

  /** The members that have room, in the order of their turns. */
  freeSeats(): MemberSeat[] {
    return [...this.#delivered.members.values()].flatMap((member) => {
      const { id: memberId, consumer_id: consumerId } = member.row;
      const room = this.#roomAt(member);
      return room > 0 ? { memberId, consumerId, room } : [];
    });
  }

  /**
   * Queues a claimed delivery at its member, or gives it back. Without a payload nobody can have it: it is
   * acknowledged.
   */
  handOut(
    { position, attempt, slot }: ClaimedDelivery,
    delivery: Delivery | undefined,
    hold: DeliveryHold,
  ): void {
    const { members, group } = this.#delivered;
    if (!delivery) {
      // Retention has deleted the entry, or the group's pattern no longer covers it.
      this.#deps.log.warn("groups.unreadable", { environmentId: group.environment_id, position });
      this.#acknowledge("sent", slot.memberId, { position, attempt });
      return;
    }
    const member = members.get(slot.memberId);
    // A member that left during the claim may have been removed before the claim's rows were there to give
    // back.
    if (!member || member.isOver || !isPermitted(member, group)) {
      this.#acknowledge("unsent", slot.memberId, { position, attempt });
      return;
    }
    member.queue.push({ delivery: delivery.again(attempt), position, ...hold });
    if (!member.isDelivering) void this.#deliverAll(member);
  }

  /**
   * Gives back the queues of members whose consumer does not read: other members can have those deliveries at
   * once.
   */
  releaseStuck(): void {
    for (const member of this.#delivered.members.values())
      if (this.#isStuck(member)) for (const queued of member.queue.splice(0)) this.#giveBack(member, queued);
  }

  #isStuck({ isDelivering, deliveringSince }: GroupMember): boolean {
    return isDelivering && this.#deps.clock.elapsed() - deliveringSince > groupStuckMs;
  }

  #roomAt(member: GroupMember): number {
    const { group } = this.#delivered;
    const canHave =
      !member.isOver &&
      isPermitted(member, group) &&
      isFresh(member, this.#deps.clock.elapsed()) &&
      !this.#isStuck(member);
    if (!canHave) return 0;
    const most = group.backpressure === "buffer" ? group.max_inflight : groupWindow;
    return Math.max(0, most - member.queue.length - (member.isDelivering ? 1 : 0));
  }

  async #deliverAll(member: GroupMember): Promise<void> {
    const { clock } = this.#deps;
    member.isDelivering = true;
    try {
      for (let next = member.queue.shift(); next && !member.isOver; next = member.queue.shift()) {
        const queued = next;
        let isLapsed = false;
        // Once it has answered no it stays no: a heartbeat in between must not revive a delivery that was
        // dropped.
        const isStillHeld = () => {
          isLapsed ||= !holdsDelivery(member, queued, clock.elapsed());
          return !isLapsed;
        };
        if (isStillHeld()) {
          member.deliveringSince = clock.elapsed();
          const full = member.subscriber.deliver(queued.delivery, isStillHeld);
          if (full) await full;
          if (member.isOver) return;
        }
        if (isLapsed) this.#giveBack(member, queued);
        else this.#noteWritten(member, queued);
        // Claim again at half of the window, so that a fast consumer never waits for a claim.
        if (this.#roomAt(member) * 2 >= groupWindow && this.#delivered.hasCandidates())
          this.#delivered.look();
      }
    } finally {
      member.isDelivering = false;
    }
    if (!member.isOver) this.#delivered.look();
  }

  #noteWritten(member: GroupMember, { position, delivery: { attempt } }: QueuedDelivery): void {
    const { delivered, redelivered } = this.#deps.counters;
    delivered(1);
    if (attempt > 1) redelivered(1);
    if (this.#delivered.group.ack_mode === "auto")
      this.#acknowledge("sent", member.row.id, { position, attempt });
  }

  #giveBack(member: GroupMember, { position, delivery: { attempt } }: QueuedDelivery): void {
    this.#acknowledge("unsent", member.row.id, { position, attempt });
  }

  #acknowledge(
    how: "sent" | "unsent",
    memberId: string,
    { position, attempt }: Pick<ClaimedDelivery, "position" | "attempt">,
  ): void {
    const { environment_id, id: groupId } = this.#delivered.group;
    this.#deps.acks[how]({ environment_id, groupId, position, memberId, attempt })
      // The hold then ends by itself, and the delivery is claimed again.
      .catch((error) => this.#deps.log.warn("groups.ack_failed", { groupId, position, error }));
  }
}
