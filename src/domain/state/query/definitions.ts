import { type FoldHandler, parameterMark, tableMark } from "../../../store/environment-databases.ts";
import type { StoreEngine } from "../../../store/store.ts";
import { ExpressionWriter, isText, quotedName } from "./expressions.ts";
import { columnsMax } from "./limits.ts";
import { listOf, type NodeFields, NodeReader, nodeOf, refused } from "./nodes.ts";
import { parseOne } from "./selects.ts";

const columnName = /^[a-z_][a-z0-9_]{0,62}$/;
const controls = /[\u0000-\u0008\u000b\u000c\u000e-\u001f]/;

function requirePlain(field: string, text: string): void {
  if (controls.test(text)) throw refused(field, "must have no control characters");
}

/** What stands in the parentheses of the one CREATE TABLE, rewritten. */
export function admitTable(dialect: StoreEngine, text: string, table: string): string {
  const field = "table_sql";
  requirePlain(field, text);
  return new TableWriter(dialect, field, table).write(parseOne(field, text));
}

/** Text columns sort by bytes. In tables from before 0.41 they sort as the database does. */
const collation = ' COLLATE "C"';
export const isSameTable = (one: string, other: string): boolean =>
  one.replaceAll(collation, "") === other.replaceAll(collation, "");

class TableWriter {
  readonly #dialect: StoreEngine;
  readonly #reader: NodeReader;
  readonly #table: string;
  readonly #expressions: ExpressionWriter;

  constructor(dialect: StoreEngine, field: string, table: string) {
    this.#dialect = dialect;
    this.#table = table;
    this.#reader = new NodeReader(field);
    this.#expressions = new ExpressionWriter({
      ...{ dialect, reader: this.#reader, isPlain: true },
      ...{ subquery: undefined, parameter: undefined },
    });
  }

  write(raw: unknown): string {
    const { kind, fields } = nodeOf(raw);
    if (kind !== "CreateStmt") throw this.#reader.refuse(`must be one CREATE TABLE ${this.#table} (…)`);
    this.#reader.only("CREATE TABLE", fields, ["relation", "tableElts", "oncommit", "if_not_exists"]);
    requireTable(this.#reader, fields.relation as NodeFields, this.#table);
    const parts = listOf(fields.tableElts);
    if (parts.length === 0 || parts.length > columnsMax)
      throw this.#reader.refuse(`must have from 1 to ${columnsMax} columns`);
    return parts.map((one) => this.#part(one)).join(", ");
  }

  #part(raw: unknown): string {
    const { kind, fields } = nodeOf(raw);
    if (kind === "Constraint") return this.#constraint(fields, true);
    if (kind !== "ColumnDef") throw this.#reader.refuse("only columns and constraints are allowed");
    this.#reader.only("a column", fields, ["colname", "typeName", "is_local", "constraints"]);
    const constraints = listOf(fields.constraints).map(
      (one) => ` ${this.#constraint(nodeOf(one).fields, false)}`,
    );
    const name = this.#name(String(fields.colname));
    const type = this.#expressions.type(fields.typeName);
    const order = this.#dialect === "postgres" && isText(type) ? collation : "";
    return `${name} ${type}${order}${constraints.join("")}`;
  }

  #name(name: string): string {
    if (!columnName.test(name))
      throw this.#reader.refuse(
        `column ${JSON.stringify(name.slice(0, 80))} must be lower case letters, digits and _`,
      );
    return quotedName(this.#dialect, name);
  }

  #constraint(fields: NodeFields, isOfTable: boolean): string {
    const known = ["contype", "keys", "raw_expr", "initially_valid", "is_enforced"];
    this.#reader.only("a constraint", fields, known);
    const keys = listOf(fields.keys).map((one) => this.#name(this.#reader.name(one)));
    const ofKeys = isOfTable ? ` (${keys.join(", ")})` : "";
    switch (fields.contype) {
      case "CONSTR_NOTNULL":
        return "NOT NULL";
      case "CONSTR_NULL":
        return "";
      case "CONSTR_PRIMARY":
        return `PRIMARY KEY${ofKeys}`;
      case "CONSTR_UNIQUE":
        return `UNIQUE${ofKeys}`;
      case "CONSTR_DEFAULT":
        return `DEFAULT (${this.#expressions.write(fields.raw_expr, 0)})`;
      case "CONSTR_CHECK":
        return `CHECK (${this.#expressions.write(fields.raw_expr, 0)})`;
      default:
        throw this.#reader.refuse("only NOT NULL, PRIMARY KEY, UNIQUE, DEFAULT and CHECK are allowed");
    }
  }
}

function requireTable(reader: NodeReader, fields: NodeFields, table: string): string {
  reader.only("a table", fields, ["relname", "inh", "relpersistence", "alias"]);
  if (fields.relname !== table || fields.relpersistence !== "p" || fields.inh !== true)
    throw reader.refuse(`must name the projection's own table, ${table}`);
  const alias = fields.alias as NodeFields | undefined;
  if (alias) reader.only("an alias", alias, ["aliasname"]);
  return String(alias?.aliasname ?? table);
}

/** A handler that was admitted, and where its parameters come from. */
export interface AdmittedHandler extends FoldHandler {
  /** Each as it was written: `data.customer.id`. */
  paths: string[];
}

/** Throws an `invalid_argument` that names the handler. */
export function admitHandler(
  dialect: StoreEngine,
  { event, text, table }: { event: string; text: string; table: string },
): AdmittedHandler {
  const field = `event_handlers[${JSON.stringify(event.slice(0, 100))}]`;
  requirePlain(field, text);
  const { numbered, paths } = numberParameters(field, text);
  const written = new HandlerWriter(dialect, field, { table, count: paths.length }).write(
    parseOne(field, numbered),
  );
  return { text: written, parameters: paths.length, paths };
}

const parameterPath = /^(entity_id|timestamp|event_id|event_name|sequence|data(\.[A-Za-z0-9_]+){0,10})$/;

/**
 * Replaces `:data.a.b` by `$1` and spaces, outside of texts and names in quotes: what the parser complains of
 * keeps its place. A mistake here cannot make a text into code: the parser reads what comes out of it.
 */
function numberParameters(field: string, text: string): { numbered: string; paths: string[] } {
  const paths: string[] = [];
  const numbered = text.replaceAll(
    /'(?:[^']|'')*'|"(?:[^"]|"")*"|--[^\n]*|\/\*[\s\S]*?\*\/|::|\$\d+|:([A-Za-z_][A-Za-z0-9_.]*)/g,
    (whole, path: string | undefined) => {
      if (/^\$/.test(whole)) throw refused(field, "parameters have names, such as :data.total");
      if (path === undefined) return whole;
      if (!parameterPath.test(path))
        throw refused(
          field,
          `:${path.slice(0, 100)} is no parameter (:entity_id, :timestamp, :event_id, :event_name, :sequence, :data, :data.a.b)`,
        );
      if (!paths.includes(path)) paths.push(path);
      return `$${paths.indexOf(path) + 1}`.padEnd(whole.length);
    },
  );
  return { numbered, paths };
}

class HandlerWriter {
  readonly #dialect: StoreEngine;
  readonly #reader: NodeReader;
  readonly #table: string;
  readonly #expressions: ExpressionWriter;

  constructor(dialect: StoreEngine, field: string, { table, count }: { table: string; count: number }) {
    this.#dialect = dialect;
    this.#table = table;
    this.#reader = new NodeReader(field);
    this.#expressions = new ExpressionWriter({
      ...{ dialect, reader: this.#reader, subquery: undefined },
      parameter: (number) => {
        if (number < 1 || number > count) throw this.#reader.refuse("parameters have names");
        return parameterMark(number);
      },
    });
  }

  write(raw: unknown): string {
    const { kind, fields } = nodeOf(raw);
    switch (kind) {
      case "InsertStmt":
        return this.#insert(fields);
      case "UpdateStmt":
        this.#reader.only("UPDATE", fields, ["relation", "targetList", "whereClause"]);
        return `UPDATE ${this.#own(fields.relation)} SET ${this.#sets(fields.targetList)}${this.#where(fields)}`;
      case "DeleteStmt":
        this.#reader.only("DELETE", fields, ["relation", "whereClause"]);
        return `DELETE FROM ${this.#own(fields.relation)}${this.#where(fields)}`;
      default:
        throw this.#reader.refuse("must be one INSERT, UPDATE or DELETE");
    }
  }

  #own(raw: unknown): string {
    const alias = requireTable(this.#reader, raw as NodeFields, this.#table);
    return `${tableMark} AS ${quotedName(this.#dialect, alias)}`;
  }

  #where({ whereClause }: NodeFields): string {
    return whereClause === undefined ? "" : ` WHERE ${this.#expressions.write(whereClause, 0)}`;
  }

  #targets(raw: unknown): { name: string; val: unknown }[] {
    return listOf(raw).map((one) => {
      const { fields } = nodeOf(one);
      this.#reader.only("a column", fields, ["name", "val"]);
      return { name: quotedName(this.#dialect, String(fields.name)), val: fields.val };
    });
  }

  #sets(raw: unknown): string {
    return this.#targets(raw)
      .map(({ name, val }) => `${name} = ${this.#expressions.write(val, 0)}`)
      .join(", ");
  }

  #insert(fields: NodeFields): string {
    this.#reader.only("INSERT", fields, ["relation", "cols", "selectStmt", "onConflictClause", "override"]);
    const columns = this.#targets(fields.cols).map(({ name }) => name);
    if (columns.length === 0) throw this.#reader.refuse("an INSERT names its columns");
    if (fields.override !== "OVERRIDING_NOT_SET") throw this.#reader.refuse("OVERRIDING is not allowed");
    const source = nodeOf(fields.selectStmt).fields;
    this.#reader.only("VALUES", source, ["valuesLists", "limitOption", "op"]);
    const rows = listOf(source.valuesLists).map(
      (row) => `(${this.#expressions.list(nodeOf(row).fields.items, 0)})`,
    );
    if (rows.length === 0) throw this.#reader.refuse("an INSERT has VALUES");
    const conflict = fields.onConflictClause as NodeFields | undefined;
    return `INSERT INTO ${this.#own(fields.relation)} (${columns.join(", ")}) VALUES ${rows.join(", ")}${
      conflict ? this.#conflict(conflict) : ""
    }`;
  }

  #conflict(fields: NodeFields): string {
    this.#reader.only("ON CONFLICT", fields, ["action", "infer", "targetList", "whereClause"]);
    const infer = fields.infer as NodeFields | undefined;
    if (infer) this.#reader.only("ON CONFLICT", infer, ["indexElems"]);
    const names = listOf(infer?.indexElems).map((one) => {
      const { fields: element } = nodeOf(one);
      this.#reader.only("ON CONFLICT", element, ["name", "ordering", "nulls_ordering"]);
      return quotedName(this.#dialect, String(element.name));
    });
    const target = names.length === 0 ? "" : ` (${names.join(", ")})`;
    if (fields.action === "ONCONFLICT_NOTHING") return ` ON CONFLICT${target} DO NOTHING`;
    return ` ON CONFLICT${target} DO UPDATE SET ${this.#sets(fields.targetList)}${this.#where(fields)}`;
  }
}
