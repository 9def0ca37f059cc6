import type { Clock, Instant } from "../../../kit/clock.ts";
import { Fault, missing } from "../../../kit/fault.ts";
import type { Ids } from "../../../kit/ids.ts";
import { roundRobin, type Slice, workOn } from "../../../kit/round-robin.ts";
import type { Basics, LeaderWrite, Session } from "../../../store/store.ts";
import { type GroupInput, settingsOf } from "./definition.ts";
import { groupsMax } from "./limits.ts";
import {
  countGroups,
  deleteGroup,
  endOf,
  environmentsWithLapsed,
  type GroupKey,
  holdGroup,
  insertGroup,
  type LapsedGroup,
  lapsedGroups,
} from "./rows.ts";

export interface NewGroup {
  key: GroupKey;
  input: GroupInput;
  /** Set for a group that a subscription makes. */
  keptUntil: Instant | null;
  /** The position that it begins behind; undefined: the end of the log. */
  startAfter?: number | undefined;
}

/** Inserts the group with its settings checked. Answers 0 when the name is taken. */
export async function createGroup(
  session: Session,
  { clock, ids }: { clock: Clock; ids: Ids },
  { key, input, keptUntil, startAfter }: NewGroup,
): Promise<number> {
  const settings = settingsOf(input);
  const now = clock.now();
  const end = await endOf(session, key.environment_id, settings.log);
  if (end === undefined) throw missing("environment", key.environment_id);
  const every = { environmentId: key.environment_id, namespace: undefined, status: undefined };
  if ((await countGroups(session, every)) >= groupsMax)
    throw new Fault(
      "resource_exhausted",
      `the environment has the most consumer groups allowed (${groupsMax})`,
    );
  return insertGroup(session, {
    ...key,
    ...settings,
    id: ids.next("group"),
    version: 1,
    position: Math.min(startAfter ?? end, end),
    dropped_count: 0,
    given_up_count: 0,
    kept_until: keptUntil,
    created_at: now,
    updated_at: now,
  });
}

const lapsedAtOnce = 100;

export type LapsedGroupsDeps = Basics<"store" | "clock" | "log">;

/** Deletes groups that subscriptions made and that have had no member for `groupKeptMs`. */
export async function forgetLapsed(deps: LapsedGroupsDeps, write: LeaderWrite): Promise<void> {
  const { store, clock } = deps;
  const now = clock.now();
  const forgetSome = async (slice: Slice) => {
    const lapsed = await lapsedGroups(store, now, slice);
    for (const one of lapsed) await write((session) => forgetOne(session, deps, one));
    return lapsed;
  };
  const work = workOn(forgetSome, () => environmentsWithLapsed(store, now));
  await roundRobin([work], { clock, limit: lapsedAtOnce });
}

/** Looks again under the lock: a member may have come since, or another group may have the name. */
async function forgetOne(
  session: Session,
  { clock, log }: LapsedGroupsDeps,
  lapsed: LapsedGroup,
): Promise<void> {
  const group = await holdGroup(session, lapsed);
  if (group?.id !== lapsed.id || group.kept_until === null || group.kept_until >= clock.now()) return;
  await deleteGroup(session, group);
  log.info("groups.lapsed", { environmentId: group.environment_id, group: group.name });
}
