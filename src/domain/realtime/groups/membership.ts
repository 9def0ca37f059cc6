import type { Clock } from "../../../kit/clock.ts";
import { Fault, missing, tryAgain } from "../../../kit/fault.ts";
import type { Ids } from "../../../kit/ids.ts";
import { groupKeptMs, groupMembersMax, groupSilenceMs, groupSliceMax } from "../../../kit/limits.ts";
import type { Log } from "../../../kit/log.ts";
import { roundRobin, type Slice, workOn } from "../../../kit/round-robin.ts";
import type { Watch } from "../../../kit/watch.ts";
import type { Store } from "../../../store/store.ts";
import type { Sources } from "../pubsub/source.ts";
import type { Acks, GroupChange } from "./ack.ts";
import { type GroupReader, openGroupReader } from "./group-reader.ts";
import { type GroupMember, type GroupSubscriber, newGroupMember, noteHeartbeat } from "./member.ts";
import {
  countMembers,
  environmentsSilent,
  heartbeatMembers,
  keepOn,
  type MemberRow,
  removeMember,
  silentMembers,
} from "./member-rows.ts";
import { type GroupKey, type GroupRow, groupsNow } from "./rows.ts";

export type { GroupSubscriber as GroupReader } from "./member.ts";

/** A member's place in its group, at this node. */
export interface JoinedMember {
  group: GroupRow;
  /** Of the subscription: the server's, whatever the consumer calls itself. */
  id: string;
  /** What it holds goes to the others. */
  stop(): void;
}

/** The members at this node, and the desks that they sit at. */
export interface GroupMembership {
  /** The group must have been permitted to the reader as it is given here. */
  join(
    group: GroupRow,
    who: { consumerId: string; clientId: string },
    subscriber: GroupSubscriber,
  ): Promise<JoinedMember>;
  /** There may be room in these groups, or something due. */
  noteChanges(list: readonly GroupChange[]): void;
  /** Takes up what became of the group, when it has members here. */
  lookAt(key: GroupKey): Promise<void>;
  /** The same of all that have. */
  refreshOnce(): Promise<void>;
  lookOnce(): Promise<{ againInMs?: number }>;
  /** Until when a group that a subscription made is kept from now on. */
  keptUntil(): number;
  settled(): Promise<void>;
}

export interface GroupMembershipDeps {
  store: Store;
  clock: Clock;
  ids: Ids;
  log: Log;
  watch: Watch;
  nodeId: string;
  sources: Sources;
  acks: Pick<Acks, "sent" | "unsent">;
  /** Tells every node of groups in which something is due. */
  onChanged: (moved: readonly GroupChange[]) => void;
  knowsTime: () => boolean;
}

const silentAtOnce = 100;
/** The members here must sign again before they look silent themselves. */
const dismissMsMax = 500;

export function openGroupMembership(deps: GroupMembershipDeps): GroupMembership {
  const { store, clock, ids, log, nodeId, sources, onChanged } = deps;
  /** By the id of the group. */
  const groupReaders = new Map<string, GroupReader>();
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
    open.set([...groupReaders.values()].reduce((sum, groupReader) => sum + groupReader.members.size, 0)),
  );

  function end(groupReader: GroupReader, fault: Fault): void {
    close(groupReader);
    for (const { reader: subscriber } of groupReader.members.values()) subscriber.ended(fault);
  }

  function close(groupReader: GroupReader): void {
    groupReader.close();
    if (groupReaders.get(groupReader.group.id) === groupReader) groupReaders.delete(groupReader.group.id);
  }

  async function readerFor(group: GroupRow): Promise<GroupReader> {
    const found = groupReaders.get(group.id);
    if (found) return found;
    const source = sources[group.log];
    const groupReader = openGroupReader(
      {
        ...deps,
        source,
        onGone: () => end(groupReader, missing("consumer group", group.name)),
        onDenied(member, fault) {
          leave(groupReader, member);
          member.reader.ended(fault);
        },
        counters: {
          delivered: (count) => delivered.add(count),
          redelivered: (count) => redelivered.add(count),
        },
      },
      group,
    );
    groupReaders.set(group.id, groupReader);
    try {
      const following = await source.follow(group.environment_id, {
        onEntries: groupReader.onEntries,
        onEnd: () => end(groupReader, missing("environment", group.environment_id)),
      });
      if (groupReader.isClosed()) following.stop();
      else groupReader.follow(following);
    } catch (error) {
      end(groupReader, error instanceof Fault ? error : unavailable());
      throw error;
    }
    return groupReader;
  }

  /** The member goes; what it was not sent did not get lost with it. */
  function leave(groupReader: GroupReader, member: GroupMember): void {
    if (member.over) return;
    member.over = true;
    groupReader.members.delete(member.row.id);
    if (groupReader.members.size === 0) close(groupReader);
    const unsent = member.queue.splice(0).map(({ position }) => position);
    const { environment_id: environmentId, group_id: groupId } = member.row;
    const now = clock.now();
    const gone = store
      .write((session) => removeMember(session, { member: member.row, now, unsent }))
      .then(() => onChanged([{ environmentId, groupId, dueAt: now }]))
      // Its silence says it as well, a little later.
      .catch((error) => log.warn("groups.leave_failed", { groupId, error }))
      .finally(() => leaving.delete(gone));
    leaving.add(gone);
  }

  async function sendHeartbeats(): Promise<void> {
    const began = clock.elapsed();
    const now = clock.now();
    const knowsTime = deps.knowsTime();
    const mine = [...groupReaders.values()].flatMap((groupReader) => [...groupReader.members.values()]);
    mine.sort((a, b) => (memberText(a.row) < memberText(b.row) ? -1 : 1));
    for (let from = 0; from < mine.length; from += groupSliceMax) {
      const slice = mine.slice(from, from + groupSliceMax);
      const rows = slice.map(({ row }): MemberRow => ({ ...row, seen_at: now }));
      await store.write((session) => heartbeatMembers(session, rows));
      // Signed with a wrong time it may look silent to others before it does here.
      if (knowsTime) for (const member of slice) noteHeartbeat(member, { from: began, to: clock.elapsed() });
    }
    const kept = [...groupReaders.values()].flatMap(({ group }) => (group.kept_until === null ? [] : group));
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
    return roundRobin([work], { clock, limit: silentAtOnce, msMax: dismissMsMax });
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
    onChanged([{ environmentId: member.environment_id, groupId: member.group_id, dueAt: now }]);
  }

  async function refresh(list: readonly GroupReader[]): Promise<void> {
    for (let from = 0; from < list.length; from += groupSliceMax) {
      const slice = list.slice(from, from + groupSliceMax);
      const found = await groupsNow(
        store,
        slice.map(({ group }) => group),
      );
      const now = new Map(found.map((group) => [group.id, group]));
      for (const groupReader of slice) {
        const group = now.get(groupReader.group.id);
        if (group) groupReader.refresh(group, group.due_at);
        else end(groupReader, missing("consumer group", groupReader.group.name));
      }
    }
  }

  const keptUntil = () => clock.now() + groupKeptMs;

  return {
    async join(group, { consumerId, clientId }, subscriber) {
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
        if ((await heartbeatMembers(session, [row])) === 0) throw missing("consumer group", group.name);
      });
      const heartbeatAt = deps.knowsTime() ? began : Number.NEGATIVE_INFINITY;
      const member = newGroupMember(row, { reader: subscriber, permitted: group.pattern, heartbeatAt });
      let groupReader: GroupReader;
      try {
        // The last member may have closed it in between.
        do groupReader = await readerFor(group);
        while (groupReader.isClosed() && groupReaders.get(group.id) !== groupReader);
      } catch (error) {
        // Nothing was handed out to it.
        await store
          .write((session) => removeMember(session, { member: row, now, unsent: [] }))
          .catch(() => {});
        throw error;
      }
      groupReader.addMember(member);
      return { group, id, stop: () => leave(groupReader, member) };
    },

    noteChanges(list) {
      for (const { groupId, dueAt } of list) {
        const groupReader = groupReaders.get(groupId);
        if (dueAt === undefined) groupReader?.look();
        else groupReader?.noteDue(dueAt);
      }
    },

    async lookAt({ environment_id, namespace, name }) {
      const mine = [...groupReaders.values()].filter(
        ({ group }) =>
          group.environment_id === environment_id && group.namespace === namespace && group.name === name,
      );
      await refresh(mine);
    },

    refreshOnce: () => refresh([...groupReaders.values()]),

    async lookOnce() {
      await sendHeartbeats();
      const isOver = !deps.knowsTime() || (await dismissSilent());
      await refresh([...groupReaders.values()]);
      return isOver ? {} : { againInMs: 0 };
    },

    keptUntil,

    async settled() {
      await Promise.all(leaving);
    },
  };
}

const memberText = ({ environment_id, group_id, id }: MemberRow) => `${environment_id}\n${group_id}\n${id}`;

const unavailable = () => tryAgain("unavailable", "the group's log cannot be read now");
