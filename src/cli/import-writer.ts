import type { Instant } from "../kit/clock.ts";
import { column, type SqlArray, sql } from "../kit/sql.ts";
import type { ExportedTable } from "../store/exported-tables.ts";
import type { Session, Store } from "../store/store.ts";
import { BadFile, type CheckedFile } from "./import-file.ts";
import { type ImportedRow, type idsFor, movedRow } from "./import-rows.ts";
import { importBytesMax, importRowsMax } from "./limits.ts";

/** What is told of another installation, and means nothing in this one. */
const passedOver = new Set(["audit", "webhooks"]);
/** The statements of a file have passed no check of this installation. */
const isOfSql = ({ table }: ExportedTable, { mode }: ImportedRow): boolean =>
  table === "sql_projections" || (table === "projections" && mode === "sql");
/** The environment becomes visible with these rows, so they are written last. */
const lastTables = new Set(["environments", "heads"]);

const notOurs = "another import of this org is under way, or this one was undone";

const endedRun = { status: "cancelled", trouble: "cancelled", cancellation_cause: "imported" } as const;

export interface ImportOptions {
  store: Store;
  orgId: string;
  idOf: ReturnType<typeof idsFor>;
  file: CheckedFile;
  now: Instant;
  /** The hash of a random password that is shown nowhere. */
  passwordHash: string;
  /** Lines that an import before this one has written. */
  written: number;
  onCommitted: (lineCount: number) => void;
}

/** What the file held that this org did not take. */
export interface ImportTally {
  endedRuns: number;
  usersElsewhere: number;
  passedOver: number;
}

/** Writes rows, some hundred a transaction, and how far they came in the same transaction. */
export class ImportWriter {
  readonly tally: ImportTally = { endedRuns: 0, usersElsewhere: 0, passedOver: 0 };
  readonly #options: ImportOptions;
  readonly #idOf: (id: string) => string | undefined;
  readonly #last: { table: ExportedTable; row: ImportedRow }[] = [];
  /** By environment and name: the generation that is read, of projections that come along. */
  readonly #generations = new Map<string, number>();
  #rows = new Map<ExportedTable, ImportedRow[]>();
  #rowCount = 0;
  #bytes = 0;
  #written: number;

  constructor(options: ImportOptions) {
    this.#options = options;
    this.#idOf = options.idOf;
    this.#written = options.written;
  }

  /** `number` counts the lines behind the first one. */
  async add(
    { table, environmentId, row }: { table: ExportedTable; environmentId: string; row: ImportedRow },
    { number, bytes }: { number: number; bytes: number },
  ): Promise<void> {
    const isNew = number > this.#options.written;
    const moved = this.#moved(table, environmentId, row, number + 1);
    if (moved === undefined) {
      if (isNew) this.tally.passedOver++;
    } else if (lastTables.has(table.table)) this.#last.push({ table, row: moved });
    else if (isNew) {
      const rows = this.#rows.get(table);
      if (rows) rows.push(moved);
      else this.#rows.set(table, [moved]);
      this.#rowCount++;
      this.#bytes += bytes;
    }
    if (this.#rowCount >= importRowsMax || this.#bytes >= importBytesMax) await this.#flush(number);
  }

  /** The row of the new org; undefined where it has none. */
  #moved(
    table: ExportedTable,
    environmentId: string,
    row: ImportedRow,
    line: number,
  ): ImportedRow | undefined {
    if (passedOver.has(table.section) || isOfSql(table, row)) return undefined;
    const { orgId, now, passwordHash, file } = this.#options;
    const moved = movedRow(table, row, this.#idOf, line);
    if (table.of === "org") moved.org_id = orgId;
    else moved.environment_id = this.#idOf(environmentId) ?? null;
    switch (table.table) {
      case "runs":
        if (moved.status !== "active") return moved;
        this.tally.endedRuns++;
        return { ...moved, ...endedRun, ended_at: Date.parse(file.meta.exported_at) };
      case "projections":
        this.#generations.set(`${environmentId}\n${row.name}`, row.generation as number);
        return { ...moved, refuses_save: 0 };
      case "projection_generations": {
        if (!this.#isRead(environmentId, row)) return undefined;
        const at = moved.cursor_position ?? 0;
        return { ...moved, position: at, delivered: at, offered: at, fence: 0, lease_until: 0, asked_at: 0 };
      }
      case "projection_states":
      case "projection_history":
        return this.#isRead(environmentId, row) ? moved : undefined;
      case "users":
        return {
          ...{ ...moved, password_hash: passwordHash, tokens_after: now, role_ids_of: moved.roles ?? null },
          role_ids: this.#movedRoles(moved.role_ids, line),
        };
      default:
        return moved;
    }
  }

  #isRead(environmentId: string, { name, generation }: ImportedRow): boolean {
    return this.#generations.get(`${environmentId}\n${name}`) === generation;
  }

  #movedRoles(json: string | number | null | undefined, line: number): string | null {
    if (typeof json !== "string") return null;
    const ids: unknown = JSON.parse(json);
    const moved = Array.isArray(ids) ? ids.map((id) => this.#idOf(String(id))) : [undefined];
    if (moved.includes(undefined)) throw new BadFile(`line ${line}: role_ids must be ids of roles`);
    return JSON.stringify(moved);
  }

  async #flush(number: number): Promise<void> {
    const { store, orgId, file, onCommitted } = this.#options;
    const rows = this.#rows;
    const before = this.#written;
    let elsewhere = 0;
    await store.write(async (session) => {
      const moved = await session.run(sql`UPDATE imports SET line_count = ${number}
        WHERE org_id = ${orgId} AND sum = ${file.sum} AND line_count = ${before}`);
      if (moved === 0) throw new Error(notOurs);
      elsewhere = 0;
      for (const [table, list] of rows) {
        const inserted = await insertRows(session, table.table, list);
        if (table.table === "users") elsewhere += list.length - inserted;
      }
    });
    this.tally.usersElsewhere += elsewhere;
    this.#written = number;
    this.#rows = new Map();
    this.#rowCount = 0;
    this.#bytes = 0;
    onCommitted(number);
  }

  /** The rest, then everything by which the org is seen, in one transaction. */
  async finish(): Promise<void> {
    const { store, orgId, file, now } = this.#options;
    await this.#flush(file.lineCount);
    for (const { id, position } of file.meta.environments)
      await settleEnvironment(store, { id: this.#idOf(id)!, position }, now);
    await store.write(async (session) => {
      for (const { table, row } of this.#last)
        await insertRows(session, table.table, [
          table.table === "heads" ? { ...row, definitions_version: 1, epoch: 1 } : row,
        ]);
      await session.run(sql`UPDATE orgs SET access_version = access_version + 1 WHERE id = ${orgId}`);
      const finished = await session.run(
        sql`DELETE FROM imports WHERE org_id = ${orgId} AND sum = ${file.sum}`,
      );
      if (finished === 0) throw new Error(notOurs);
    });
  }
}

/** The number of rows; a user whose address somebody has already is left out. */
async function insertRows(session: Session, table: string, rows: readonly ImportedRow[]): Promise<number> {
  const names = Object.keys(rows[0]!);
  const columns: Record<string, SqlArray> = {};
  for (const name of names) {
    const values = rows.map((row) => row[name] ?? null);
    columns[name] = values.some((value) => typeof value === "string")
      ? column.text(values as (string | null)[])
      : column.bigint(values as (number | null)[]);
  }
  // A column of nothing but NULLs has no type of its own.
  const filled = names.filter((name) => rows.some((row) => row[name] !== null));
  const list = sql.raw(filled.join(", "));
  const kept = Object.fromEntries(filled.map((name) => [name, columns[name]!]));
  const unlessTaken = table === "users" ? sql`ON CONFLICT (email) DO NOTHING` : sql.empty;
  // The condition keeps libSQL from reading ON CONFLICT as that of a join.
  return session.run(sql`INSERT INTO ${sql.raw(table)} (${list})
    SELECT ${list} FROM ${session.seams.rowsFrom("v", kept)} WHERE ord > 0 ${unlessTaken}`);
}

/** Makes what is counted from what was read, and refuses streams with a hole. */
async function settleEnvironment(
  store: Store,
  { id, position }: { id: string; position: number },
  now: Instant,
): Promise<void> {
  const streams = await store.one<{ told: number; found: number; wrong: number }>(sql`SELECT
      (SELECT CAST(COALESCE(sum(version), 0) AS BIGINT) FROM streams WHERE environment_id = ${id}) AS told,
      (SELECT count(*) FROM events WHERE environment_id = ${id} AND entity_id IS NOT NULL) AS found,
      (SELECT count(*) FROM streams s WHERE s.environment_id = ${id} AND s.version <> COALESCE((SELECT max(v.entity_version)
        FROM events v WHERE v.environment_id = s.environment_id AND v.entity_id = s.entity_id), 0)) AS wrong`);
  if (streams && (streams.told !== streams.found || streams.wrong > 0))
    throw new BadFile("the versions of its streams are not those of their events");
  await store.write(async (session) => {
    await session.run(sql`UPDATE kv_buckets SET
        value_count = (SELECT count(*) FROM kv_keys e WHERE e.environment_id = kv_buckets.environment_id
          AND e.bucket_id = kv_buckets.id AND e.operation = 'put'),
        bytes = (SELECT CAST(COALESCE(sum(e.bytes), 0) AS BIGINT) FROM kv_keys e
          WHERE e.environment_id = kv_buckets.environment_id AND e.bucket_id = kv_buckets.id)
      WHERE environment_id = ${id}`);
    await session.run(sql`UPDATE kv_buckets SET revision = (SELECT max(e.revision) FROM kv_keys e
        WHERE e.environment_id = kv_buckets.environment_id AND e.bucket_id = kv_buckets.id)
      WHERE environment_id = ${id} AND revision < (SELECT max(e.revision) FROM kv_keys e
        WHERE e.environment_id = kv_buckets.environment_id AND e.bucket_id = kv_buckets.id)`);
    await settleProjections(session, { id, position }, now);
  });
}

/** A projection that moved while it was read is folded again. */
async function settleProjections(
  session: Session,
  { id, position }: { id: string; position: number },
  now: Instant,
): Promise<void> {
  const end = sql.bigint(position);
  await session.run(sql`UPDATE projection_generations SET cursor_position = ${end}, position = ${end},
      delivered = ${end}, offered = ${end} WHERE environment_id = ${id} AND cursor_position > ${end}
      AND name IN (SELECT name FROM projections WHERE environment_id = ${id} AND mode = 'external')`);
  const torn = await session.all<{ name: string; generation: number }>(sql`SELECT p.name, p.generation
    FROM projections p JOIN projection_generations g ON g.environment_id = p.environment_id AND g.name = p.name
      AND g.generation = p.generation
    WHERE p.environment_id = ${id} AND p.mode = 'managed' AND (p.status = 'rebuilding' OR g.cursor_position > ${end}
      OR EXISTS (SELECT 1 FROM projection_states s WHERE s.environment_id = p.environment_id AND s.name = p.name
        AND s.generation = p.generation AND s.last_position > g.cursor_position))`);
  const fields = sql.raw(
    "definition_version, cursor_position, position, delivered, offered, fence, lease_until, asked_at, saved_at",
  );
  for (const { name, generation } of torn) {
    const of = sql`environment_id = ${id} AND name = ${name}`;
    await session.run(sql`INSERT INTO projection_generations (environment_id, name, generation, ${fields})
      SELECT environment_id, name, generation + 1, definition_version, 0, 0, 0, 0, 0, 0, 0, saved_at
      FROM projection_generations WHERE ${of} AND generation = ${generation}`);
    await session.run(
      sql`UPDATE projection_generations SET dropped_at = ${now} WHERE ${of} AND generation = ${generation}`,
    );
    await session.run(sql`UPDATE projections SET generation = generation + 1 WHERE ${of}`);
  }
  await session.run(sql`UPDATE projections SET status = 'running'
    WHERE environment_id = ${id} AND status = 'rebuilding'`);
}
