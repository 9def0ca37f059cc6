import type { Instant } from "../../../kit/clock.ts";
import { Fault, sendsAway } from "../../../kit/fault.ts";
import type { Log } from "../../../kit/log.ts";
import type { Basics } from "../../../store/store.ts";
import type { Following } from "../../log/core/feed.ts";
import type { Source, SourceEntry } from "../pubsub/delivery.ts";
import type { Acks } from "./ack.ts";
import { type ClaimResult, claimDeliveries } from "./claim.ts";
import { type GivenUpDeps, listGivenUp } from "./given-up.ts";
import { groupFreshMs, groupHoldMs, groupHoldMsMin } from "./limits.ts";
import { LookAhead } from "./look-ahead.ts";
import { type GroupMember, isPermitted } from "./member.ts";
import { type DeliveryHold, MemberDeliveries } from "./member-deliveries.ts";
import { type GroupRow, getGroup } from "./rows.ts";

/** The group whose members are checked: as it is now, with those at this node. */
export interface CheckedGroup {
  readonly group: GroupRow;
  readonly members: ReadonlyMap<string, GroupMember>;
  look(): void;
}

export interface PermissionChecksDeps {
  log: Log;
  /** The member may not have what the group reads now. */
  onDenied: (member: GroupMember, fault: Fault) => void;
}

/** Asks each member's caller for the group's pattern again after that pattern has changed. */
class PermissionChecks {
  readonly #deps: PermissionChecksDeps;
  readonly #checked: CheckedGroup;

  constructor(deps: PermissionChecksDeps, checked: CheckedGroup) {
    this.#deps = deps;
    this.#checked = checked;
  }

  /** Checks the members whose permission is for another pattern, and those whose last check failed. */
  checkAll(): void {
    const { members, group } = this.#checked;
    for (const member of members.values())
      if (!isPermitted(member, group) && !member.isCheckingPermission) void this.#check(member);
  }

  async #check(member: GroupMember): Promise<void> {
    const { log, onDenied } = this.#deps;
    member.isCheckingPermission = true;
    try {
      // The pattern may change again while the caller is checked.
      while (!member.isOver && !isPermitted(member, this.#checked.group)) {
        const { pattern } = this.#checked.group;
        await member.subscriber.permit(pattern);
        member.permitted = pattern;
      }
      this.#checked.look();
    } catch (error) {
      if (error instanceof Fault && sendsAway(error)) onDenied(member, error);
      else log.warn("groups.permit_failed", { groupId: this.#checked.group.id, error });
    } finally {
      member.isCheckingPermission = false;
    }
  }
}

/*
 * INVARIANTS of consumer groups
 *
 * Locks, in the order in which one transaction may take them:
 *   1. `heads`, shared: `createGroup`, so that a new group begins at a position of its log.
 *   2. `consumer_groups`: every claim, change and deletion of a group. Claims of one group run one by one.
 *   3. `group_members`: heartbeats, in key order; one row each when a member leaves or is dismissed.
 *   4. `group_deliveries`, in key order: acks and leaving members wait for rows. A claim skips locked rows,
 *      because an ack is about to end them. An ack never locks the group, so it never waits for a claim.
 *
 * What is checked where:
 *   - At most `max_inflight` deliveries are held: `claimDeliveries`, under the lock of the group.
 *   - A position is claimed once as new: `claimDeliveries` moves the group's position in the transaction that
 *     inserts the deliveries, and skips candidates that another node's claim has passed.
 *   - Candidates were filtered by the current settings: the claim compares `version`, else answers `stale`.
 *   - An acknowledged delivery never comes again, and only its holder can ack: `ack.ts`, under its lock.
 *   - The server's own `sent` and `unsent` change nothing once another member or attempt holds the delivery.
 *   - A caller may read the pattern: `Groups.join`, and `PermissionChecks` after each change of the pattern.
 *     A member without that permission has no room, and what was claimed for it meanwhile is given back.
 *   - A delivery is written only while its member holds it: `holdsDelivery`, right before the write, by the
 *     monotonic clock of this process. Other nodes remove silent members by `seen_at` and their own clocks.
 */

export interface GroupReaderDeps extends Basics<"store" | "clock" | "log">, GivenUpDeps {
  source: Source;
  acks: Pick<Acks, "sent" | "unsent">;
  /** False while this node is not sure of the time: a claim would hold deliveries until a wrong time. */
  knowsTime: () => boolean;
  /** Something was handed out, or passed over. */
  onMoved: () => void;
  /** The group was deleted. */
  onGone: () => void;
  /** The member may not have what the group reads now. */
  onDenied: (member: GroupMember, fault: Fault) => void;
  counters: { delivered: (count: number) => void; redelivered: (count: number) => void };
}

/** A timer is set for what is due sooner than this; the rounds of loop `groups.look` find the rest. */
const dueTimerMsMax = 2_000;

/** One group at one node: its members here, and the claims that are made for them. */
export class GroupReader {
  /** In the order of their turns: the one that got a delivery longest ago is first. */
  readonly members = new Map<string, GroupMember>();
  readonly #deps: GroupReaderDeps;
  readonly #deliveries: MemberDeliveries;
  readonly #permissions: PermissionChecks;
  #group: GroupRow;
  #ahead: LookAhead;
  #following: Following | undefined;
  /** Position of the feed up to which `onEntries` was called. */
  #fedTo: number | undefined;
  /** No delivery is due before this time; 0 while that is not known. */
  #dueAt: Instant = 0;
  #cancelTimer = () => {};
  #isLooking = false;
  #isLookWanted = false;
  #isClosed = false;

  constructor(deps: GroupReaderDeps, group: GroupRow) {
    this.#deps = deps;
    this.#group = group;
    this.#ahead = new LookAhead(deps, group);
    this.#deliveries = new MemberDeliveries(deps, this);
    this.#permissions = new PermissionChecks(deps, this);
  }

  /** As this node knows it: the settings that were read last, and the position of the last claim. */
  get group(): GroupRow {
    return this.#group;
  }

  get isClosed(): boolean {
    return this.#isClosed;
  }

  hasCandidates(): boolean {
    return this.#ahead.found.length > 0;
  }

  addMember(member: GroupMember): void {
    this.members.set(member.row.id, member);
    this.#permissions.checkAll();
    this.look();
  }

  /** Where the feed of the group's log stands; called once it is followed. */
  follow(following: Following): void {
    this.#following = following;
    this.#fedTo = following.position();
  }

  /** Claims what the members here have room for. A call during a look makes one more look. */
  look(): void {
    if (this.#isClosed || this.members.size === 0) return;
    if (this.#isLooking) this.#isLookWanted = true;
    else void this.#lookAll();
  }

  /** Takes up the group as the store has it now, and when its next delivery is due. */
  refresh(group: GroupRow, dueAt: Instant | null): void {
    if (group.version !== this.#group.version) this.#startOver(group);
    this.#dueAt = Number.POSITIVE_INFINITY;
    if (dueAt !== null) this.#noteDue(dueAt);
    this.#deliveries.releaseStuck();
    this.#permissions.checkAll();
    this.look();
  }

  onEntries(entries: readonly SourceEntry[]): void {
    const last = entries.at(-1)?.position;
    if (last === undefined) return;
    if (this.#fedTo !== undefined) this.#ahead.takeFromFeed(entries, this.#fedTo);
    this.#fedTo = last;
    if (this.hasCandidates() || this.#ahead.reached < last) this.look();
  }

  /** A delivery of the group is due at this time. */
  noteDue(at: Instant): void {
    this.#noteDue(at);
    this.look();
  }

  close(): void {
    this.#isClosed = true;
    this.#ahead.stop();
    this.#cancelTimer();
    this.#following?.stop();
  }

  /**
   * Sets no timer for what is due already: the look that follows, or the next round of the loop, claims it.
   */
  #noteDue(at: Instant): void {
    if (at >= this.#dueAt) return;
    this.#dueAt = at;
    const { clock } = this.#deps;
    const left = at - clock.now();
    if (left <= 0 || left > dueTimerMsMax || this.#isClosed) return;
    this.#cancelTimer();
    this.#cancelTimer = clock.after(left, () => this.look());
  }

  #startOver(group: GroupRow): void {
    this.#group = group;
    this.#ahead.stop();
    this.#ahead = new LookAhead(this.#deps, group);
    this.#dueAt = 0;
    this.#permissions.checkAll();
  }

  async #lookAll(): Promise<void> {
    this.#isLooking = true;
    try {
      do {
        this.#isLookWanted = false;
        while (!this.#isClosed && this.#deps.knowsTime() && (await this.#claimOnce()));
      } while (this.#isLookWanted && !this.#isClosed);
    } catch (error) {
      // The next round of the loop looks again.
      this.#deps.log.warn("groups.look_failed", { groupId: this.#group.id, error });
    } finally {
      this.#isLooking = false;
    }
  }

  /** Makes one claim; answers whether another one may bring more. */
  async #claimOnce(): Promise<boolean> {
    const { store, clock } = this.#deps;
    const seats = this.#deliveries.freeSeats();
    const group = this.#group;
    if (group.status === "paused" || (seats.length === 0 && !this.#dropsOverflow())) return false;
    if (this.#following) await this.#ahead.readTo(this.#following.position);
    if (this.#isClosed || this.members.size === 0) return false;
    // Read the monotonic clock first, so the local deadline is never later than the one we store.
    const claimedAt = clock.elapsed();
    const now = clock.now();
    const ahead = this.#ahead;
    const isBehind = ahead.reached > group.position;
    if (ahead.found.length === 0 && this.#dueAt > now && !isBehind) return false;
    const holdMs = holdMsOf(group);
    const result = await store.write((session) =>
      claimDeliveries(session, {
        key: group,
        groupId: group.id,
        version: group.version,
        candidates: ahead.found.map(({ position, delivery }) => ({
          position,
          eventId: delivery.eventId ?? "",
        })),
        reached: ahead.reached,
        seats,
        now,
        heldUntil: now + holdMs,
        freshSince: now - groupFreshMs,
        list: (...given) => listGivenUp(this.#deps, ...given),
      }),
    );
    return this.#accept(result, ahead, { claimedAt, holdMs });
  }

  /**
   * Whether entries that no member has room for are dropped. Without a permitted member nothing is: the
   * members may be permitted a moment later.
   */
  #dropsOverflow(): boolean {
    const group = this.#group;
    return group.backpressure === "drop" && [...this.members.values()].some((one) => isPermitted(one, group));
  }

  async #accept(result: ClaimResult, ahead: LookAhead, hold: DeliveryHold): Promise<boolean> {
    const { store, log, onGone, onMoved } = this.#deps;
    if (result.state === "gone") {
      onGone();
      return false;
    }
    if (result.state !== "taken") {
      const now = await getGroup(store, this.#group);
      if (now) this.#startOver(now);
      return result.state === "stale" && now !== undefined;
    }
    const { position, claimed, givenUp, nextDueAt } = result;
    result.listed();
    const before = this.#group.position;
    const payloads = new Map(ahead.found.map((one) => [one.position, one.delivery]));
    const unread = claimed.flatMap((one) => (payloads.has(one.position) ? [] : one.position));
    if (unread.length > 0)
      for (const one of await this.#ahead.payloadsAt(unread)) payloads.set(one.position, one.delivery);
    for (const one of claimed) {
      this.#hadTurn(one.slot.memberId);
      this.#deliveries.handOut(one, payloads.get(one.position), hold);
    }
    ahead.passTo(position);
    const group = { ...this.#group, position };
    this.#group = group;
    if (givenUp.length > 0)
      log.warn("groups.given_up", {
        environmentId: group.environment_id,
        group: group.name,
        eventIds: givenUp.slice(0, 20).map((one) => one.eventId),
      });
    this.#dueAt = Number.POSITIVE_INFINITY;
    if (nextDueAt !== null) this.#noteDue(nextDueAt);
    const isMoved = claimed.length + givenUp.length > 0 || position > before;
    if (isMoved) onMoved();
    return isMoved;
  }

  #hadTurn(memberId: string): void {
    const member = this.members.get(memberId);
    if (!member) return;
    this.members.delete(memberId);
    this.members.set(memberId, member);
  }
}

/**
 * With `ack_mode` auto a delivery is held until it was sent, with manual until the consumer must have acked
 * it.
 */
const holdMsOf = ({ ack_mode, redeliver_delay_ms }: GroupRow): number =>
  ack_mode === "manual" ? Math.max(redeliver_delay_ms, groupHoldMsMin) : groupHoldMs;
