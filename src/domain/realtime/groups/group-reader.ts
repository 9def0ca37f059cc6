import { breather } from "../../../kit/breather.ts";
import type { CelProgram } from "../../../kit/cel/cel.ts";
import type { Clock, Instant } from "../../../kit/clock.ts";
import type { Fault } from "../../../kit/fault.ts";
import {
  feedSliceMax,
  groupAheadMax,
  groupFreshMs,
  groupHoldMs,
  groupHoldMsMin,
  groupStuckMs,
  groupWindow,
} from "../../../kit/limits.ts";
import type { Log } from "../../../kit/log.ts";
import type { Store } from "../../../store/store.ts";
import type { Following } from "../../log/log/feed.ts";
import type { Delivery } from "../pubsub/delivery.ts";
import { type Pattern, parsePattern, readFilter, wantedOf } from "../pubsub/rules.ts";
import type { Source, SourceEntry } from "../pubsub/source.ts";
import type { Acks } from "./ack.ts";
import { type ClaimedDelivery, type ClaimResult, type ClaimSlot, claimDeliveries } from "./claim.ts";
import { type GroupMember, holdsDelivery, isFresh, type QueuedDelivery } from "./member.ts";
import { openPermissionChecks } from "./permission-checks.ts";
import { type GroupRow, getGroup } from "./rows.ts";

/** What the group's log has for it, looked up ahead. */
interface Ahead {
  found: { position: number; delivery: Delivery }[];
  /** Everything up to here was looked at. */
  reached: number;
}

/** One group at one node: its members here, and what is taken for them. */
export interface GroupReader {
  group: GroupRow;
  readonly members: Map<string, GroupMember>;
  addMember(seat: GroupMember): void;
  /** Looks for work now; asked during a look, it looks once more. */
  look(): void;
  /** The group as it is now; takes up changes of its settings. */
  refresh(group: GroupRow, dueAt: Instant | null): void;
  onEntries(list: readonly SourceEntry[]): void;
  /** Something of it is due then. */
  noteDue(at: Instant): void;
  /** Where the feed of its log stands; handed over once it is followed. */
  follow(following: Following): void;
  close(): void;
  isClosed(): boolean;
}

export interface GroupReaderDeps {
  store: Store;
  clock: Clock;
  log: Log;
  source: Source;
  acks: Pick<Acks, "sent" | "unsent">;
  knowsTime: () => boolean;
  /** The group is not there any more. */
  onGone: () => void;
  /** It may not have what the group reads now. */
  onDenied: (seat: GroupMember, fault: Fault) => void;
  counters: { delivered: (count: number) => void; redelivered: (count: number) => void };
}

/** What is due later is found by the rounds of the loop. */
const dueTimerMsMax = 2_000;

export function openGroupReader(deps: GroupReaderDeps, group: GroupRow): GroupReader {
  const { store, clock, log, source, acks } = deps;
  const members = new Map<string, GroupMember>();
  let following: Following | undefined;
  let ahead: Ahead = { found: [], reached: group.position };
  /** The place of the feed as far as `onTold` was told. */
  let fedTo: number | undefined;
  let read: { pattern: Pattern; filter: CelProgram | undefined } = readOf(group);
  /** Something may be due then. */
  let dueAt: Instant = 0;
  let cancelTimer = () => {};
  let looking = false;
  let again = false;
  let closed = false;

  const permissions = openPermissionChecks(deps, {
    members,
    group: () => reader.group,
    onPermitted: () => reader.look(),
  });

  const isStuck = ({ delivering, deliveringSince }: GroupMember): boolean =>
    delivering && clock.elapsed() - deliveringSince > groupStuckMs;

  function roomAt(member: GroupMember): number {
    if (
      member.over ||
      !permissions.isPermitted(member) ||
      !isFresh(member, clock.elapsed()) ||
      isStuck(member)
    )
      return 0;
    const most = reader.group.backpressure === "buffer" ? reader.group.max_inflight : groupWindow;
    return most - member.queue.length - (member.delivering ? 1 : 0);
  }

  /** Free places, members in turn. */
  function slots(): ClaimSlot[] {
    const rooms = [...members.values()].map((member) => ({
      seat: member,
      room: Math.max(0, roomAt(member)),
    }));
    const free: ClaimSlot[] = [];
    const most = Math.max(0, ...rooms.map(({ room }) => room));
    for (let round = 0; round < most && free.length < reader.group.max_inflight; round++)
      for (const { seat: member, room } of rooms)
        if (round < room) free.push({ memberId: member.row.id, consumerId: member.row.consumer_id });
    return free.slice(0, reader.group.max_inflight);
  }

  /** What is due already is for the look that follows, or for the next round. */
  function noteDue(at: Instant): void {
    if (at >= dueAt) return;
    dueAt = at;
    const left = at - clock.now();
    if (left <= 0 || left > dueTimerMsMax || closed) return;
    cancelTimer();
    cancelTimer = clock.after(left, () => reader.look());
  }

  function keep(entry: SourceEntry): void {
    const [delivery] = wantedOf(read, entry);
    if (delivery) ahead.found.push({ position: entry.position, delivery });
    ahead.reached = entry.position;
  }

  /** Of what was just told; where the filter takes longer than a turn the rest is read again by the look. */
  function keepSome(list: readonly SourceEntry[], last: number): void {
    const breathe = breather(clock, reader.group.environment_id);
    for (const entry of list) {
      if (read.filter && breathe()) return;
      keep(entry);
    }
    ahead.reached = last;
  }

  async function lookAhead(): Promise<void> {
    const mine = ahead;
    while (following && mine.found.length === 0 && mine.reached < following.position()) {
      const last = following.position();
      const { environment_id } = reader.group;
      const list = await source.between(environment_id, { after: mine.reached, last }, feedSliceMax);
      const breathe = breather(clock, environment_id);
      for (const entry of list) {
        if (read.filter) await breathe();
        if (ahead !== mine || closed) return;
        keep(entry);
      }
      if (ahead !== mine || closed) return;
      mine.reached = Math.max(mine.reached, list.length < feedSliceMax ? last : list.at(-1)!.position);
    }
  }

  function startOver(now: GroupRow): void {
    reader.group = now;
    read = readOf(now);
    ahead = { found: [], reached: now.position };
    dueAt = 0;
    permissions.checkAll();
  }

  /** One claim; whether another may bring more. */
  async function claimOnce(): Promise<boolean> {
    const free = slots();
    const { group: mine } = reader;
    // What nobody has room for is dropped, not what nobody was permitted yet.
    const drops = mine.backpressure === "drop" && [...members.values()].some(permissions.isPermitted);
    if (mine.status === "paused" || (free.length === 0 && !drops)) return false;
    await lookAhead();
    if (closed || members.size === 0) return false;
    // In this order: what is held by the database's time ends no earlier than what is measured here.
    const claimedAt = clock.elapsed();
    const now = clock.now();
    const looked = ahead;
    const isBehind = looked.reached > mine.position && looked.found.length === 0;
    if (looked.found.length === 0 && dueAt > now && !isBehind) return false;
    const holdMs =
      mine.ack_mode === "manual" ? Math.max(mine.redeliver_delay_ms, groupHoldMsMin) : groupHoldMs;
    const result = await store.write((session) =>
      claimDeliveries(session, {
        key: mine,
        groupId: mine.id,
        version: mine.version,
        candidates: looked.found.map(({ position, delivery }) => ({
          position,
          eventId: delivery.eventId ?? "",
        })),
        reached: looked.reached,
        slots: free,
        now,
        heldUntil: now + holdMs,
        freshSince: now - groupFreshMs,
      }),
    );
    return accept(result, looked, { claimedAt, holdMs });
  }

  async function accept(
    result: ClaimResult,
    looked: Ahead,
    hold: Pick<QueuedDelivery, "claimedAt" | "holdMs">,
  ): Promise<boolean> {
    if (result.state === "gone") {
      deps.onGone();
      return false;
    }
    if (result.state !== "taken") {
      const now = await getGroup(store, reader.group);
      if (now) startOver(now);
      return result.state === "stale" && now !== undefined;
    }
    const { position, claimed, givenUp } = result;
    const before = reader.group.position;
    const payloads = new Map(looked.found.map((one) => [one.position, one.delivery]));
    const missing = claimed.filter((one) => !payloads.has(one.position));
    if (missing.length > 0) {
      const places = missing.map((one) => one.position);
      for (const entry of await source.at(reader.group.environment_id, places)) {
        const [delivery] = wantedOf({ ...read, filter: undefined }, entry);
        if (delivery) payloads.set(entry.position, delivery);
      }
    }
    for (const one of claimed) handOut(one, payloads.get(one.position), hold);
    if (ahead === looked) ahead.found = ahead.found.filter((one) => one.position > position);
    reader.group = { ...reader.group, position };
    if (givenUp.length > 0)
      log.warn("groups.given_up", {
        environmentId: reader.group.environment_id,
        group: reader.group.name,
        eventIds: givenUp.slice(0, 20).map((one) => one.eventId),
      });
    dueAt = Number.POSITIVE_INFINITY;
    noteDue(result.nextDueAt ?? dueAt);
    return claimed.length + givenUp.length > 0 || position > before;
  }

  function handOut(
    { position, attempt, slot }: ClaimedDelivery,
    delivery: Delivery | undefined,
    hold: Pick<QueuedDelivery, "claimedAt" | "holdMs">,
  ): void {
    const member = members.get(slot.memberId);
    if (!delivery) {
      // What has expired, or is no longer of the pattern, cannot be given to anybody.
      log.warn("groups.unreadable", { environmentId: reader.group.environment_id, position });
      void acknowledge("sent", slot.memberId, { position, attempt });
      return;
    }
    // Gone since, where its leaving may have come too early to see what was taken for it; or the group reads something else.
    if (!member || member.over || !permissions.isPermitted(member)) {
      void acknowledge("unsent", slot.memberId, { position, attempt });
      return;
    }
    member.queue.push({ delivery: delivery.again(attempt), position, ...hold });
    if (!member.delivering) void deliverAll(member);
  }

  const acknowledge = (
    how: "sent" | "unsent",
    memberId: string,
    { position, attempt }: { position: number; attempt: number },
  ): Promise<void> =>
    acks[how]({
      environment_id: reader.group.environment_id,
      groupId: reader.group.id,
      position,
      memberId,
      attempt,
    })
      // Then the hold ends, and it comes again.
      .catch((error) => log.warn("groups.unsettled", { groupId: reader.group.id, position, error }));

  async function deliverAll(member: GroupMember): Promise<void> {
    member.delivering = true;
    try {
      for (let next = member.queue.shift(); next && !member.over; next = member.queue.shift()) {
        const mine = next;
        let lapsed = false;
        const isStillHeld = () => {
          lapsed ||= !holdsDelivery(member, mine, clock.elapsed());
          return !lapsed;
        };
        if (isStillHeld()) {
          member.deliveringSince = clock.elapsed();
          const full = member.reader.deliver(mine.delivery, isStillHeld);
          if (full) await full;
          if (member.over) return;
        }
        const { position, delivery } = mine;
        if (!lapsed) {
          deps.counters.delivered(1);
          if (delivery.attempt > 1) deps.counters.redelivered(1);
        }
        if (lapsed) void acknowledge("unsent", member.row.id, { position, attempt: delivery.attempt });
        else if (reader.group.ack_mode === "auto")
          void acknowledge("sent", member.row.id, { position, attempt: delivery.attempt });
        if (roomAt(member) * 2 >= groupWindow && ahead.found.length > 0) reader.look();
      }
    } finally {
      member.delivering = false;
    }
    if (!member.over) reader.look();
  }

  /** What a member does not come to read is for the others. */
  function releaseStuck(): void {
    for (const member of members.values())
      if (isStuck(member))
        for (const { position, delivery } of member.queue.splice(0))
          void acknowledge("unsent", member.row.id, { position, attempt: delivery.attempt });
  }

  async function lookAll(): Promise<void> {
    looking = true;
    try {
      do {
        again = false;
        while (!closed && deps.knowsTime() && (await claimOnce()));
      } while (again && !closed);
    } catch (error) {
      // The next round of the loop looks again.
      log.warn("groups.look_failed", { groupId: reader.group.id, error });
    } finally {
      looking = false;
    }
  }

  const reader: GroupReader = {
    group,
    members,
    addMember(member) {
      members.set(member.row.id, member);
      permissions.checkAll();
      reader.look();
    },
    look() {
      if (closed || members.size === 0) return;
      if (looking) again = true;
      else void lookAll();
    },
    refresh(now, due) {
      if (now.version !== reader.group.version) startOver(now);
      dueAt = Number.POSITIVE_INFINITY;
      if (due !== null) noteDue(due);
      releaseStuck();
      permissions.checkAll();
      reader.look();
    },
    onEntries(list) {
      const last = list.at(-1)?.position;
      if (last === undefined) return;
      if (fedTo !== undefined && ahead.reached === fedTo && ahead.found.length < groupAheadMax) {
        keepSome(list, last);
      }
      fedTo = last;
      if (ahead.found.length > 0 || ahead.reached < fedTo) reader.look();
    },
    follow(mine) {
      following = mine;
      fedTo = mine.position();
    },
    noteDue(at) {
      noteDue(at);
      reader.look();
    },
    close() {
      closed = true;
      cancelTimer();
      following?.stop();
    },
    isClosed: () => closed,
  };
  return reader;
}

const readOf = ({ pattern, filter_expr }: GroupRow) => ({
  pattern: parsePattern(pattern),
  filter: readFilter(filter_expr ?? undefined),
});
