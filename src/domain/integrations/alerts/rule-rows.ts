import type { Instant } from "../../../kit/clock.ts";
import { sql } from "../../../kit/sql.ts";
import { storedJson } from "../../../kit/stored-json.ts";
import type { Session, StoreReader } from "../../../store/store.ts";
import type { RowOf } from "../../../store/tables/index.ts";
import type { ConditionName, RuleBounds, RuleTarget } from "./rules.ts";

export interface RuleKey {
  environment_id: string;
  name: string;
}

export interface RuleRow
  extends RuleKey,
    RowOf<
      "alert_rules",
      `function_id, targets, sealed, repeat_after_ms, resolve_after_ms, silenced_until, seen, look_at,
  created_at, updated_at`
    > {
  condition: ConditionName;
  /** JSON texts: of `RuleBounds`, of `StoredTarget[]`, and of what the last look counted. */
  bounds: string;
}

const fields =
  sql.raw(`environment_id, name, condition, function_id, bounds, targets, sealed, repeat_after_ms,
  resolve_after_ms, silenced_until, seen, look_at, created_at, updated_at`);
const its = ({ environment_id, name }: RuleKey) => sql`environment_id = ${environment_id} AND name = ${name}`;

export const boundsOf = ({ bounds }: RuleRow): RuleBounds => storedJson<RuleBounds>(bounds) ?? {};
/** A target as a rule stores it for who may not read it: what knows it again, and how it is shown. */
export interface StoredTarget {
  key: string;
  line: string;
  shown: RuleTarget;
}

export const storedTargetsOf = ({ targets }: RuleRow): StoredTarget[] =>
  storedJson<StoredTarget[]>(targets) ?? [];

export const getRule = (reader: StoreReader, key: RuleKey): Promise<RuleRow | undefined> =>
  reader.one(sql`SELECT ${fields} FROM alert_rules WHERE ${its(key)}`);

export const holdRule = (session: Session, key: RuleKey): Promise<RuleRow | undefined> =>
  session.one(
    sql`SELECT ${fields} FROM alert_rules WHERE ${its(key)} ORDER BY name ${session.seams.holdRow}`,
  );

/** By name. */
export const listRules = (reader: StoreReader, environmentId: string): Promise<RuleRow[]> =>
  reader.all(sql`SELECT ${fields} FROM alert_rules WHERE environment_id = ${environmentId} ORDER BY name`);

export async function countRules(
  reader: StoreReader,
  environmentId: string,
  condition?: ConditionName,
): Promise<number> {
  const row = await reader.one<{ count: number }>(sql`SELECT count(*) AS count FROM alert_rules
    WHERE environment_id = ${environmentId} ${condition ? sql`AND condition = ${condition}` : sql.empty}`);
  return row?.count ?? 0;
}

export const putRule = (session: Session, row: RuleRow): Promise<number> =>
  session.run(sql`INSERT INTO alert_rules (${fields}) VALUES (${row.environment_id}, ${row.name}, ${row.condition},
      ${row.function_id}, ${row.bounds}, ${row.targets}, ${row.sealed}, ${sql.bigint(row.repeat_after_ms)},
      ${sql.bigint(row.resolve_after_ms)}, ${row.silenced_until}, ${row.seen}, ${sql.bigint(row.look_at)},
      ${sql.bigint(row.created_at)}, ${sql.bigint(row.updated_at)})
    ON CONFLICT (environment_id, name) DO UPDATE SET condition = excluded.condition,
      function_id = excluded.function_id, bounds = excluded.bounds, targets = excluded.targets,
      sealed = excluded.sealed, repeat_after_ms = excluded.repeat_after_ms,
      resolve_after_ms = excluded.resolve_after_ms, silenced_until = excluded.silenced_until, seen = excluded.seen,
      look_at = excluded.look_at, updated_at = excluded.updated_at`);

export const silenceRule = (
  session: Session,
  key: RuleKey,
  { until, now }: { until: Instant | null; now: Instant },
): Promise<number> =>
  session.run(sql`UPDATE alert_rules SET silenced_until = ${until}, updated_at = ${sql.bigint(now)}
    WHERE ${its(key)}`);

export async function deleteRule(session: Session, key: RuleKey): Promise<void> {
  const { environment_id: environmentId, name } = key;
  const own = sql`environment_id = ${environmentId} AND rule = ${name}`;
  await session.run(sql`DELETE FROM alert_deliveries WHERE environment_id = ${environmentId}
    AND alert_id IN (SELECT id FROM alerts WHERE ${own})`);
  await session.run(sql`DELETE FROM alerts WHERE ${own}`);
  await session.run(sql`DELETE FROM alert_rules WHERE ${its(key)}`);
}

/** Nothing is counted where no rule asks for it. */
export const forgetCounts = (session: Session, environmentId: string): Promise<number> =>
  session.run(sql`DELETE FROM failure_counts WHERE environment_id = ${environmentId} AND NOT EXISTS (
    SELECT 1 FROM alert_rules WHERE environment_id = ${environmentId} AND condition = 'run_failed')`);

/** Rules that are to be looked at, who waited longest first. */
export const dueRules = (reader: StoreReader, now: Instant, limit: number): Promise<RuleRow[]> =>
  reader.all(sql`SELECT ${fields} FROM alert_rules WHERE look_at <= ${sql.bigint(now)}
    ORDER BY look_at, environment_id, name LIMIT ${limit}`);

/** What a look counted, and when the next one is. */
export const noteLook = (
  session: Session,
  key: RuleKey,
  { seen, lookAt }: { seen: string | null; lookAt: Instant },
): Promise<number> =>
  session.run(sql`UPDATE alert_rules SET seen = ${seen}, look_at = ${sql.bigint(lookAt)} WHERE ${its(key)}`);

export const putOffLook = (session: Session, key: RuleKey, lookAt: Instant): Promise<number> =>
  session.run(sql`UPDATE alert_rules SET look_at = ${sql.bigint(lookAt)} WHERE ${its(key)}`);

/** Of the whole installation, for a new master key. */
export const sealedRules = (reader: StoreReader): Promise<(RuleKey & Pick<RuleRow, "sealed">)[]> =>
  reader.all(sql`SELECT environment_id, name, sealed FROM alert_rules ORDER BY environment_id, name`);

export const resealRule = (session: Session, key: RuleKey, sealed: string): Promise<number> =>
  session.run(sql`UPDATE alert_rules SET sealed = ${sealed} WHERE ${its(key)}`);
