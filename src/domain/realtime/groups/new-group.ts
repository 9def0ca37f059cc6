import type { Clock, Instant } from "../../../kit/clock.ts";
import { Fault, missing } from "../../../kit/fault.ts";
import type { Ids } from "../../../kit/ids.ts";
import type { Session } from "../../../store/store.ts";
import { type GroupInput, settingsOf } from "./definition.ts";
import { groupsMax } from "./limits.ts";
import { countGroups, endOf, type GroupKey, insertGroup } from "./rows.ts";

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
