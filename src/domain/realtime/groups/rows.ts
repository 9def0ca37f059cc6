import type { Instant } from "../../../kit/clock.ts";
import { columnsOf } from "../../../kit/columns.ts";
import {
  type DueRows,
  environmentsDue,
  type Slice,
  sliceOf,
  type WorkScope,
} from "../../../kit/round-robin.ts";
import { column, countOf, type Sql, sql } from "../../../kit/sql.ts";
import type { Session, Store } from "../../../store/store.ts";
import type { RowOf } from "../../../store/tables/index.ts";
import { groupShownMax } from "./limits.ts";

export type AckMode = "auto" | "manual";
export type Backpressure = "drop" | "block" | "buffer";
export type GroupStatus = "active" | "paused";

/** Settings that the owner of a group may change. */
export interface GroupSettings
  extends RowOf<
    "consumer_groups",
    "pattern, filter_expr, max_inflight, max_redeliveries, redeliver_delay_ms"
  > {
  ack_mode: AckMode;
  backpressure: Backpressure;
  /** JSON text. */
  metadata: string | null;
  status: GroupStatus;
}

/** The primary key of a group. */
export interface GroupKey {
  environment_id: string;
  namespace: string;
  name: string;
}

export interface GroupRow
  extends GroupKey,
    GroupSettings,
    RowOf<"consumer_groups", "id, dropped_count, given_up_count, created_at, updated_at"> {
  log: "events" | "topics";
  /** Grows with every change of the settings. */
  version: number;
  /** Every entry up to here was claimed, dropped, or does not match the group's pattern and filter. */
  position: number;
  /** Set for a group that a subscription created: it is deleted after this time without members. */
  kept_until: Instant | null;
}

export interface ListedGroup extends GroupRow {
  member_count: number;
  inflight_count: number;
}

type GroupReads = Pick<Store, "all" | "one" | "seams">;

const settingNames = [
  "pattern",
  "filter_expr",
  "ack_mode",
  "backpressure",
  "max_inflight",
  "max_redeliveries",
  "redeliver_delay_ms",
  "metadata",
  "status",
] as const satisfies readonly (keyof GroupSettings)[];

const columns = sql.raw(
  `environment_id, namespace, name, id, log, version, position, dropped_count, given_up_count, kept_until, created_at,
  updated_at, ${settingNames.join(", ")}`,
);

export const whereGroup = ({ environment_id, namespace, name }: GroupKey): Sql =>
  sql`environment_id = ${environment_id} AND namespace = ${namespace} AND name = ${name}`;

export const getGroup = (reads: Pick<Session, "one">, key: GroupKey): Promise<GroupRow | undefined> =>
  reads.one(sql`SELECT ${columns} FROM consumer_groups WHERE ${whereGroup(key)}`);

export const holdGroup = (session: Session, key: GroupKey): Promise<GroupRow | undefined> =>
  session.one(sql`SELECT ${columns} FROM consumer_groups WHERE ${whereGroup(key)}
      ORDER BY name ${session.seams.holdRow}`);

const listed = sql`${columns},
  (SELECT count(*) FROM group_members m WHERE m.environment_id = g.environment_id AND m.group_id = g.id) AS member_count,
  (SELECT count(*) FROM group_deliveries d WHERE d.environment_id = g.environment_id AND d.group_id = g.id)
    AS inflight_count`;

export const getListed = (reads: GroupReads, key: GroupKey): Promise<ListedGroup | undefined> =>
  reads.one(sql`SELECT ${listed} FROM consumer_groups g WHERE ${whereGroup(key)}`);

export interface GroupFilter {
  environmentId: string;
  namespace: string | undefined;
  status: GroupStatus | undefined;
}

function conditions({ environmentId, namespace, status }: GroupFilter): Sql[] {
  const where = [sql`environment_id = ${environmentId}`];
  if (namespace !== undefined) where.push(sql`namespace = ${namespace}`);
  if (status !== undefined) where.push(sql`status = ${status}`);
  return where;
}

/** By namespace and name, behind `after`. */
export function listGroups(
  reads: GroupReads,
  filter: GroupFilter,
  { after, limit }: { after: { namespace: string; name: string } | undefined; limit: number },
): Promise<ListedGroup[]> {
  const where = conditions(filter);
  if (after)
    where.push(
      sql`(namespace > ${after.namespace} OR (namespace = ${after.namespace} AND name > ${after.name}))`,
    );
  return reads.all(sql`SELECT ${listed} FROM consumer_groups g ${sql.where(where)}
    ORDER BY namespace, name LIMIT ${limit}`);
}

export const countGroups = (reads: Pick<Session, "one">, filter: GroupFilter): Promise<number> =>
  countOf(reads, sql`FROM consumer_groups ${sql.where(conditions(filter))}`);

/**
 * Where the log ends; undefined for a deleted environment. The lock keeps the environment until the
 * transaction ends.
 */
export async function endOf(
  session: Session,
  environmentId: string,
  log: GroupRow["log"],
): Promise<number | undefined> {
  const head = await session.one<{ position: number }>(
    sql`SELECT position FROM heads WHERE environment_id = ${environmentId} ${session.seams.shareRow}`,
  );
  if (!head || log === "events") return head?.position;
  const topics = await session.one<{ position: number }>(
    sql`SELECT position FROM topic_heads WHERE environment_id = ${environmentId}`,
  );
  return topics?.position ?? 0;
}

/** Answers 0 when the name is taken. */
export const insertGroup = (session: Session, group: GroupRow): Promise<number> =>
  session.run(sql`INSERT INTO consumer_groups (${columns})
    VALUES (${group.environment_id}, ${group.namespace}, ${group.name}, ${group.id}, ${group.log}, ${group.version},
      ${group.position}, 0, 0, ${group.kept_until}, ${group.created_at}, ${group.updated_at}, ${sql.join(
        settingNames.map((name) => sql`${group[name]}`),
        ", ",
      )})
    ON CONFLICT (environment_id, namespace, name) DO NOTHING`);

export const updateSettings = (session: Session, group: GroupRow): Promise<number> =>
  session.run(sql`UPDATE consumer_groups SET version = ${group.version}, kept_until = ${group.kept_until},
      updated_at = ${group.updated_at}, ${sql.join(
        settingNames.map((name) => sql`${sql.raw(name)} = ${group[name]}`),
        ", ",
      )} WHERE ${whereGroup(group)}`);

/** Deletes the group with its members and deliveries. The caller holds the lock of its row. */
export async function deleteGroup(
  session: Session,
  group: Pick<GroupRow, keyof GroupKey | "id">,
): Promise<void> {
  const owned = sql`environment_id = ${group.environment_id} AND group_id = ${group.id}`;
  await session.run(sql`DELETE FROM consumer_groups WHERE ${whereGroup(group)}`);
  await session.run(sql`DELETE FROM group_members WHERE ${owned}`);
  await session.run(sql`DELETE FROM group_deliveries WHERE ${owned}`);
}

const lapsed = (now: Instant): DueRows => ({
  table: "consumer_groups",
  columns: sql.raw("d.environment_id, d.namespace, d.name, d.id"),
  where: sql`d.kept_until IS NOT NULL`,
  dueAt: "kept_until",
  until: now - 1,
  scopeOrder: { dueAt: "kept_until + 0", by: ["namespace", "name"] },
});

export type LapsedGroup = Pick<GroupRow, keyof GroupKey | "id"> & { turn: number };

/** Groups that subscriptions created and whose `kept_until` has passed. */
export const lapsedGroups = (
  store: Pick<Store, "all" | "seams">,
  now: Instant,
  slice: Slice,
): Promise<LapsedGroup[]> => store.all(sliceOf(store.seams, lapsed(now), slice));

export const environmentsWithLapsed = (
  store: Pick<Store, "all" | "seams">,
  now: Instant,
): Promise<WorkScope[]> => store.all(environmentsDue(lapsed(now)));

/** The lowest position that some group of the log has not handled: retention must keep it. */
export async function leastUnhandled(
  store: Pick<Store, "all">,
  environmentId: string,
  log: GroupRow["log"],
): Promise<number | undefined> {
  const rows = await store.all<{ position: number; held: number | null }>(sql`SELECT g.position,
      (SELECT min(d.position) FROM group_deliveries d
        WHERE d.environment_id = g.environment_id AND d.group_id = g.id) AS held
    FROM consumer_groups g WHERE g.environment_id = ${environmentId} AND g.log = ${log}`);
  if (rows.length === 0) return undefined;
  return Math.min(...rows.map(({ position, held }) => Math.min(position + 1, held ?? position + 1)));
}

/** Groups that read topics: a topic's record counts its consumers. */
export const groupsOnTopics = (
  store: Pick<Store, "all">,
  environmentId: string,
): Promise<{ pattern: string; position: number; member_count: number }[]> =>
  store.all(sql`SELECT g.pattern, g.position, (SELECT count(*) FROM group_members m
      WHERE m.environment_id = g.environment_id AND m.group_id = g.id) AS member_count
    FROM consumer_groups g WHERE g.environment_id = ${environmentId} AND g.log = 'topics'`);

/** The groups as they are now, each with the time its next delivery is due. A deleted one is missing. */
export const groupsNow = (
  store: GroupReads,
  keys: readonly GroupKey[],
): Promise<(GroupRow & { due_at: Instant | null })[]> =>
  store.all(sql`SELECT ${sql.raw("g.environment_id, g.namespace, g.name, g.id, g.log, g.version, g.position")},
      g.dropped_count, g.given_up_count, g.kept_until, g.created_at, g.updated_at,
      ${sql.raw(settingNames.map((name) => `g.${name}`).join(", "))},
      (SELECT min(d.due_at) FROM group_deliveries d
        WHERE d.environment_id = g.environment_id AND d.group_id = g.id) AS due_at
    FROM ${store.seams.rowsFrom("i", {
      ...columnsOf(keys, { text: "environment_id namespace name" }),
    })} JOIN consumer_groups g ON g.environment_id = i.environment_id AND g.namespace = i.namespace
      AND g.name = i.name`);

/** Those of these groups that are there. */
export const namesOfGroups = (
  store: GroupReads & Pick<Store, "seams">,
  groups: readonly { environmentId: string; groupId: string }[],
): Promise<GroupKey[]> =>
  store.all(sql`SELECT g.environment_id, g.namespace, g.name
    FROM ${store.seams.rowsFrom("i", {
      environment_id: column.text(groups.map(({ environmentId }) => environmentId)),
      id: column.text(groups.map(({ groupId }) => groupId)),
    })} JOIN consumer_groups g ON g.environment_id = i.environment_id AND g.id = i.id`);

export interface ShownMember {
  id: string;
  consumer_id: string;
  client_id: string;
  joined_at: Instant;
}

export interface ShownDelivery
  extends RowOf<"group_deliveries", "event_id, position, attempt, consumer_id, due_at"> {
  /** Null while the delivery waits for its next attempt. */
  member_id: string | null;
}

/** What a group is about to do, for those who look after it. */
export interface GroupInside {
  /** Positions from the group's to the end of its log, of whatever pattern. */
  behind: number;
  members: ShownMember[];
  deliveries: ShownDelivery[];
}

export async function insideOf(store: Pick<Store, "all" | "one">, group: GroupRow): Promise<GroupInside> {
  const environment = sql`environment_id = ${group.environment_id}`;
  const own = sql`${environment} AND group_id = ${group.id}`;
  const heads = sql.raw(group.log === "events" ? "heads" : "topic_heads");
  const [head, members, deliveries] = await Promise.all([
    store.one<{ position: number }>(sql`SELECT position FROM ${heads} WHERE ${environment}`),
    store.all<ShownMember>(sql`SELECT id, consumer_id, client_id, joined_at FROM group_members WHERE ${own}
      ORDER BY joined_at, id LIMIT ${groupShownMax}`),
    store.all<ShownDelivery>(sql`SELECT event_id, position, attempt, member_id, consumer_id, due_at
      FROM group_deliveries WHERE ${own} ORDER BY position LIMIT ${groupShownMax}`),
  ]);
  return { behind: Math.max(0, (head?.position ?? 0) - group.position), members, deliveries };
}
