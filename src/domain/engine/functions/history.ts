import { inCamelCase } from "../../../kit/cases.ts";
import { sql } from "../../../kit/sql.ts";
import type { Session, Store } from "../../../store/store.ts";
import type { RowOf } from "../../../store/tables/row.ts";
import type { FunctionRecord } from "./definition.ts";

export type ChangeType = "update" | "status_change" | "rollback" | "delete";

/**
 * A function as it stood after one change; the entries of one are the stream `svc:fn:{id}`, and never change.
 */
export type FunctionChange = ReturnType<typeof toChange>;

const names =
  "event_id, entity_version, function_id, snapshot, change_type, change_reason, actor_id, recorded_at";
const columns = sql.raw(names);

interface FunctionHistoryRow extends RowOf<"function_history", typeof names> {
  /** 1, 2, 3, … for each function, also when it was deleted and registered again. */
  entity_version: number;
  change_type: ChangeType;
}

const toChange = (row: FunctionHistoryRow) => ({
  ...inCamelCase(row),
  snapshot: JSON.parse(row.snapshot) as FunctionRecord,
  changeReason: row.change_reason ?? "",
});

/** The caller holds the function's row, or is the first to register it. */
export async function appendChange(
  session: Session,
  change: Omit<FunctionChange, "entityVersion" | "functionId">,
): Promise<void> {
  const { snapshot } = change;
  const { environmentId, definition } = snapshot;
  await session.run(sql`INSERT INTO function_history
      (environment_id, function_id, entity_version, event_id, change_type, snapshot, change_reason, actor_id, recorded_at)
    SELECT ${environmentId}, ${definition.id}, COALESCE(max(entity_version), 0) + 1, ${change.eventId},
      ${change.changeType}, ${JSON.stringify(snapshot)}, ${change.changeReason || null}, ${change.actorId},
      ${sql.bigint(change.recordedAt)}
    FROM function_history WHERE environment_id = ${environmentId} AND function_id = ${definition.id}`);
}

/** Newest first, from below `before` when it is given. */
export async function changesOf(
  store: Pick<Store, "all">,
  environmentId: string,
  functionId: string,
  page: { before: number | undefined; limit: number },
): Promise<FunctionChange[]> {
  const below = page.before === undefined ? sql.empty : sql`AND entity_version < ${page.before}`;
  const rows = await store.all<FunctionHistoryRow>(sql`SELECT ${columns} FROM function_history
    WHERE environment_id = ${environmentId} AND function_id = ${functionId} ${below}
    ORDER BY entity_version DESC LIMIT ${page.limit}`);
  return rows.map(toChange);
}

export async function changeAt(
  store: Pick<Store, "one">,
  environmentId: string,
  functionId: string,
  entityVersion: number,
): Promise<FunctionChange | undefined> {
  const row = await store.one<FunctionHistoryRow>(sql`SELECT ${columns} FROM function_history
    WHERE environment_id = ${environmentId} AND function_id = ${functionId} AND entity_version = ${entityVersion}`);
  return row && toChange(row);
}
