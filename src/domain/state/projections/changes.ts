import type { Instant } from "../../../kit/clock.ts";
import { missing } from "../../../kit/fault.ts";
import type { Ids } from "../../../kit/ids.ts";
import { pageSize } from "../../../kit/page.ts";
import { sql } from "../../../kit/sql.ts";
import type { Session, Store } from "../../../store/store.ts";
import { changesMax } from "./limits.ts";
import { getProjection, type ProjectionKey, type ProjectionRow, whereProjection } from "./rows.ts";
import { isStorable, unknownProjection } from "./rules.ts";
import { getSqlProjection, type SqlProjectionRow } from "./sql/rows.ts";

export type ProjectionChangeType = "update" | "status_change" | "delete";

/** What a projection is, without how far it is. */
export type ProjectionSnapshot = Pick<
  ProjectionRow,
  "name" | "mode" | "status" | "events" | "partition_path" | "version"
> & { created_at: Instant } & Partial<Pick<SqlProjectionRow, "table_sql" | "event_handlers" | "description">>;

export interface ProjectionRevision {
  event_id: string;
  /** 1, 2, 3, … for each name, also when it was deleted and registered again. */
  entity_version: number;
  name: string;
  change_type: ProjectionChangeType;
  snapshot: ProjectionSnapshot;
  actor_id: string;
  recorded_at: Instant;
}

/** Who changes a projection, and when. */
export interface ChangeBy {
  actorId: string;
  ids: Pick<Ids, "next">;
  now: Instant;
}

/**
 * Notes how a projection stands, before it is deleted or after another change; nothing where it stands as
 * before. The caller holds its row, or is the first to register it.
 */
export async function noteChange(
  session: Session,
  key: ProjectionKey,
  type: ProjectionChangeType,
  { actorId, ids, now }: ChangeBy,
): Promise<void> {
  const row = await getProjection(session, key);
  if (!row) return;
  const made = row.mode === "sql" ? await getSqlProjection(session, key) : undefined;
  const { name, mode, status, events, partition_path, version, created_at } = row;
  const snapshot: ProjectionSnapshot = {
    ...{ name, mode, status, events, partition_path, version, created_at },
    ...(made && {
      ...{ table_sql: made.table_sql, event_handlers: made.event_handlers, description: made.description },
    }),
  };
  const [last] = await revisionsOf(session, key, { limit: 1 });
  if (type !== "delete" && last && last.change_type !== "delete") {
    // Its status may have changed by itself since, which makes no definition another one.
    const stands = type === "update" ? { ...snapshot, status: last.snapshot.status } : snapshot;
    if (JSON.stringify(stands) === JSON.stringify(last.snapshot)) return;
  }
  const place = (last?.entity_version ?? 0) + 1;
  await session.run(sql`INSERT INTO projection_changes (environment_id, name, entity_version, event_id, change_type,
      snapshot, actor_id, recorded_at)
    VALUES (${key.environment_id}, ${key.name}, ${place}, ${ids.next("evt")}, ${type},
      ${JSON.stringify(snapshot)}, ${actorId}, ${now})`);
  if (place > changesMax)
    await session.run(sql`DELETE FROM projection_changes WHERE ${whereProjection(key)}
      AND entity_version <= ${place - changesMax}`);
}

/** Newest first: those below `before`, or the one `at` this version. */
async function revisionsOf(
  reads: Pick<Store, "all">,
  { environment_id, name }: ProjectionKey,
  { before, at, limit }: { before?: number; at?: number; limit: number },
): Promise<ProjectionRevision[]> {
  if (!isStorable(name)) return [];
  const where = [whereProjection({ environment_id, name })];
  if (before !== undefined) where.push(sql`entity_version < ${before}`);
  if (at !== undefined) where.push(sql`entity_version = ${at}`);
  const rows = await reads.all<
    Omit<ProjectionRevision, "snapshot"> & { snapshot: string }
  >(sql`SELECT event_id,
      entity_version, name, change_type, snapshot, actor_id, recorded_at FROM projection_changes
    ${sql.where(where)} ORDER BY entity_version DESC LIMIT ${limit}`);
  return rows.map((row) => ({ ...row, snapshot: JSON.parse(row.snapshot) as ProjectionSnapshot }));
}

/** The recorded changes of projections. */
export const projectionHistory = (store: Store) => ({
  /** Newest first; also of a projection that is deleted. */
  async history(
    environment_id: string,
    name: string,
    { before, limit }: { before?: number; limit?: number },
  ) {
    const most = pageSize(limit);
    const key = { environment_id, name };
    const found = await revisionsOf(store, key, { ...(before !== undefined && { before }), limit: most + 1 });
    if (found.length === 0 && before === undefined && !(await getProjection(store, key)))
      throw unknownProjection(name);
    return { entries: found.slice(0, most), hasMore: found.length > most };
  },

  /** One entry of the history. */
  async revision(environment_id: string, name: string, version: number): Promise<ProjectionRevision> {
    const [found] = await revisionsOf(store, { environment_id, name }, { at: version, limit: 1 });
    if (!found) throw missing("projection version", `${name.slice(0, 128)}/${version}`);
    return found;
  },
});
