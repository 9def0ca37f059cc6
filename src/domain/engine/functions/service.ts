import { CelError } from "../../../kit/cel/cel.ts";
import type { Clock } from "../../../kit/clock.ts";
import { Fault, invalid, missing } from "../../../kit/fault.ts";
import type { Ids } from "../../../kit/ids.ts";
import { definitionsKeptMax } from "../../../kit/limits.ts";
import { pageSize, readCursor, writeCursor } from "../../../kit/page.ts";
import { sizedCache } from "../../../kit/sized-cache.ts";
import { type Session, type Store, StoreError } from "../../../store/store.ts";
import { readMatch } from "../waits/rules.ts";
import type { FunctionDefinition, FunctionFrame, FunctionRecord, FunctionStatus } from "./definition.ts";
import { appendChange, type ChangeType, changeAt, changesOf, type FunctionChange } from "./history.ts";
import * as rows from "./rows.ts";
import {
  definitionOf,
  parseStatus,
  type RegisterInput,
  requireMove,
  requireRoom,
  sameDefinition,
} from "./rules.ts";

export interface ListFunctionsInput {
  /** Substring of name or id, in either case. */
  name?: string;
  status?: string;
  mode?: string;
  limit?: number;
  offset?: number;
  cursor?: string;
}

export interface FunctionsPage {
  functions: FunctionRecord[];
  nextCursor: string | undefined;
  totalCount: number;
}

export interface Functions {
  /**
   * Creates or updates; only a changed definition (metadata included) gets a new version. A paused function stays paused,
   * an archived one becomes active again.
   */
  register(
    environmentId: string,
    input: RegisterInput,
    actorId: string,
  ): Promise<{ record: FunctionRecord; created: boolean }>;
  /** By id, else by slug. */
  get(environmentId: string, idOrSlug: string): Promise<FunctionRecord>;
  list(environmentId: string, input: ListFunctionsInput): Promise<FunctionsPage>;
  setStatus(
    environmentId: string,
    id: string,
    status: FunctionStatus,
    actorId: string,
  ): Promise<FunctionRecord>;
  /** Queued runs are cancelled with cause `function_deleted`; begun ones finish on the definition they are pinned to. */
  delete(environmentId: string, id: string, actorId: string): Promise<void>;
  /** Newest first; also of a function that is deleted. */
  history(
    environmentId: string,
    id: string,
    page: { before?: number; limit?: number },
  ): Promise<{ entries: FunctionChange[]; hasMore: boolean }>;
  /** One entry of the history. */
  at(environmentId: string, id: string, entityVersion: number): Promise<FunctionChange>;
  /** What stood after that change stands again, as the next version. */
  rollback(
    environmentId: string,
    id: string,
    target: {
      entityVersion: number;
      reason: string;
      /** Throws unless the caller may have that stand. */
      permit: (definition: FunctionDefinition) => Promise<void>;
    },
    actorId: string,
  ): Promise<FunctionRecord>;
  /** The definition a run is pinned to. */
  definitionAt(environmentId: string, functionId: string, version: number): Promise<FunctionDefinition>;
}

export interface FunctionsDeps {
  store: Store;
  clock: Pick<Clock, "now">;
  ids: Pick<Ids, "next">;
  /** Told after the commit of a function that is active again: its queued runs wait for a worker. */
  activated?: (target: { environmentId: string; functionId: string }) => void;
  cancelQueued: (
    session: Session,
    target: { environmentId: string; functionId: string; cause: string },
  ) => Promise<readonly string[]>;
  /** Told after the commit of the runs that `cancelQueued` ended. */
  cancelled?: (runIds: readonly string[]) => void;
  /** Inside the transaction that deletes a function, after its head is held. */
  onDelete?: (session: Session, target: { environmentId: string; functionId: string }) => Promise<void>;
  /** Told after the commit of a function whose limit has changed; `before` is undefined when it had none. */
  limitChanged?: (
    target: { environmentId: string; functionId: string },
    before: FunctionDefinition["concurrency"],
  ) => Promise<void>;
  /** Throws when there is no room for the definition. As far as this node knows: what it guards is bounded once more when it is used. */
  requireRoomFor?: (environmentId: string, definition: FunctionDefinition) => Promise<void>;
  /** Called after the commit; a hint that may be lost. */
  announce?: (frame: FunctionFrame) => void;
}

/** Of pinned definitions of earlier versions that a node keeps in memory, as JSON text. */
const pinnedCharsMax = 32 * 1024 * 1024;
const slugsTriedAtOnce = 50;
const numbered = (slug: string, number: number): string => (number === 1 ? slug : `${slug}-${number}`);

export function openFunctions(deps: FunctionsDeps): Functions {
  const { store, clock, ids, cancelQueued, cancelled, announce } = deps;
  const pinned = sizedCache<FunctionDefinition>({
    entriesMax: definitionsKeptMax,
    charsMax: pinnedCharsMax,
  });

  /** Every change of a function ends here, under the head's lock, last of all locks. */
  async function raiseDefinitions(session: Session, environmentId: string): Promise<void> {
    if (!(await rows.raiseDefinitions(session, environmentId))) throw missing("environment", environmentId);
  }

  /** The same of a new definition. With the head held, nobody else's function is added to those that are counted. */
  async function raiseWith(
    session: Session,
    environmentId: string,
    [before, after]: [FunctionDefinition | undefined, FunctionDefinition],
  ): Promise<void> {
    await raiseDefinitions(session, environmentId);
    requireRoom(before, after, await rows.totalsOf(session, environmentId));
  }

  async function hold(session: Session, environmentId: string, id: string): Promise<FunctionRecord> {
    const record = await rows.holdFunction(session, environmentId, id);
    if (!record) throw missing("function", id);
    return record;
  }

  /** A slug that was asked for must be free; one that was made from the name gets a number. */
  async function placeSlug(
    session: Session,
    environmentId: string,
    definition: FunctionDefinition,
    asked: boolean,
  ): Promise<FunctionDefinition> {
    const { id, slug: base } = definition;
    for (let from = 1; ; from += slugsTriedAtOnce) {
      const slugs = asked
        ? [base]
        : Array.from({ length: slugsTriedAtOnce }, (_, at) => numbered(base, from + at));
      const owners = await rows.ownersOf(session, environmentId, slugs);
      const slug = slugs.find((one) => (owners.get(one) ?? id) === id);
      if (slug !== undefined) return { ...definition, slug };
      if (asked)
        throw new Fault("already_exists", `slug: "${base}" belongs to function ${owners.get(base)}`, {
          field: "slug",
        });
    }
  }

  const note = (
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

  return {
    async register(environmentId, input, actorId) {
      const wanted = definitionOf(input);
      requireMatches(wanted);
      await deps.requireRoomFor?.(environmentId, wanted);
      const now = clock.now();
      const { change, relimited, ...registered } = await againWhenTaken(() =>
        store.write(async (session) => {
          const before = await rows.holdFunction(session, environmentId, wanted.id);
          const keepsSlug = before !== undefined && !input.slug;
          const definition = keepsSlug
            ? { ...wanted, slug: before.definition.slug }
            : await placeSlug(session, environmentId, wanted, Boolean(input.slug));
          const status = before === undefined || before.status === "archived" ? "active" : before.status;
          const same = before !== undefined && sameDefinition(before.definition, definition);
          if (same && before.status === status)
            return { record: before, created: false, change: undefined, relimited: undefined };
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
          // A reason belongs to a change, not to the first registration (proto/README.md 'Registering a
          // function').
          const reason = before ? input.changeReason : undefined;
          await note(session, record, { type: same ? "status_change" : "update", reason, actorId });
          await raiseWith(session, environmentId, [before?.definition, definition]);
          const relimited =
            before !== undefined && before.definition.concurrency?.limit !== definition.concurrency?.limit
              ? { before: before.definition.concurrency }
              : undefined;
          return before === undefined
            ? ({ record, created: true, change: "registered", relimited } as const)
            : ({ record, created: false, change: "updated", relimited } as const);
        }),
      );
      if (relimited) await deps.limitChanged?.({ environmentId, functionId: wanted.id }, relimited.before);
      if (change) announce?.({ change, record: registered.record, at: now });
      return registered;
    },

    async get(environmentId, idOrSlug) {
      const record =
        (await rows.getFunction(store, environmentId, idOrSlug)) ??
        (await rows.getBySlug(store, environmentId, idOrSlug));
      if (!record) throw missing("function", idOrSlug);
      return record;
    },

    async list(environmentId, input) {
      if (input.cursor !== undefined && (input.offset ?? 0) > 0)
        throw invalid("cursor", "cannot be combined with offset");
      const filter = readFilter(environmentId, input);
      const limit = pageSize(input.limit);
      const after = input.cursor === undefined ? undefined : readCursor("cursor", input.cursor);
      const [found, totalCount] = await Promise.all([
        rows.listFunctions(store, filter, {
          ...(after && { after }),
          limit: limit + 1,
          offset: input.offset ?? 0,
        }),
        rows.countFunctions(store, filter),
      ]);
      const functions = found.slice(0, limit);
      const last = functions.at(-1);
      const nextCursor =
        found.length > limit && last
          ? writeCursor({ at: last.createdAt, id: last.definition.slug })
          : undefined;
      return { functions, nextCursor, totalCount };
    },

    async setStatus(environmentId, id, status, actorId) {
      const now = clock.now();
      const { record, changed } = await store.write(async (session) => {
        const before = await hold(session, environmentId, id);
        if (before.status === status) return { record: before, changed: false };
        requireMove(id, before.status, status);
        const after = { ...before, status, updatedAt: now };
        await rows.updateFunction(session, after);
        await note(session, after, { type: "status_change", actorId });
        await raiseDefinitions(session, environmentId);
        return { record: after, changed: true };
      });
      if (changed && status === "active") deps.activated?.({ environmentId, functionId: id });
      if (changed) announce?.({ change: "updated", record, at: now });
      return record;
    },

    async delete(environmentId, id, actorId) {
      const target = { environmentId, functionId: id, cause: "function_deleted" };
      const { record, runIds } = await store.write(async (session) => {
        const before = await hold(session, environmentId, id);
        await rows.deleteFunction(session, environmentId, id);
        await note(session, before, { type: "delete", actorId });
        const waiting = await cancelQueued(session, target);
        await raiseDefinitions(session, environmentId);
        await deps.onDelete?.(session, target);
        // What committed between the look at the queue and the hold on the head has queued one more; nothing does from here.
        const late = await cancelQueued(session, target);
        return { record: before, runIds: [...waiting, ...late] };
      });
      cancelled?.(runIds);
      announce?.({ change: "deleted", record, at: clock.now() });
    },

    async history(environmentId, id, { before, limit }) {
      const most = pageSize(limit);
      const found = await changesOf(store, environmentId, id, { before, limit: most + 1 });
      if (found.length === 0 && before === undefined && !(await rows.getFunction(store, environmentId, id)))
        throw missing("function", id);
      return { entries: found.slice(0, most), hasMore: found.length > most };
    },

    async at(environmentId, id, entityVersion) {
      const change = await changeAt(store, environmentId, id, entityVersion);
      if (!change) throw missing("function version", `${id}/${entityVersion}`);
      return change;
    },

    async rollback(environmentId, id, { entityVersion, reason, permit }, actorId) {
      const [now, change] = await Promise.all([
        rows.getFunction(store, environmentId, id),
        changeAt(store, environmentId, id, entityVersion),
      ]);
      if (!now) throw missing("function", id);
      if (!change) throw missing("function version", `${id}/${entityVersion}`);
      const { definition: wanted, status } = change.snapshot;
      if (status === "archived" || change.changeType === "delete")
        throw invalid("version", "the function was archived or deleted by then; choose an earlier one");
      await permit(wanted);
      const { record, before } = await store.write(async (session) => {
        const held = await hold(session, environmentId, id);
        if (held.version !== now.version || held.updatedAt !== now.updatedAt)
          throw new Fault("aborted", "the function was changed meanwhile, try again", {
            headers: { "Retry-After": "1" },
          });
        const definition = await placeSlug(session, environmentId, wanted, false);
        const after: FunctionRecord = {
          ...held,
          definition,
          status,
          version: held.version + 1,
          updatedAt: Math.max(clock.now(), held.updatedAt + 1),
        };
        await rows.updateFunction(session, after);
        await rows.putVersion(session, after, actorId);
        await note(session, after, { type: "rollback", reason, actorId });
        await raiseWith(session, environmentId, [held.definition, definition]);
        return { record: after, before: held };
      });
      const target = { environmentId, functionId: id };
      if (before.definition.concurrency?.limit !== record.definition.concurrency?.limit)
        await deps.limitChanged?.(target, before.definition.concurrency);
      if (status === "active") deps.activated?.(target);
      announce?.({ change: "updated", record, at: record.updatedAt });
      return record;
    },

    async definitionAt(environmentId, functionId, version) {
      const key = `${environmentId}\n${functionId}\n${version}`;
      const known = pinned.get(key);
      if (known) return known;
      const found = await rows.readVersion(store, environmentId, functionId, version);
      if (!found)
        throw new Error(`run pinned to version ${version} of ${functionId}, which was never recorded`);
      pinned.set(key, found.definition, found.chars);
      return found.definition;
    },
  };
}

/** Of any number that try for one slug at once, one gets it in every round. */
const triesMax = 20;

/** Two first registrations at once: the one that comes second finds the other's row when it looks again. */
async function againWhenTaken<T>(work: () => Promise<T>): Promise<T> {
  for (let tries = 1; ; tries++) {
    try {
      return await work();
    } catch (error) {
      if (!(error instanceof StoreError && error.trouble === "unique") || tries === triesMax) throw error;
    }
  }
}

function readFilter(environmentId: string, input: ListFunctionsInput): rows.FunctionFilter {
  const status = input.status ? parseStatus(input.status) : undefined;
  if (input.status && !status)
    throw invalid("status", `"${input.status.slice(0, 40)}" is no function status`);
  const mode = input.mode?.toLowerCase().replace(/^execution_mode_/, "");
  if (mode && mode !== "pull" && mode !== "push") throw invalid("mode", "must be pull or push");
  return {
    environmentId,
    ...(input.name && { name: input.name }),
    ...(status && { status }),
    ...(mode && { mode: mode as "pull" | "push" }),
  };
}

/** Throws the fault that names the spec whose `match` is no path and no expression. */
function requireMatches({ cancelOn }: FunctionDefinition): void {
  for (const [at, { match }] of cancelOn.entries())
    try {
      readMatch(match);
    } catch (error) {
      if (error instanceof CelError) throw invalid(`cancelOn[${at}].match`, error.message);
      throw error;
    }
}
