import { Fault, invalid, missing } from "../../../kit/fault.ts";
import { countedPage, type PageQuery, pageSize, pageStart, writeCursor } from "../../../kit/page.ts";
import type { Session, Store } from "../../../store/store.ts";
import { violationsOf } from "../../record/integrity/rules.ts";
import type { IntegrityCheck } from "../../record/integrity/service.ts";
import {
  changeAt,
  changesOf,
  type DefinitionsCache,
  type FunctionChange,
  type FunctionDefinition,
  type FunctionRecord,
  type FunctionStatus,
} from "./definition.ts";
import {
  holdFunction,
  noteChange,
  placeSlug,
  type RegisterDeps,
  raiseDefinitions,
  raiseWith,
  registerFunction,
} from "./register.ts";
import * as rows from "./rows.ts";
import { readDefinitions } from "./rows.ts";
import { functionStatuses, parseStatus, type RegisterInput, requireMove } from "./rules.ts";
import { changesClaims, laneLimitOf } from "./start-options.ts";

interface RollbackTarget {
  entityVersion: number;
  reason: string;
  /** Throws unless the caller may register this definition. */
  permit: (definition: FunctionDefinition) => Promise<void>;
}

interface RollbackDeps extends Omit<RegisterDeps, "requireRoomFor"> {
  /** Called after the commit of a function that is active again: its queued runs wait for a worker. */
  activated?: (target: { environmentId: string; functionId: string }) => void;
}

async function rollbackFunction(
  deps: RollbackDeps,
  environmentId: string,
  id: string,
  { entityVersion, reason, permit }: RollbackTarget,
  actorId: string,
): Promise<FunctionRecord> {
  const { store, clock } = deps;
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
    const held = await holdFunction(session, environmentId, id);
    // `permit` was asked about the function as it was read, without a lock.
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
    if (definition.attributes) await deps.declareAttributes?.(session, environmentId, definition.attributes);
    await rows.updateFunction(session, after);
    await rows.putVersion(session, after, actorId);
    await noteChange(deps, session, after, { type: "rollback", reason, actorId });
    await raiseWith(session, environmentId, [held.definition, definition]);
    return { record: after, before: held };
  });
  const target = { environmentId, functionId: id };
  if (changesClaims(before.definition, record.definition))
    await deps.limitChanged?.(target, laneLimitOf(before.definition));
  if (status === "active") deps.activated?.(target);
  deps.announce?.({ change: "updated", record, at: record.updatedAt });
  return record;
}

export interface ListFunctionsInput extends PageQuery {
  /** Substring of name or id, in either case. */
  name?: string;
  status?: string;
  mode?: string;
}

export interface FunctionsPage {
  functions: FunctionRecord[];
  nextCursor: string | undefined;
  totalCount: number;
}

export interface HeldTarget {
  environmentId: string;
  id: string;
  actorId: string;
  /** Left out: as it is. */
  status: FunctionStatus | undefined;
}

export type Functions = ReturnType<typeof openFunctions>;

export interface FunctionsDeps extends RegisterDeps, RollbackDeps {
  cancelQueued: (
    session: Session,
    target: { environmentId: string; functionId: string; cause: string },
  ) => Promise<readonly string[]>;
  /** Called after the commit with the runs that `cancelQueued` ended. */
  cancelled?: (environmentId: string, runIds: readonly string[]) => void;
  /** Called inside the transaction that deletes a function, while its head is locked. */
  onDelete?: (session: Session, target: { environmentId: string; functionId: string }) => Promise<void>;
}

export function openFunctions(deps: FunctionsDeps) {
  const { store, clock, cancelQueued, cancelled, announce } = deps;

  async function holding<T>(
    { environmentId, id, actorId, status }: HeldTarget,
    also: (session: Session, record: FunctionRecord) => Promise<T>,
  ): Promise<{ record: FunctionRecord; result: T }> {
    const now = clock.now();
    const { record, changed, result } = await store.write(async (session) => {
      const before = await holdFunction(session, environmentId, id);
      if (status === undefined || before.status === status)
        return { record: before, changed: false, result: await also(session, before) };
      requireMove(id, before.status, status);
      const after = { ...before, status, updatedAt: now };
      await rows.updateFunction(session, after);
      await noteChange(deps, session, after, { type: "status_change", actorId });
      await raiseDefinitions(session, environmentId);
      return { record: after, changed: true, result: await also(session, after) };
    });
    if (changed && status === "active") deps.activated?.({ environmentId, functionId: id });
    if (changed) announce?.({ change: "updated", record, at: now });
    return { record, result };
  }

  return {
    /**
     * Creates or updates; only a changed definition (metadata included) gets a new version. A paused function
     * stays paused, an archived one becomes active again.
     */
    register: (environmentId: string, input: RegisterInput, actorId: string) =>
      registerFunction(deps, environmentId, input, actorId),

    /** By id, else by slug. */
    async get(environmentId: string, idOrSlug: string): Promise<FunctionRecord> {
      const record =
        (await rows.getFunction(store, environmentId, idOrSlug)) ??
        (await rows.getBySlug(store, environmentId, idOrSlug));
      if (!record) throw missing("function", idOrSlug);
      return record;
    },

    async list(environmentId: string, input: ListFunctionsInput): Promise<FunctionsPage> {
      const filter = readFilter(environmentId, input);
      const start = pageStart(input);
      const { items, ...page } = await countedPage(
        pageSize(input.limit),
        (limit) => rows.listFunctions(store, filter, { ...start, limit }),
        () => rows.countFunctions(store, filter),
        ({ createdAt, definition }) => writeCursor({ at: createdAt, id: definition.slug }),
      );
      return { functions: items, ...page };
    },

    setStatus: async (environmentId: string, id: string, status: FunctionStatus, actorId: string) =>
      (await holding({ environmentId, id, actorId, status }, async () => undefined)).record,

    /**
     * Runs `also` in a transaction that holds the function. Where its status changes, the transaction holds
     * the head of the environment too. Events up to the head's position were matched with the old status,
     * later events with the new one.
     */
    withFunction: async <T>(
      target: HeldTarget,
      also: (session: Session, record: FunctionRecord) => Promise<T>,
    ) => (await holding(target, also)).result,

    /**
     * Queued runs are cancelled with cause `function_deleted`; begun ones finish on the definition they are
     * pinned to.
     */
    async delete(environmentId: string, id: string, actorId: string) {
      const target = { environmentId, functionId: id, cause: "function_deleted" };
      const { record, runIds } = await store.write(async (session) => {
        const before = await holdFunction(session, environmentId, id);
        await rows.deleteFunction(session, environmentId, id);
        await noteChange(deps, session, before, { type: "delete", actorId });
        const waiting = await cancelQueued(session, target);
        await raiseDefinitions(session, environmentId);
        await deps.onDelete?.(session, target);
        // A flush that committed before the head was locked may have queued another run. After the lock none
        // can.
        const late = await cancelQueued(session, target);
        return { record: before, runIds: [...waiting, ...late] };
      });
      cancelled?.(environmentId, runIds);
      announce?.({ change: "deleted", record, at: clock.now() });
    },

    /** Newest first; also of a function that is deleted. */
    async history(environmentId: string, id: string, { before, limit }: { before?: number; limit?: number }) {
      const most = pageSize(limit);
      const found = await changesOf(store, environmentId, id, { before, limit: most + 1 });
      if (found.length === 0 && before === undefined && !(await rows.getFunction(store, environmentId, id)))
        throw missing("function", id);
      return { entries: found.slice(0, most), hasMore: found.length > most };
    },

    /** One entry of the history. */
    async at(environmentId: string, id: string, entityVersion: number): Promise<FunctionChange> {
      const change = await changeAt(store, environmentId, id, entityVersion);
      if (!change) throw missing("function version", `${id}/${entityVersion}`);
      return change;
    },

    /** Registers the definition of an earlier change as the next version. */
    rollback: (environmentId: string, id: string, target: RollbackTarget, actorId: string) =>
      rollbackFunction(deps, environmentId, id, target, actorId),
  };
}

function readFilter(environmentId: string, input: ListFunctionsInput): rows.FunctionFilter {
  const status = input.status ? parseStatus(input.status) : undefined;
  if (input.status && !status)
    throw invalid(
      "status",
      `unknown function status "${input.status.slice(0, 40)}" (one of ${functionStatuses.join(", ")})`,
    );
  const mode = input.mode?.toLowerCase().replace(/^execution_mode_/, "");
  if (mode && mode !== "pull" && mode !== "push")
    throw invalid("mode", `unknown mode "${mode.slice(0, 40)}" (one of pull, push)`);
  return {
    environmentId,
    ...(input.name && { name: input.name }),
    ...(status && { status }),
    ...(mode && { mode: mode as "pull" | "push" }),
  };
}

/** Of an environment that this node knows, nothing is read. */
export const functionsCheck = (
  store: Store,
  definitions: Pick<DefinitionsCache, "known">,
): IntegrityCheck => ({
  name: "functions.unread",
  about:
    "Functions of which the definition cannot be read: nothing starts them until they are registered again.",
  async run(environmentId) {
    const records =
      definitions.known(environmentId)?.unread ??
      (await readDefinitions(store, environmentId))?.records ??
      [];
    return violationsOf(
      records.flatMap(({ isUnread, definition: { id }, updatedAt }) =>
        isUnread ? { id, at: updatedAt } : [],
      ),
    );
  },
});
