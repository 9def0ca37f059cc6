import type { Clock } from "../../../kit/clock.ts";
import type { Log } from "../../../kit/log.ts";
import { roundRobin, type Slice, workOn } from "../../../kit/round-robin.ts";
import type { LeaderWrite, Session, Store } from "../../../store/store.ts";
import { deleteGroup, environmentsWithLapsed, holdGroup, type LapsedGroup, lapsedGroups } from "./rows.ts";

const lapsedAtOnce = 100;

export interface LapsedGroupsDeps {
  store: Store;
  clock: Clock;
  log: Log;
}

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
