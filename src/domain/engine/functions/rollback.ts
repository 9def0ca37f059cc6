import { Fault, invalid, missing } from "../../../kit/fault.ts";
import type { FunctionDefinition, FunctionRecord } from "./definition.ts";
import { holdFunction, noteChange, placeSlug, raiseWith } from "./held-function.ts";
import { changeAt } from "./history.ts";
import type { RegisterDeps } from "./register.ts";
import * as rows from "./rows.ts";
import { changesClaims, laneLimitOf } from "./start-options.ts";

export interface RollbackTarget {
  entityVersion: number;
  reason: string;
  /** Throws unless the caller may register this definition. */
  permit: (definition: FunctionDefinition) => Promise<void>;
}

export interface RollbackDeps extends Omit<RegisterDeps, "requireRoomFor"> {
  /** Called after the commit of a function that is active again: its queued runs wait for a worker. */
  activated?: (target: { environmentId: string; functionId: string }) => void;
}

export async function rollbackFunction(
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
