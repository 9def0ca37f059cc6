import type { Clock } from "../../../kit/clock.ts";
import { Fault, missing } from "../../../kit/fault.ts";
import { roundRobin, type Slice, workOn } from "../../../kit/round-robin.ts";
import type { Basics, Store } from "../../../store/store.ts";
import type { GroupChange } from "./ack.ts";
import type { GroupReader } from "./group-reader.ts";
import { groupKeptMs, groupMembersMax, groupSilenceMs, groupSliceMax } from "./limits.ts";
import { LocalReaders, type LocalReadersDeps } from "./local-readers.ts";
import {
  countMembers,
  environmentsSilent,
  type GroupMember,
  type GroupSubscriber,
  heartbeatMembers,
  keepOn,
  type MemberRow,
  newGroupMember,
  noteHeartbeat,
  removeMember,
  silentMembers,
} from "./member.ts";
import type { GroupKey, GroupRow } from "./rows.ts";

export interface HeartbeatsDeps extends Basics<"store" | "clock" | "log"> {
  onChanged: (changes: readonly GroupChange[]) => void;
  knowsTime: () => boolean;
}

const silentAtOnce = 100;
/**
 * A round of dismissals ends after this, so that the members of this node send heartbeats before they look
 * silent.
 */
const dismissMsMax = 500;
/** `kept_until` is moved on once in a while, not with every heartbeat. */
const keepEveryMs = groupKeptMs / 24;

/** Until when a group that a subscription made is kept without members. */
export const keptUntil = (clock: Pick<Clock, "now">): number => clock.now() + groupKeptMs;

/**
 * Writes a heartbeat of every member of this node, in the order of the keys so that two nodes cannot
 * deadlock.
 */
async function sendHeartbeats(deps: HeartbeatsDeps, members: readonly GroupMember[]): Promise<void> {
  const { store, clock } = deps;
  const from = clock.elapsed();
  const now = clock.now();
  // Written with a wrong time, a heartbeat may look silent to other nodes before it does here.
  const knowsTime = deps.knowsTime();
  const ordered = members.map((member) => ({ member, key: memberText(member.row) }));
  ordered.sort((a, b) => (a.key < b.key ? -1 : 1));
  for (let at = 0; at < ordered.length; at += groupSliceMax) {
    const slice = ordered.slice(at, at + groupSliceMax);
    const rows = slice.map(({ member }): MemberRow => ({ ...member.row, seen_at: now }));
    await store.write((session) => heartbeatMembers(session, rows));
    if (knowsTime) for (const { member } of slice) noteHeartbeat(member, { from, to: clock.elapsed() });
  }
}

/** Keeps groups that subscriptions made while they have members at this node. */
async function keepGroups(
  { store, clock }: Pick<HeartbeatsDeps, "store" | "clock">,
  readers: readonly GroupReader[],
): Promise<void> {
  const kept = readers.flatMap(({ group }) => (group.kept_until === null ? [] : group));
  const until = keptUntil(clock);
  for (let from = 0; from < kept.length; from += groupSliceMax) {
    const slice = kept.slice(from, from + groupSliceMax);
    await store.write((session) => keepOn(session, slice, { until, unlessAfter: until - keepEveryMs }));
  }
}

/**
 * Removes members of any node whose heartbeats have stopped, because that node died or is frozen. What they
 * held is due for the others. Answers false when the time of a round was over before all were removed.
 */
function dismissSilent(deps: HeartbeatsDeps): Promise<boolean> {
  const { store, clock } = deps;
  const silentSince = clock.now() - groupSilenceMs;
  const dismissSome = async (slice: Slice) => {
    const members = await silentMembers(store, silentSince, slice);
    for (const member of members) await dismiss(deps, member, silentSince);
    return members;
  };
  const work = workOn(dismissSome, () => environmentsSilent(store, silentSince));
  return roundRobin([work], { clock, limit: silentAtOnce, msMax: dismissMsMax });
}

async function dismiss(
  { store, clock, log, onChanged }: HeartbeatsDeps,
  member: MemberRow,
  silentSince: number,
): Promise<void> {
  const now = clock.now();
  const isRemoved = await store.write((session) =>
    removeMember(session, { member, now, silentSince, unsent: [] }),
  );
  if (!isRemoved) return;
  const { environment_id: environmentId, group_id: groupId, id: memberId, node_id: nodeId } = member;
  log.info("groups.member_lost", { groupId, memberId, nodeId });
  onChanged([{ environmentId, groupId, dueAt: now }]);
}

const memberText = ({ environment_id, group_id, id }: MemberRow) => `${environment_id}\n${group_id}\n${id}`;

export type { GroupSubscriber } from "./member.ts";

/** A member's place in its group, at this node. */
export interface JoinedMember {
  group: GroupRow;
  /** The id of the subscription. The server makes it, whatever the consumer calls itself. */
  id: string;
  /** Leaves the group: what the member holds is due for the others. */
  stop(): void;
}

export type GroupMembershipDeps = Basics<"ids" | "nodeId"> & LocalReadersDeps;

export function openGroupMembership(deps: GroupMembershipDeps) {
  const { store, clock } = deps;
  const readers = new LocalReaders(deps);

  return {
    /** The caller must have permitted the pattern of `group` as it is given here. */
    async join(
      group: GroupRow,
      who: { consumerId: string; clientId: string },
      subscriber: GroupSubscriber,
    ): Promise<JoinedMember> {
      // Read the monotonic clock first, so that the member is never taken for fresher than other nodes see
      // it.
      const began = clock.elapsed();
      const row = memberRowOf(deps, group, who);
      await insertMember(store, group, row);
      const heartbeatAt = deps.knowsTime() ? began : Number.NEGATIVE_INFINITY;
      const member = newGroupMember(row, { subscriber, permitted: group.pattern, heartbeatAt });
      let reader: GroupReader;
      try {
        reader = await readers.open(group);
      } catch (error) {
        // Nothing was claimed for the member. Its silence ends a row that cannot be removed now.
        const removal = { member: row, now: row.joined_at, unsent: [] };
        await store.write((session) => removeMember(session, removal)).catch(() => {});
        throw error;
      }
      reader.addMember(member);
      deps.onMoved(group.environment_id, group.id);
      return { group, id: row.id, stop: () => readers.leave(reader, member) };
    },

    /** There may be room in these groups, or something due. */
    noteChanges(changes: readonly GroupChange[]) {
      for (const { groupId, dueAt } of changes) {
        const reader = readers.find(groupId);
        if (dueAt === undefined) reader?.look();
        else reader?.noteDue(dueAt);
      }
    },

    /** Takes up a change of the group, when it has members here. */
    lookAt({ environment_id, namespace, name }: GroupKey) {
      const isMeant = ({ group }: GroupReader) =>
        group.environment_id === environment_id && group.namespace === namespace && group.name === name;
      return readers.refresh(readers.all().filter(isMeant));
    },

    /** Takes up changes of every group that has members here. */
    refreshOnce: () => readers.refresh(readers.all()),

    async lookOnce(): Promise<{ againInMs?: number }> {
      await sendHeartbeats(deps, readers.members());
      await keepGroups(deps, readers.all());
      const isOver = !deps.knowsTime() || (await dismissSilent(deps));
      await readers.refresh(readers.all());
      return isOver ? {} : { againInMs: 0 };
    },

    settled: () => readers.settled(),
  };
}

function memberRowOf(
  { ids, nodeId, clock }: Basics<"clock" | "ids" | "nodeId">,
  group: GroupRow,
  { consumerId, clientId }: { consumerId: string; clientId: string },
): MemberRow {
  const id = ids.next("sub");
  const now = clock.now();
  return {
    environment_id: group.environment_id,
    group_id: group.id,
    id,
    consumer_id: consumerId || id,
    client_id: clientId,
    node_id: nodeId,
    joined_at: now,
    seen_at: now,
  };
}

const insertMember = (store: Store, group: GroupRow, row: MemberRow): Promise<void> =>
  store.write(async (session) => {
    if ((await countMembers(session, group.environment_id, group.id)) >= groupMembersMax)
      throw new Fault(
        "resource_exhausted",
        `consumer group has the most members allowed (${groupMembersMax})`,
      );
    if ((await heartbeatMembers(session, [row])) === 0) throw missing("consumer group", group.name);
  });
