import type { Clock } from "../../../kit/clock.ts";
import { roundRobin, type Slice, workOn } from "../../../kit/round-robin.ts";
import type { Basics } from "../../../store/store.ts";
import type { GroupChange } from "./ack.ts";
import type { GroupReader } from "./group-reader.ts";
import { groupKeptMs, groupSilenceMs, groupSliceMax } from "./limits.ts";
import { type GroupMember, noteHeartbeat } from "./member.ts";
import {
  environmentsSilent,
  heartbeatMembers,
  keepOn,
  type MemberRow,
  removeMember,
  silentMembers,
} from "./member-rows.ts";

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
export async function sendHeartbeats(deps: HeartbeatsDeps, members: readonly GroupMember[]): Promise<void> {
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
export async function keepGroups(
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
export function dismissSilent(deps: HeartbeatsDeps): Promise<boolean> {
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
