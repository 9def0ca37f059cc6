import type { Clock } from "../../../kit/clock.ts";
import { Fault, missing } from "../../../kit/fault.ts";
import type { Ids } from "../../../kit/ids.ts";
import { groupKeptMs, groupMembersMax, groupSilenceMs, groupSliceMax } from "../../../kit/limits.ts";
import type { Log } from "../../../kit/log.ts";
import { inTurns, type Slice, workOn } from "../../../kit/turns.ts";
import type { Watch } from "../../../kit/watch.ts";
import type { Store } from "../../../store/store.ts";
import type { Sources } from "../pubsub/source.ts";
import { type Desk, openDesk } from "./desk.ts";
import {
  countMembers,
  environmentsSilent,
  keepOn,
  type MemberRow,
  removeMember,
  signMembers,
  silentMembers,
} from "./members.ts";
import { type GroupKey, type GroupRow, groupsNow } from "./rows.ts";
import { type GroupReader, newSeat, noteSign, type Seat } from "./seat.ts";
import type { Moved, Settler } from "./settle.ts";

export type { GroupReader } from "./seat.ts";

/** A member's place in its group, at this node. */
export interface Seated {
  group: GroupRow;
  /** Of the subscription: the server's, whatever the consumer calls itself. */
  id: string;
  /** What it holds goes to the others. */
  stop(): void;
}

/** The members at this node, and the desks that they sit at. */
export interface Attendance {
  /** The group must have been permitted to the reader as it is given here. */
  join(group: GroupRow, who: { consumerId: string; clientId: string }, reader: GroupReader): Promise<Seated>;
  /** There may be room in these groups, or something due. */
  moved(list: readonly Moved[]): void;
  /** Takes up what became of the group, when it has members here. */
  lookAt(key: GroupKey): Promise<void>;
  /** The same of all that have. */
  refreshOnce(): Promise<void>;
  lookOnce(): Promise<{ againInMs?: number }>;
  /** Until when a group that a subscription made is kept from now on. */
  keptUntil(): number;
  settled(): Promise<void>;
}

export interface AttendanceDeps {
  store: Store;
  clock: Clock;
  ids: Ids;
  log: Log;
  watch: Watch;
  nodeId: string;
  sources: Sources;
  settler: Pick<Settler, "sent" | "unsent">;
  /** Tells every node of groups in which something is due. */
  onMoved: (moved: readonly Moved[]) => void;
  knowsTime: () => boolean;
}

const silentAtOnce = 100;
/** The members here must sign again before they look silent themselves. */
const dismissMsMax = 500;

export function openAttendance(deps: AttendanceDeps): Attendance {
  const { store, clock, ids, log, nodeId, sources, onMoved } = deps;
  /** By the id of the group. */
  const desks = new Map<string, Desk>();
  /** Writes that nobody waits for. */
  const leaving = new Set<Promise<void>>();
  const { metrics } = deps.watch;
  const help = "Deliveries that this node gave to members of consumer groups.";
  const delivered = metrics.counter({ name: "svc_group_deliveries_total", help })();
  const redelivered = metrics.counter({
    name: "svc_group_redeliveries_total",
    help: "Of these: given before, and not acknowledged.",
  })();
  const open = metrics.gauge({
    name: "svc_group_members",
    help: "Members of consumer groups at this node.",
  })();
  metrics.beforeReading(async () =>
    open.set([...desks.values()].reduce((sum, desk) => sum + desk.seats.size, 0)),
  );

  function end(desk: Desk, fault: Fault): void {
    close(desk);
    for (const { reader } of desk.seats.values()) reader.ended(fault);
  }

  function close(desk: Desk): void {
    desk.close();
    if (desks.get(desk.group.id) === desk) desks.delete(desk.group.id);
  }

  async function deskOf(group: GroupRow): Promise<Desk> {
    const found = desks.get(group.id);
    if (found) return found;
    const source = sources[group.log];
    const desk = openDesk(
      {
        ...deps,
        source,
        onGone: () => end(desk, missing("consumer group", group.name)),
        onDenied(seat, fault) {
          leave(desk, seat);
          seat.reader.ended(fault);
        },
        counters: {
          delivered: (count) => delivered.add(count),
          redelivered: (count) => redelivered.add(count),
        },
      },
      group,
    );
    desks.set(group.id, desk);
    try {
      const following = await source.follow(group.environment_id, {
        onTold: desk.onTold,
        onEnd: () => end(desk, missing("environment", group.environment_id)),
      });
      if (desk.isClosed()) following.stop();
      else desk.follow(following);
    } catch (error) {
      end(desk, error instanceof Fault ? error : unavailable());
      throw error;
    }
    return desk;
  }

  /** The member goes; what it was not sent did not get lost with it. */
  function leave(desk: Desk, seat: Seat): void {
    if (seat.over) return;
    seat.over = true;
    desk.seats.delete(seat.row.id);
    if (desk.seats.size === 0) close(desk);
    const unsent = seat.queue.splice(0).map(({ position }) => position);
    const { environment_id: environmentId, group_id: groupId } = seat.row;
    const now = clock.now();
    const gone = store
      .write((session) => removeMember(session, { member: seat.row, now, unsent }))
      .then(() => onMoved([{ environmentId, groupId, dueAt: now }]))
      // Its silence says it as well, a little later.
      .catch((error) => log.warn("groups.leave_failed", { groupId, error }))
      .finally(() => leaving.delete(gone));
    leaving.add(gone);
  }

  async function sign(): Promise<void> {
    const began = clock.elapsed();
    const now = clock.now();
    const knowsTime = deps.knowsTime();
    const mine = [...desks.values()].flatMap((desk) => [...desk.seats.values()]);
    mine.sort((a, b) => (memberText(a.row) < memberText(b.row) ? -1 : 1));
    for (let from = 0; from < mine.length; from += groupSliceMax) {
      const slice = mine.slice(from, from + groupSliceMax);
      const rows = slice.map(({ row }): MemberRow => ({ ...row, seen_at: now }));
      await store.write((session) => signMembers(session, rows));
      // Signed with a wrong time it may look silent to others before it does here.
      if (knowsTime) for (const seat of slice) noteSign(seat, { from: began, to: clock.elapsed() });
    }
    const kept = [...desks.values()].flatMap(({ group }) => (group.kept_until === null ? [] : group));
    const until = keptUntil();
    for (let from = 0; from < kept.length; from += groupSliceMax)
      await store.write((session) =>
        // Once in a while is often enough.
        keepOn(session, kept.slice(from, from + groupSliceMax), {
          until,
          unlessAfter: until - groupKeptMs / 24,
        }),
      );
  }

  /** Members of dead nodes, and of frozen ones: whatever they still do is none of the group's any more. */
  async function dismissSilent(): Promise<boolean> {
    const silentSince = clock.now() - groupSilenceMs;
    const dismissSome = async (slice: Slice) => {
      const members = await silentMembers(store, silentSince, slice);
      for (const member of members) await dismiss(member, silentSince);
      return members;
    };
    const work = workOn(dismissSome, () => environmentsSilent(store, silentSince));
    return inTurns([work], { clock, limit: silentAtOnce, msMax: dismissMsMax });
  }

  async function dismiss(member: MemberRow, silentSince: number): Promise<void> {
    const now = clock.now();
    const isGone = await store.write((session) =>
      removeMember(session, { member, now, silentSince, unsent: [] }),
    );
    if (!isGone) return;
    log.info("groups.member_lost", {
      groupId: member.group_id,
      memberId: member.id,
      nodeId: member.node_id,
    });
    onMoved([{ environmentId: member.environment_id, groupId: member.group_id, dueAt: now }]);
  }

  async function refresh(list: readonly Desk[]): Promise<void> {
    for (let from = 0; from < list.length; from += groupSliceMax) {
      const slice = list.slice(from, from + groupSliceMax);
      const found = await groupsNow(
        store,
        slice.map(({ group }) => group),
      );
      const now = new Map(found.map((group) => [group.id, group]));
      for (const desk of slice) {
        const group = now.get(desk.group.id);
        if (group) desk.refresh(group, group.due_at);
        else end(desk, missing("consumer group", desk.group.name));
      }
    }
  }

  const keptUntil = () => clock.now() + groupKeptMs;

  return {
    async join(group, { consumerId, clientId }, reader) {
      const id = ids.next("sub");
      const began = clock.elapsed();
      const now = clock.now();
      const row: MemberRow = {
        environment_id: group.environment_id,
        group_id: group.id,
        id,
        consumer_id: consumerId || id,
        client_id: clientId,
        node_id: nodeId,
        joined_at: now,
        seen_at: now,
      };
      await store.write(async (session) => {
        if ((await countMembers(session, group.environment_id, group.id)) >= groupMembersMax)
          throw new Fault("resource_exhausted", `at most ${groupMembersMax} members of one group`);
        if ((await signMembers(session, [row])) === 0) throw missing("consumer group", group.name);
      });
      const signedAt = deps.knowsTime() ? began : Number.NEGATIVE_INFINITY;
      const seat = newSeat(row, { reader, permitted: group.pattern, signedAt });
      let desk: Desk;
      try {
        // The last member may have closed it in between.
        do desk = await deskOf(group);
        while (desk.isClosed() && desks.get(group.id) !== desk);
      } catch (error) {
        // Nothing was handed out to it.
        await store
          .write((session) => removeMember(session, { member: row, now, unsent: [] }))
          .catch(() => {});
        throw error;
      }
      desk.sit(seat);
      return { group, id, stop: () => leave(desk, seat) };
    },

    moved(list) {
      for (const { groupId, dueAt } of list) {
        const desk = desks.get(groupId);
        if (dueAt === undefined) desk?.look();
        else desk?.noteDue(dueAt);
      }
    },

    async lookAt({ environment_id, namespace, name }) {
      const mine = [...desks.values()].filter(
        ({ group }) =>
          group.environment_id === environment_id && group.namespace === namespace && group.name === name,
      );
      await refresh(mine);
    },

    refreshOnce: () => refresh([...desks.values()]),

    async lookOnce() {
      await sign();
      const isOver = !deps.knowsTime() || (await dismissSilent());
      await refresh([...desks.values()]);
      return isOver ? {} : { againInMs: 0 };
    },

    keptUntil,

    async settled() {
      await Promise.all(leaving);
    },
  };
}

const memberText = ({ environment_id, group_id, id }: MemberRow) => `${environment_id}\n${group_id}\n${id}`;

const unavailable = () =>
  new Fault("unavailable", "the group's log cannot be read now", { headers: { "Retry-After": "1" } });
