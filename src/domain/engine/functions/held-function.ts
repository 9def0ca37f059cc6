import type { Clock } from "../../../kit/clock.ts";
import { Fault, missing } from "../../../kit/fault.ts";
import type { Ids } from "../../../kit/ids.ts";
import type { Session } from "../../../store/store.ts";
import type { FunctionDefinition, FunctionRecord } from "./definition.ts";
import { appendChange, type ChangeType } from "./history.ts";
import * as rows from "./rows.ts";
import { requireRoom } from "./rules.ts";

/**
 * Parts of every transaction that changes a function: its row is locked first, the head of the environment
 * last.
 */

export async function holdFunction(
  session: Session,
  environmentId: string,
  id: string,
): Promise<FunctionRecord> {
  const record = await rows.holdFunction(session, environmentId, id);
  if (!record) throw missing("function", id);
  if (record.isUnread)
    throw new Fault(
      "failed_precondition",
      `what is stored of function ${id} cannot be read: register it again before anything else`,
    );
  return record;
}

/**
 * Raises the version of the environment's definitions: flushes that matched with the previous one are
 * refused.
 */
export async function raiseDefinitions(session: Session, environmentId: string): Promise<void> {
  if (!(await rows.raiseDefinitions(session, environmentId))) throw missing("environment", environmentId);
}

/**
 * The same for another definition. The head's lock makes the totals exact: two changes at once cannot both
 * take the last room.
 */
export async function raiseWith(
  session: Session,
  environmentId: string,
  [before, after]: [FunctionDefinition | undefined, FunctionDefinition],
): Promise<void> {
  await raiseDefinitions(session, environmentId);
  requireRoom(before, after, await rows.totalsOf(session, environmentId));
}

export const noteChange = (
  { ids, clock }: { ids: Pick<Ids, "next">; clock: Pick<Clock, "now"> },
  session: Session,
  snapshot: FunctionRecord,
  change: { type: ChangeType; reason?: string | undefined; actorId: string },
): Promise<void> =>
  appendChange(session, {
    snapshot,
    changeType: change.type,
    changeReason: change.reason ?? "",
    actorId: change.actorId,
    eventId: ids.next("evt"),
    recordedAt: clock.now(),
  });

const slugsTriedAtOnce = 50;
const numbered = (slug: string, number: number): string => (number === 1 ? slug : `${slug}-${number}`);

/**
 * A slug that the caller asked for must be free; one that was made from the name gets the first free number.
 */
export async function placeSlug(
  session: Session,
  environmentId: string,
  definition: FunctionDefinition,
  isAskedFor: boolean,
): Promise<FunctionDefinition> {
  const { id, slug: base } = definition;
  for (let from = 1; ; from += slugsTriedAtOnce) {
    const slugs = isAskedFor
      ? [base]
      : Array.from({ length: slugsTriedAtOnce }, (_, at) => numbered(base, from + at));
    const owners = await rows.ownersOf(session, environmentId, slugs);
    const slug = slugs.find((one) => (owners.get(one) ?? id) === id);
    if (slug !== undefined) return { ...definition, slug };
    if (isAskedFor)
      throw new Fault("already_exists", `slug: "${base}" belongs to function ${owners.get(base)}`, {
        field: "slug",
      });
  }
}
