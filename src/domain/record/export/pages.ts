import type { Instant } from "../../../kit/clock.ts";
import { column, type Sql, type SqlValue, sql } from "../../../kit/sql.ts";
import type { ExportedTable } from "../../../store/exported-tables.ts";
import type { Row, Store } from "../../../store/store.ts";
import { exportPageBytesMax, exportPageRowsMax } from "./limits.ts";
import type { ExportedHead } from "./rows.ts";

/** What of a table is read. */
export interface PageScope {
  orgId: string;
  /** Its log is read up to its position. */
  head?: ExportedHead;
  /** Events are read after this position. */
  after?: number;
  runIds?: readonly string[];
  from: Instant | undefined;
  to: Instant | undefined;
  /** When the export began: what is made later is not in it. */
  now: Instant;
  /** Rows of the audit up to this one. */
  auditEnd: number;
}

export const configBucket = "SYS_config_documents";

const within = (name: string, { from, to }: PageScope): Sql[] => [
  ...(from === undefined ? [] : [sql`${sql.raw(name)} >= ${sql.bigint(from)}`]),
  ...(to === undefined ? [] : [sql`${sql.raw(name)} < ${sql.bigint(to)}`]),
];

/** The newest event of stream `t` that is in the export. */
const lastOfStream = (position: number) => sql`FROM events v WHERE v.environment_id = t.environment_id
  AND v.entity_id = t.entity_id AND v.position <= ${sql.bigint(position)} ORDER BY v.entity_version DESC LIMIT 1`;

const liveGeneration = sql`EXISTS (SELECT 1 FROM projection_generations g WHERE g.environment_id = t.environment_id
  AND g.name = t.name AND g.generation = t.generation AND g.dropped_at IS NULL)`;

function ofBucket({ section }: ExportedTable, environmentId: string): Sql {
  const is = sql.raw(section === "config" ? "=" : "<>");
  return sql`bucket_id IN (SELECT id FROM kv_buckets WHERE environment_id = ${environmentId}
    AND deleted_at IS NULL AND name ${is} ${configBucket})`;
}

/** Which rows of an environment's table are in the export, besides its `environment_id`. */
function kept(table: ExportedTable, scope: PageScope, head: ExportedHead): Sql[] {
  const upTo = sql.bigint(head.position);
  switch (table.table) {
    case "events":
      return [sql`position <= ${upTo}`, ...within("at", scope)];
    case "streams":
      return [sql`(SELECT v.position ${lastOfStream(head.position)}) IS NOT NULL`];
    case "snapshots":
      return [
        sql`(SELECT v.position FROM events v WHERE v.environment_id = t.environment_id
          AND v.entity_id = t.entity_id AND v.entity_version = t.entity_version) <= ${upTo}`,
      ];
    case "runs":
      return [
        sql`created_at <= ${sql.bigint(scope.now)}`,
        sql`COALESCE((SELECT v.position FROM events v WHERE v.id = t.event_id), 0) <= ${upTo}`,
        ...within("created_at", scope),
      ];
    case "projection_generations":
      return [sql`dropped_at IS NULL`];
    case "projection_states":
    case "projection_history":
      return [liveGeneration];
    case "kv_buckets":
      return [
        sql`deleted_at IS NULL AND name ${sql.raw(table.section === "config" ? "=" : "<>")} ${configBucket}`,
      ];
    case "kv_keys":
    case "kv_history":
      return [ofBucket(table, head.id), sql`(expires_at IS NULL OR expires_at > ${sql.bigint(scope.now)})`];
    default:
      return [];
  }
}

function conditionsOf(table: ExportedTable, scope: PageScope, store: Pick<Store, "seams">): Sql[] {
  const { orgId, head, runIds } = scope;
  if (runIds) return [sql`run_id ${store.seams.among(column.text(runIds))}`];
  if (head) return [sql`environment_id = ${head.id}`, ...kept(table, scope, head)];
  if (table.table === "policy_versions")
    return [sql`policy_id IN (SELECT id FROM policies WHERE org_id = ${orgId})`];
  if (table.table === "auth_audit")
    return [sql`org_id = ${orgId} AND sequence <= ${sql.bigint(scope.auditEnd)}`, ...within("at", scope)];
  return [sql`org_id = ${orgId}`];
}

/** Columns as they were at the end of the log that is in the export. */
function selected({ table, columns }: ExportedTable, { head }: PageScope): Sql {
  const names = Object.keys(columns).map((name) => {
    if (table === "heads" && head && (name === "position" || name === "last_at"))
      return sql`${sql.bigint(head[name])} AS ${sql.raw(name)}`;
    if (table !== "streams" || !head || (name !== "version" && name !== "updated_at"))
      return sql.raw(`t.${name}`);
    const source = sql.raw(name === "version" ? "v.entity_version" : "v.at");
    return sql`(SELECT ${source} ${lastOfStream(head.position)}) AS ${sql.raw(name)}`;
  });
  return sql.join(names, ", ");
}

/** Small columns of which no row has more than some hundred bytes are not weighed. */
const weighed = new Set(["schema_json", "value", "table_sql", "payload", "verify_config", "condition"]);

const heavyColumns = ({ columns }: ExportedTable): string[] =>
  Object.keys(columns).filter((name) => columns[name] === "json" || weighed.has(name));

const tuple = (values: readonly SqlValue[]): Sql =>
  sql`(${sql.join(
    values.map((value) => (typeof value === "number" ? sql.bigint(value) : sql`${value}`)),
    ", ",
  )})`;

/** A page holds a bounded number of bytes: keys and sizes are read first, values up to where it is full. */
export class TablePages {
  readonly #store: Pick<Store, "all" | "seams">;
  readonly #table: ExportedTable;
  readonly #scope: PageScope;
  readonly #conditions: readonly Sql[];
  readonly #keys: Sql;
  #after: readonly SqlValue[] | undefined;
  isOver = false;

  constructor(store: Pick<Store, "all" | "seams">, table: ExportedTable, scope: PageScope) {
    this.#store = store;
    this.#table = table;
    this.#scope = scope;
    this.#conditions = conditionsOf(table, scope, store);
    this.#keys = sql.raw(table.key.map((name) => `t.${name}`).join(", "));
    if (scope.after !== undefined) this.#after = [scope.after];
  }

  #where(last?: readonly SqlValue[]): Sql {
    return sql.where([
      ...this.#conditions,
      ...(this.#after ? [this.#compared(">", this.#after)] : []),
      ...(last ? [this.#compared("<=", last)] : []),
    ]);
  }

  /**
   * Without the column that all rows of the page share: SQLite takes a comparison of whole rows that names it
   * for a filter, and reads everything before the page again.
   */
  #compared(operator: ">" | "<=", key: readonly SqlValue[]): Sql {
    const shared = this.#scope.runIds ? undefined : this.#scope.head ? "environment_id" : "org_id";
    const from = this.#table.key[0] === shared ? 1 : 0;
    const names = this.#table.key.slice(from).map((name) => `t.${name}`);
    return sql`(${sql.raw(names.join(", "))}) ${sql.raw(operator)} ${tuple(key.slice(from))}`;
  }

  /** The key of the last row of the next page, and its rows; undefined where they need not be weighed. */
  async #end(): Promise<{ last: readonly SqlValue[]; rows: number } | undefined> {
    const heavy = heavyColumns(this.#table);
    if (heavy.length === 0) return undefined;
    const size = sql.raw(heavy.map((name) => `COALESCE(octet_length(t.${name}), 0)`).join(" + "));
    const found = await this.#store.all<Row & { bytes: number }>(sql`SELECT ${this.#keys}, ${size} AS bytes
      FROM ${sql.raw(this.#table.table)} t ${this.#where()} ORDER BY ${this.#keys} LIMIT ${exportPageRowsMax}`);
    this.isOver = found.length < exportPageRowsMax;
    let bytes = 0;
    for (const [at, row] of found.entries()) {
      bytes += row.bytes;
      if (bytes < exportPageBytesMax || at === found.length - 1) continue;
      this.isOver = false;
      return { last: this.#keyOf(row), rows: at + 1 };
    }
    const row = found.at(-1);
    return row && { last: this.#keyOf(row), rows: found.length };
  }

  #keyOf(row: Row): SqlValue[] {
    return this.#table.key.map((name) => row[name] as SqlValue);
  }

  async next(): Promise<Row[]> {
    const end = await this.#end();
    if (end === undefined && this.isOver) return [];
    // Of two upper bounds SQLite obeys one: without its count a page was read to the end of the log.
    const limit = end?.rows ?? exportPageRowsMax;
    const rows = await this.#store.all<Row>(sql`SELECT ${selected(this.#table, this.#scope)}
      FROM ${sql.raw(this.#table.table)} t ${this.#where(end?.last)} ORDER BY ${this.#keys} LIMIT ${limit}`);
    if (end) this.#after = end.last;
    else {
      this.isOver = rows.length < exportPageRowsMax;
      const row = rows.at(-1);
      if (row && !this.isOver) this.#after = this.#keyOf(row);
    }
    return rows;
  }
}
