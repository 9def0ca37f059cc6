import { breather } from "../../../kit/breather.ts";
import type { CelProgram } from "../../../kit/cel.ts";
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
import type { Source, Told } from "../pubsub/source.ts";
import { openAsking } from "./asking.ts";
import { type GroupRow, getGroup } from "./rows.ts";
import { isFresh, isItsOwn, type Seat, type Waiting } from "./seat.ts";
import type { Settler } from "./settle.ts";
import { type Given, type Slot, type Taken, take } from "./take.ts";

/** What the group's log has for it, looked up ahead. */
interface Ahead {
  found: { position: number; delivery: Delivery }[];
  /** Everything up to here was looked at. */
  reached: number;
}

/** One group at one node: its members here, and what is taken for them. */
export interface Desk {
  group: GroupRow;
  readonly seats: Map<string, Seat>;
  sit(seat: Seat): void;
  /** Looks for work now; asked during a look, it looks once more. */
  look(): void;
  /** The group as it is now; takes up changes of its settings. */
  refresh(group: GroupRow, dueAt: Instant | null): void;
  onTold(list: readonly Told[]): void;
  /** Something of it is due then. */
  noteDue(at: Instant): void;
  /** Where the feed of its log stands; handed over once it is followed. */
  follow(following: Following): void;
  close(): void;
  isClosed(): boolean;
}

export interface DeskDeps {
  store: Store;
  clock: Clock;
  log: Log;
  source: Source;
  settler: Pick<Settler, "sent" | "unsent">;
  knowsTime: () => boolean;
  /** The group is not there any more. */
  onGone: () => void;
  /** It may not have what the group reads now. */
  onDenied: (seat: Seat, fault: Fault) => void;
  counters: { delivered: (count: number) => void; redelivered: (count: number) => void };
}

/** What is due later is found by the rounds of the loop. */
const dueTimerMsMax = 2_000;

export function openDesk(deps: DeskDeps, group: GroupRow): Desk {
  const { store, clock, log, source, settler } = deps;
  const seats = new Map<string, Seat>();
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

  const asking = openAsking(deps, {
    seats,
    group: () => desk.group,
    onPermitted: () => desk.look(),
  });

  const isStuck = ({ giving, givingSince }: Seat): boolean =>
    giving && clock.elapsed() - givingSince > groupStuckMs;

  function roomAt(seat: Seat): number {
    if (seat.over || !asking.isPermitted(seat) || !isFresh(seat, clock.elapsed()) || isStuck(seat)) return 0;
    const most = desk.group.backpressure === "buffer" ? desk.group.max_inflight : groupWindow;
    return most - seat.queue.length - (seat.giving ? 1 : 0);
  }

  /** Free places, members in turn. */
  function slots(): Slot[] {
    const rooms = [...seats.values()].map((seat) => ({ seat, room: Math.max(0, roomAt(seat)) }));
    const free: Slot[] = [];
    const most = Math.max(0, ...rooms.map(({ room }) => room));
    for (let round = 0; round < most && free.length < desk.group.max_inflight; round++)
      for (const { seat, room } of rooms)
        if (round < room) free.push({ memberId: seat.row.id, consumerId: seat.row.consumer_id });
    return free.slice(0, desk.group.max_inflight);
  }

  /** What is due already is for the look that follows, or for the next round. */
  function noteDue(at: Instant): void {
    if (at >= dueAt) return;
    dueAt = at;
    const left = at - clock.now();
    if (left <= 0 || left > dueTimerMsMax || closed) return;
    cancelTimer();
    cancelTimer = clock.after(left, () => desk.look());
  }

  function keep(told: Told): void {
    const [delivery] = wantedOf(read, told);
    if (delivery) ahead.found.push({ position: told.position, delivery });
    ahead.reached = told.position;
  }

  /** Of what was just told; where the filter takes longer than a turn the rest is read again by the look. */
  function keepSome(list: readonly Told[], last: number): void {
    const breathe = breather(clock, desk.group.environment_id);
    for (const told of list) {
      if (read.filter && breathe()) return;
      keep(told);
    }
    ahead.reached = last;
  }

  async function lookAhead(): Promise<void> {
    const mine = ahead;
    while (following && mine.found.length === 0 && mine.reached < following.position()) {
      const last = following.position();
      const { environment_id } = desk.group;
      const list = await source.between(environment_id, { after: mine.reached, last }, feedSliceMax);
      const breathe = breather(clock, environment_id);
      for (const told of list) {
        if (read.filter) await breathe();
        if (ahead !== mine || closed) return;
        keep(told);
      }
      if (ahead !== mine || closed) return;
      mine.reached = Math.max(mine.reached, list.length < feedSliceMax ? last : list.at(-1)!.position);
    }
  }

  function startOver(now: GroupRow): void {
    desk.group = now;
    read = readOf(now);
    ahead = { found: [], reached: now.position };
    dueAt = 0;
    asking.askAll();
  }

  /** One claim; whether another may bring more. */
  async function takeOnce(): Promise<boolean> {
    const free = slots();
    const { group: mine } = desk;
    // What nobody has room for is dropped, not what nobody was permitted yet.
    const drops = mine.backpressure === "drop" && [...seats.values()].some(asking.isPermitted);
    if (mine.status === "paused" || (free.length === 0 && !drops)) return false;
    await lookAhead();
    if (closed || seats.size === 0) return false;
    // In this order: what is held by the database's time ends no earlier than what is measured here.
    const takenAt = clock.elapsed();
    const now = clock.now();
    const looked = ahead;
    const isBehind = looked.reached > mine.position && looked.found.length === 0;
    if (looked.found.length === 0 && dueAt > now && !isBehind) return false;
    const holdMs =
      mine.ack_mode === "manual" ? Math.max(mine.redeliver_delay_ms, groupHoldMsMin) : groupHoldMs;
    const taken = await store.write((session) =>
      take(session, {
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
    return accept(taken, looked, { takenAt, holdMs });
  }

  async function accept(
    taken: Taken,
    looked: Ahead,
    hold: Pick<Waiting, "takenAt" | "holdMs">,
  ): Promise<boolean> {
    if (taken.state === "gone") {
      deps.onGone();
      return false;
    }
    if (taken.state !== "taken") {
      const now = await getGroup(store, desk.group);
      if (now) startOver(now);
      return taken.state === "stale" && now !== undefined;
    }
    const { position, given, givenUp } = taken;
    const before = desk.group.position;
    const payloads = new Map(looked.found.map((one) => [one.position, one.delivery]));
    const missing = given.filter((one) => !payloads.has(one.position));
    if (missing.length > 0) {
      const places = missing.map((one) => one.position);
      for (const told of await source.at(desk.group.environment_id, places)) {
        const [delivery] = wantedOf({ ...read, filter: undefined }, told);
        if (delivery) payloads.set(told.position, delivery);
      }
    }
    for (const one of given) handOut(one, payloads.get(one.position), hold);
    if (ahead === looked) ahead.found = ahead.found.filter((one) => one.position > position);
    desk.group = { ...desk.group, position };
    if (givenUp.length > 0)
      log.warn("groups.given_up", {
        environmentId: desk.group.environment_id,
        group: desk.group.name,
        eventIds: givenUp.slice(0, 20).map((one) => one.eventId),
      });
    dueAt = Number.POSITIVE_INFINITY;
    noteDue(taken.nextDueAt ?? dueAt);
    return given.length + givenUp.length > 0 || position > before;
  }

  function handOut(
    { position, attempt, slot }: Given,
    delivery: Delivery | undefined,
    hold: Pick<Waiting, "takenAt" | "holdMs">,
  ): void {
    const seat = seats.get(slot.memberId);
    if (!delivery) {
      // What has expired, or is no longer of the pattern, cannot be given to anybody.
      log.warn("groups.unreadable", { environmentId: desk.group.environment_id, position });
      void settle("sent", slot.memberId, { position, attempt });
      return;
    }
    // Gone since, where its leaving may have come too early to see what was taken for it; or the group reads something else.
    if (!seat || seat.over || !asking.isPermitted(seat)) {
      void settle("unsent", slot.memberId, { position, attempt });
      return;
    }
    seat.queue.push({ delivery: delivery.again(attempt), position, ...hold });
    if (!seat.giving) void giveAll(seat);
  }

  const settle = (
    how: "sent" | "unsent",
    memberId: string,
    { position, attempt }: { position: number; attempt: number },
  ): Promise<void> =>
    settler[how]({
      environment_id: desk.group.environment_id,
      groupId: desk.group.id,
      position,
      memberId,
      attempt,
    })
      // Then the hold ends, and it comes again.
      .catch((error) => log.warn("groups.unsettled", { groupId: desk.group.id, position, error }));

  async function giveAll(seat: Seat): Promise<void> {
    seat.giving = true;
    try {
      for (let next = seat.queue.shift(); next && !seat.over; next = seat.queue.shift()) {
        const mine = next;
        let lapsed = false;
        const stands = () => {
          lapsed ||= !isItsOwn(seat, mine, clock.elapsed());
          return !lapsed;
        };
        if (stands()) {
          seat.givingSince = clock.elapsed();
          const full = seat.reader.give(mine.delivery, stands);
          if (full) await full;
          if (seat.over) return;
        }
        const { position, delivery } = mine;
        if (!lapsed) {
          deps.counters.delivered(1);
          if (delivery.attempt > 1) deps.counters.redelivered(1);
        }
        if (lapsed) void settle("unsent", seat.row.id, { position, attempt: delivery.attempt });
        else if (desk.group.ack_mode === "auto")
          void settle("sent", seat.row.id, { position, attempt: delivery.attempt });
        if (roomAt(seat) * 2 >= groupWindow && ahead.found.length > 0) desk.look();
      }
    } finally {
      seat.giving = false;
    }
    if (!seat.over) desk.look();
  }

  /** What a member does not come to read is for the others. */
  function giveBackStuck(): void {
    for (const seat of seats.values())
      if (isStuck(seat))
        for (const { position, delivery } of seat.queue.splice(0))
          void settle("unsent", seat.row.id, { position, attempt: delivery.attempt });
  }

  async function lookAll(): Promise<void> {
    looking = true;
    try {
      do {
        again = false;
        while (!closed && deps.knowsTime() && (await takeOnce()));
      } while (again && !closed);
    } catch (error) {
      // The next round of the loop looks again.
      log.warn("groups.look_failed", { groupId: desk.group.id, error });
    } finally {
      looking = false;
    }
  }

  const desk: Desk = {
    group,
    seats,
    sit(seat) {
      seats.set(seat.row.id, seat);
      asking.askAll();
      desk.look();
    },
    look() {
      if (closed || seats.size === 0) return;
      if (looking) again = true;
      else void lookAll();
    },
    refresh(now, due) {
      if (now.version !== desk.group.version) startOver(now);
      dueAt = Number.POSITIVE_INFINITY;
      if (due !== null) noteDue(due);
      giveBackStuck();
      asking.askAll();
      desk.look();
    },
    onTold(list) {
      const last = list.at(-1)?.position;
      if (last === undefined) return;
      if (fedTo !== undefined && ahead.reached === fedTo && ahead.found.length < groupAheadMax) {
        keepSome(list, last);
      }
      fedTo = last;
      if (ahead.found.length > 0 || ahead.reached < fedTo) desk.look();
    },
    follow(mine) {
      following = mine;
      fedTo = mine.position();
    },
    noteDue(at) {
      noteDue(at);
      desk.look();
    },
    close() {
      closed = true;
      cancelTimer();
      following?.stop();
    },
    isClosed: () => closed,
  };
  return desk;
}

const readOf = ({ pattern, filter_expr }: GroupRow) => ({
  pattern: parsePattern(pattern),
  filter: readFilter(filter_expr ?? undefined),
});
