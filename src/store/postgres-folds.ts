import { createHash } from "node:crypto";
import {
  databaseSays,
  type FoldDefinition,
  type FoldOutcome,
  type FoldSlice,
  type FoldTable,
  parameterMark,
  tableMark,
} from "./environment-databases.ts";
import type { PostgresClient } from "./postgres-client.ts";
import { codeOf, isConnectionLoss } from "./postgres-errors.ts";
import { foldsTable, quoted } from "./postgres-roles.ts";

/** What is done to the tables of one environment, as the role that owns them. */
export class PostgresFolds {
  readonly #client: PostgresClient;
  readonly #name: string;
  readonly #schema: string;
  readonly #reader: string;

  constructor(client: PostgresClient, { schema, reader }: { schema: string; reader: string }) {
    this.#client = client;
    this.#name = schema;
    this.#schema = quoted(schema);
    this.#reader = quoted(reader);
  }

  /** Makes everything and takes it back. */
  async check(table: FoldTable, definition: FoldDefinition): Promise<void> {
    await this.#in(async () => this.#make(table, definition, 0), "ROLLBACK");
  }

  async ensure(
    table: FoldTable,
    definition: FoldDefinition,
    position: number | undefined,
  ): Promise<number | undefined> {
    const found = await this.#position(table);
    if (found !== undefined || position === undefined) return found;
    try {
      await this.#in(() => this.#make(table, definition, position), "COMMIT");
      return position;
    } catch (error) {
      // Another node made it meanwhile.
      const made = await this.#position(table);
      if (made !== undefined) return made;
      throw error;
    }
  }

  async show(table: FoldTable): Promise<void> {
    const [row] = await this.#ask(`SELECT is_shown FROM ${this.#folds} WHERE table_name = $1`, [
      physical(table),
    ]);
    if (row?.is_shown === true) return;
    await this.#in(async () => {
      const view = `${this.#schema}.${quoted(table.name)}`;
      await this.#ask(
        `UPDATE ${this.#folds} SET is_shown = (table_name = $1) WHERE table_name = $1
        OR left(table_name, ${table.name.length + 1}) = $2`,
        [physical(table), `${table.name}@`],
      );
      await this.#ask(`DROP VIEW IF EXISTS ${view}`);
      await this.#ask(`CREATE VIEW ${view} AS SELECT * FROM ${this.#place(table)}`);
      await this.#ask(`GRANT SELECT ON ${view} TO ${this.#reader}`);
    }, "COMMIT");
  }

  async drop(table: FoldTable): Promise<void> {
    await this.#in(async () => {
      await this.#ask(`DROP TABLE IF EXISTS ${this.#place(table)} CASCADE`);
      const made = await this.#ask(
        `SELECT p.oid::regprocedure::text AS name FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
          WHERE n.nspname = $1 AND left(p.proname, ${functionPrefix(table).length}) = $2`,
        [this.#name, functionPrefix(table)],
      );
      for (const { name } of made) await this.#ask(`DROP FUNCTION IF EXISTS ${name}`);
      await this.#ask(`DELETE FROM ${this.#folds} WHERE table_name = $1`, [physical(table)]);
    }, "COMMIT");
  }

  /** One statement, which is one transaction. */
  async fold(table: FoldTable, slice: FoldSlice, definition: FoldDefinition): Promise<FoldOutcome> {
    try {
      return await this.#fold(table, slice, definition);
    } catch (error) {
      if (codeOf(error) !== undefinedFunction) throw error;
      await this.#in(() => this.#makeFunction(table, definition), "COMMIT");
      return this.#fold(table, slice, definition);
    }
  }

  async #fold(
    table: FoldTable,
    { from, to, steps }: FoldSlice,
    { version }: FoldDefinition,
  ): Promise<FoldOutcome> {
    const items = JSON.stringify(
      steps.map(({ handler, position, values }) => [handler, position, ...values]),
    );
    const name = this.#function(table, version);
    try {
      const [row] = await this.#client.ask(
        `SELECT ${name}($1::text::jsonb, $2::text::bigint, $3::text::bigint) AS found`,
        [items, `${from}`, `${to}`],
        true,
      );
      const found = Number(row?.found);
      return found < 0 ? { did: "folded" } : { did: "nothing", position: found };
    } catch (error) {
      const code = codeOf(error) ?? "";
      if (
        isConnectionLoss(error) ||
        code === undefinedFunction ||
        /^(08|57P|53|55|40)/.test(code) ||
        code === ""
      )
        throw error;
      const at = Number((error as { detail?: unknown }).detail ?? Number.NaN);
      const isKnown = code !== "57014" && Number.isSafeInteger(at);
      return { did: "failed", position: isKnown ? at : 0, message: (error as Error).message };
    }
  }

  get #folds(): string {
    return `${this.#schema}.${quoted(foldsTable)}`;
  }

  #place(table: FoldTable): string {
    return `${this.#schema}.${quoted(physical(table))}`;
  }

  #function(table: FoldTable, version: string): string {
    return `${this.#schema}.${quoted(functionPrefix(table) + version)}`;
  }

  #ask(text: string, values: (string | number)[] = []) {
    return this.#client.ask(text, values, false);
  }

  async #position(table: FoldTable): Promise<number | undefined> {
    const [row] = await this.#ask(`SELECT position FROM ${this.#folds} WHERE table_name = $1`, [
      physical(table),
    ]);
    return row && Number(row.position);
  }

  async #in(work: () => Promise<void>, end: "COMMIT" | "ROLLBACK"): Promise<void> {
    await this.#ask("BEGIN");
    try {
      await work();
      await this.#ask(end);
    } catch (error) {
      if (this.#client.usable()) await this.#ask("ROLLBACK").catch(() => this.#client.destroy());
      throw error;
    }
  }

  async #make(table: FoldTable, definition: FoldDefinition, position: number): Promise<void> {
    await this.#said("table_sql", () =>
      this.#ask(`CREATE TABLE ${this.#place(table)} (${definition.columns})`),
    );
    await this.#makeFunction(table, definition);
    await this.#ask(`INSERT INTO ${this.#folds} (table_name, position, is_shown) VALUES ($1, $2, false)`, [
      ...[physical(table), position],
    ]);
  }

  async #makeFunction(table: FoldTable, { handlers, version }: FoldDefinition): Promise<void> {
    const bodies: string[] = [];
    for (const { text, parameters } of handlers) {
      const placed = text.replaceAll(tableMark, this.#place(table));
      const types = await this.#typesOf(placed, parameters);
      bodies.push(
        types.reduce(
          (body, type, place) =>
            body.replaceAll(parameterMark(place + 1), `CAST(("svc@step" ->> ${place + 2}) AS ${type})`),
          placed,
        ),
      );
    }
    const name = this.#function(table, version);
    await this.#ask(`CREATE OR REPLACE FUNCTION ${name}("svc@steps" jsonb, "svc@from" bigint, "svc@to" bigint)
      RETURNS bigint LANGUAGE plpgsql AS ${literalOf(functionText(this.#folds, physical(table), bodies))}`);
    await this.#ask(`REVOKE EXECUTE ON FUNCTION ${name}(jsonb, bigint, bigint) FROM PUBLIC`);
  }

  /** The types that the server gives the parameters of a statement. */
  async #typesOf(text: string, parameters: number): Promise<string[]> {
    let numbered = text;
    for (let number = 1; number <= parameters; number++)
      numbered = numbered.replaceAll(parameterMark(number), `$${number}`);
    await this.#said("event_handlers", () => this.#ask(`PREPARE "svc@handler" AS ${numbered}`));
    const [row] = await this.#ask(
      "SELECT array_to_json(parameter_types::text[])::text AS types FROM pg_prepared_statements WHERE name = $1",
      ["svc@handler"],
    );
    await this.#ask('DEALLOCATE "svc@handler"');
    return JSON.parse(String(row?.types ?? "[]")) as string[];
  }

  async #said(field: string, work: () => Promise<unknown>): Promise<void> {
    try {
      await work();
    } catch (error) {
      if (/^(42|22|0A|54)/.test(codeOf(error) ?? "")) throw databaseSays(field, (error as Error).message);
      throw error;
    }
  }
}

const undefinedFunction = "42883";

/** How the names begin of the functions that fold one table: names of tables are too long for more. */
const functionPrefix = (table: FoldTable): string =>
  `fold@${createHash("sha256").update(physical(table)).digest("hex").slice(0, 16)}_`;

export const physical = ({ name, generation }: FoldTable): string => `${name}@g${generation}`;

const literalOf = (text: string): string => `E'${text.replaceAll("\\", "\\\\").replaceAll("'", "''")}'`;

/**
 * Folds a slice in one round trip. It moves the cursor first, from where the caller has seen it: of two nodes
 * with one slice, one finds it moved. An error names the position at which it came, as its detail.
 */
const functionText = (folds: string, table: string, bodies: readonly string[]): string => `
#variable_conflict use_column
DECLARE "svc@step" jsonb; "svc@at" bigint := 0; "svc@found" bigint;
BEGIN
  UPDATE ${folds} SET position = "svc@to" WHERE table_name = '${table}' AND position = "svc@from";
  IF NOT FOUND THEN
    SELECT position INTO "svc@found" FROM ${folds} WHERE table_name = '${table}';
    RETURN COALESCE("svc@found", 0);
  END IF;
  FOR "svc@step" IN SELECT value FROM jsonb_array_elements("svc@steps") LOOP
    "svc@at" := ("svc@step" ->> 1)::bigint;
    CASE ("svc@step" ->> 0)::int
${(bodies.length === 0 ? ["NULL"] : bodies).map((body, place) => `    WHEN ${place} THEN ${body};`).join("\n")}
    END CASE;
  END LOOP;
  RETURN -1;
EXCEPTION WHEN OTHERS THEN
  RAISE EXCEPTION USING ERRCODE = SQLSTATE, MESSAGE = SQLERRM, DETAIL = "svc@at"::text;
END`;
