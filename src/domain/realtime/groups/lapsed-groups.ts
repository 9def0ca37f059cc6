import { roundRobin, type Slice, workOn } from "../../../kit/round-robin.ts";
import type { Basics, LeaderWrite, Session } from "../../../store/store.ts";
import { deleteGroup, environmentsWithLapsed, holdGroup, type LapsedGroup, lapsedGroups } from "./rows.ts";

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
