import type { AddressGuard } from "../../../kit/addresses.ts";
import { CelError } from "../../../kit/cel/cel.ts";
import type { Clock } from "../../../kit/clock.ts";
import { Fault, invalid, missing } from "../../../kit/fault.ts";
import type { Ids } from "../../../kit/ids.ts";
import { requireAllowedHost } from "../../../kit/outward-call.ts";
import { type Basics, type Session, StoreError } from "../../../store/store.ts";
import type { DeclaredAttribute } from "../attributes/rules.ts";
import { readMatch } from "../waits/rules.ts";
import {
  appendChange,
  type ChangeType,
  type FunctionDefinition,
  type FunctionFrame,
  type FunctionRecord,
} from "./definition.ts";
import * as rows from "./rows.ts";
import { definitionOf, noticesOf, type RegisterInput, requireRoom, sameDefinition } from "./rules.ts";
import { changesClaims, laneLimitOf } from "./start-options.ts";

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

export interface RegisterDeps extends Basics<"store" | "log"> {
  clock: Pick<Clock, "now">;
  ids: Pick<Ids, "next">;
  /** Which addresses endpoints may have. */
  guard?: AddressGuard;
  /**
   * Called after the commit of a function whose limit has changed; `before` is undefined when it had none.
   */
  limitChanged?: (
    target: { environmentId: string; functionId: string },
    before: number | undefined,
  ) => Promise<void>;
  /**
   * Throws when this node knows of no room for the definition. The exact check is made when the definition is
   * used.
   */
  requireRoomFor?: (environmentId: string, definition: FunctionDefinition) => Promise<void>;
  /** Makes the names of attributes inside the transaction; throws for a name of another type. */
  declareAttributes?: (
    session: Session,
    environmentId: string,
    attributes: readonly DeclaredAttribute[],
  ) => Promise<void>;
  /** Called after the commit; a hint that may be lost. */
  announce?: (frame: FunctionFrame) => void;
}

interface Registered {
  record: FunctionRecord;
  before: FunctionRecord | undefined;
  isChanged: boolean;
}

export async function registerFunction(
  deps: RegisterDeps,
  environmentId: string,
  input: RegisterInput,
  actorId: string,
): Promise<{ record: FunctionRecord; created: boolean; notices: string[] }> {
  const wanted = definitionOf(input);
  if (wanted.endpointUrl && deps.guard) requireAllowedHost("endpointUrl", wanted.endpointUrl, deps.guard);
  requireMatches(wanted);
  await deps.requireRoomFor?.(environmentId, wanted);
  const now = deps.clock.now();
  const { record, before, isChanged } = await againWhenTaken(() =>
    deps.store.write((session) => put(deps, session, { environmentId, wanted, input, actorId, now })),
  );
  const created = before === undefined;
  if (before && changesClaims(before.definition, record.definition))
    await deps.limitChanged?.({ environmentId, functionId: wanted.id }, laneLimitOf(before.definition));
  if (isChanged) deps.announce?.({ change: created ? "registered" : "updated", record, at: now });
  const notices = noticesOf(record.definition);
  if (notices.length > 0) deps.log.info("functions.notices", { environmentId, id: wanted.id, notices });
  return { record, created, notices };
}

async function put(
  deps: RegisterDeps,
  session: Session,
  {
    environmentId,
    wanted,
    input,
    actorId,
    now,
  }: {
    environmentId: string;
    wanted: FunctionDefinition;
    input: RegisterInput;
    actorId: string;
    now: number;
  },
): Promise<Registered> {
  const before = await rows.holdFunction(session, environmentId, wanted.id);
  const keepsSlug = before !== undefined && !input.slug;
  const definition = keepsSlug
    ? { ...wanted, slug: before.definition.slug }
    : await placeSlug(session, environmentId, wanted, Boolean(input.slug));
  const status = before === undefined || before.status === "archived" ? "active" : before.status;
  const same = before !== undefined && sameDefinition(before.definition, definition);
  if (same && before.status === status) return { record: before, before, isChanged: false };
  if (definition.attributes) await deps.declareAttributes?.(session, environmentId, definition.attributes);
  const version = same
    ? before.version
    : (before?.version ?? (await rows.lastVersion(session, environmentId, definition.id))) + 1;
  const record: FunctionRecord = {
    environmentId,
    definition,
    status,
    version,
    createdAt: before?.createdAt ?? now,
    updatedAt: now,
  };
  await (before ? rows.updateFunction : rows.insertFunction)(session, record);
  if (!same) await rows.putVersion(session, record, actorId);
  // The first registration is no change: it gets no reason.
  const reason = before ? input.changeReason : undefined;
  await noteChange(deps, session, record, { type: same ? "status_change" : "update", reason, actorId });
  await raiseWith(session, environmentId, [before?.definition, definition]);
  return { record, before, isChanged: true };
}

/** However many register the same slug at once, each round lets one of them in. */
const triesMax = 20;

/**
 * Two first registrations at once: the second fails on the unique index, and finds the first one's row when
 * it tries again.
 */
async function againWhenTaken<T>(work: () => Promise<T>): Promise<T> {
  for (let tries = 1; ; tries++) {
    try {
      return await work();
    } catch (error) {
      if (!(error instanceof StoreError && error.trouble === "unique") || tries === triesMax) throw error;
    }
  }
}

/** Throws the fault that names the `cancelOn` entry whose `match` is neither a path nor an expression. */
function requireMatches({ cancelOn }: FunctionDefinition): void {
  for (const [at, { match }] of cancelOn.entries())
    try {
      readMatch(match);
    } catch (error) {
      if (error instanceof CelError) throw invalid(`cancelOn[${at}].match`, error.message);
      throw error;
    }
}
