import { Fault, missing } from "../../../kit/fault.ts";
import type { Basics, Store } from "../../../store/store.ts";
import type { GroupChange } from "./ack.ts";
import type { GroupReader } from "./group-reader.ts";
import { dismissSilent, keepGroups, sendHeartbeats } from "./heartbeats.ts";
import { groupMembersMax } from "./limits.ts";
import { LocalReaders, type LocalReadersDeps } from "./local-readers.ts";
import { type GroupSubscriber, newGroupMember } from "./member.ts";
import { countMembers, heartbeatMembers, type MemberRow, removeMember } from "./member-rows.ts";
import type { GroupKey, GroupRow } from "./rows.ts";

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
