import type * as Library from "libpg-query";
import type { StoreEngine } from "../../../store/store.ts";
import { ExpressionWriter, isLiteral } from "./expressions.ts";
import { sqlBytesMax, sqlDepthMax } from "./limits.ts";
import { isOwnTable, projectionTable } from "./names.ts";
import { listOf, type NodeFields, NodeReader, nodeOf, refused } from "./nodes.ts";

/** A query that was admitted and rewritten. */
export interface AdmittedQuery {
  text: string;
  isExplain: boolean;
  /** The tables that it reads, each once. */
  tables: string[];
}

const selectFields = [
  ...[
    "distinctClause",
    "targetList",
    "fromClause",
    "whereClause",
    "groupClause",
    "havingClause",
    "valuesLists",
  ],
  ...["sortClause", "limitOffset", "limitCount", "limitOption", "withClause", "op", "all", "larg", "rarg"],
] as const;

const operators: Record<string, string> = {
  SETOP_UNION: "UNION",
  SETOP_INTERSECT: "INTERSECT",
  SETOP_EXCEPT: "EXCEPT",
};
const joins: Record<string, string> = {
  JOIN_INNER: "JOIN",
  JOIN_LEFT: "LEFT JOIN",
  JOIN_RIGHT: "RIGHT JOIN",
  JOIN_FULL: "FULL JOIN",
};

/** Rewrites queries from the parser's tree, over tables that are open to everyone of the environment. */
class SelectWriter {
  readonly #dialect: StoreEngine;
  readonly #reader: NodeReader;
  readonly #expressions: ExpressionWriter;
  readonly #tables = new Set<string>();
  /** Names of WITH that are visible where the writer is. */
  #named: readonly string[] = [];

  constructor(dialect: StoreEngine, field: string) {
    this.#dialect = dialect;
    this.#reader = new NodeReader(field);
    this.#expressions = new ExpressionWriter({
      ...{ dialect, reader: this.#reader, parameter: undefined },
      subquery: (node, depth) => this.#query(node, depth),
    });
  }

  statement(raw: unknown): AdmittedQuery {
    const { kind, fields } = nodeOf(raw);
    if (kind === "SelectStmt") return this.#admitted(this.#select(fields, 0), false);
    if (kind !== "ExplainStmt") throw this.#refuse("only SELECT, WITH and EXPLAIN are allowed");
    this.#reader.only("EXPLAIN", fields, ["query"]);
    return this.#admitted(this.#query(fields.query, 0), true);
  }

  #admitted(text: string, isExplain: boolean): AdmittedQuery {
    return { text, isExplain, tables: [...this.#tables].sort() };
  }

  #refuse(about: string) {
    return this.#reader.refuse(about);
  }

  #quote(name: string): string {
    return this.#expressions.quote(name);
  }

  #query(raw: unknown, depth: number): string {
    const { kind, fields } = nodeOf(raw);
    if (kind !== "SelectStmt") throw this.#refuse("only SELECT is allowed inside a query");
    return this.#select(fields, depth + 1);
  }

  #select(fields: NodeFields, depth: number, isSide = false): string {
    if (depth > sqlDepthMax) throw this.#refuse(`nested more than ${sqlDepthMax} deep`);
    this.#reader.only("SELECT", fields, selectFields);
    const before = this.#named;
    const clauses = fields.withClause === undefined ? "" : this.#with(fields.withClause as NodeFields, depth);
    const operator = operators[String(fields.op)];
    const body = operator ? this.#combined(operator, fields, depth) : this.#single(fields, depth, !isSide);
    const order =
      fields.sortClause === undefined ? "" : ` ORDER BY ${this.#expressions.order(fields.sortClause, depth)}`;
    const text = `${clauses}${body}${order}${this.#limits(fields, depth)}`;
    this.#named = before;
    return text;
  }

  #limits(fields: NodeFields, depth: number): string {
    if (fields.limitOption === "LIMIT_OPTION_WITH_TIES") throw this.#refuse("WITH TIES is not allowed");
    const count =
      fields.limitCount === undefined ? undefined : this.#expressions.write(fields.limitCount, depth);
    const offset =
      fields.limitOffset === undefined ? undefined : this.#expressions.write(fields.limitOffset, depth);
    if (offset === undefined) return count === undefined ? "" : ` LIMIT ${count}`;
    const unlimited = this.#dialect === "postgres" ? "ALL" : "-1";
    return ` LIMIT ${count ?? unlimited} OFFSET ${offset}`;
  }

  #single(fields: NodeFields, depth: number, isAlone: boolean): string {
    const write = this.#expressions;
    if (fields.valuesLists !== undefined) {
      const rows = listOf(fields.valuesLists).map(
        (row) => `(${write.list(nodeOf(row).fields.items, depth)})`,
      );
      return `VALUES ${rows.join(", ")}`;
    }
    const targets = listOf(fields.targetList).map((one) => {
      const { fields: target } = nodeOf(one);
      this.#reader.only("a column of the answer", target, ["name", "val"]);
      const name = target.name === undefined ? "" : ` AS ${this.#quote(String(target.name))}`;
      const value = write.write(target.val, depth);
      return `${isAlone && isLiteral(target.val) ? write.byBytes(value) : value}${name}`;
    });
    if (targets.length === 0) throw this.#refuse("a SELECT names its columns");
    const from = listOf(fields.fromClause).map((one) => this.#source(one, depth));
    const where = fields.whereClause === undefined ? "" : ` WHERE ${write.write(fields.whereClause, depth)}`;
    const group =
      fields.groupClause === undefined ? "" : ` GROUP BY ${write.list(fields.groupClause, depth)}`;
    const having =
      fields.havingClause === undefined ? "" : ` HAVING ${write.write(fields.havingClause, depth)}`;
    const source = from.length === 0 ? "" : ` FROM ${from.join(", ")}`;
    return `SELECT ${this.#distinct(fields.distinctClause)}${targets.join(", ")}${source}${where}${group}${having}`;
  }

  #distinct(raw: unknown): string {
    if (raw === undefined) return "";
    if (listOf(raw).some((one) => Object.keys(one as object).length > 0))
      throw this.#refuse("DISTINCT ON is not allowed");
    return "DISTINCT ";
  }

  /** SQLite takes no parentheses around the sides: what needs them becomes a query of its own. */
  #combined(operator: string, fields: NodeFields, depth: number): string {
    const side = (raw: unknown, isRight: boolean): string => {
      const inner = raw as NodeFields;
      const isWhole = inner.sortClause ?? inner.limitCount ?? inner.limitOffset ?? inner.withClause;
      const isCombined = operators[String(inner.op)] !== undefined;
      const text = this.#select(inner, depth + 1, true);
      const needsOwn =
        isWhole !== undefined ||
        (isCombined && (isRight || inner.op !== fields.op || inner.all !== fields.all));
      return needsOwn ? `SELECT * FROM (${text}) AS ${this.#quote("side")}` : text;
    };
    const all = fields.all === true ? " ALL" : "";
    return `${side(fields.larg, false)} ${operator}${all} ${side(fields.rarg, true)}`;
  }

  #with(fields: NodeFields, depth: number): string {
    this.#reader.only("WITH", fields, ["ctes", "recursive"]);
    const isRecursive = fields.recursive === true;
    const list = listOf(fields.ctes).map((one) => nodeOf(one).fields);
    if (isRecursive) this.#named = [...this.#named, ...list.map(({ ctename }) => String(ctename))];
    const texts = list.map((one) => {
      this.#reader.only("WITH", one, ["ctename", "aliascolnames", "ctematerialized", "ctequery"]);
      const name = String(one.ctename);
      const text = this.#query(one.ctequery, depth);
      // Outside RECURSIVE a name means itself only behind its query.
      if (!isRecursive) this.#named = [...this.#named, name];
      return `${this.#quote(name)}${this.#columns(one.aliascolnames)} AS (${text})`;
    });
    return `WITH ${isRecursive ? "RECURSIVE " : ""}${texts.join(", ")} `;
  }

  #columns(raw: unknown): string {
    const names = listOf(raw).map((one) => this.#quote(this.#reader.name(one)));
    return names.length === 0 ? "" : `(${names.join(", ")})`;
  }

  #source(raw: unknown, depth: number): string {
    if (depth > sqlDepthMax) throw this.#refuse(`nested more than ${sqlDepthMax} deep`);
    const { kind, fields } = nodeOf(raw);
    switch (kind) {
      case "RangeVar":
        return this.#table(fields);
      case "RangeSubselect": {
        this.#reader.only("a query in FROM", fields, ["subquery", "alias"]);
        return `(${this.#query(fields.subquery, depth)})${this.#alias(fields.alias)}`;
      }
      case "JoinExpr":
        return this.#join(fields, depth);
      default:
        throw this.#refuse("only tables, queries and joins may stand in FROM");
    }
  }

  #table(fields: NodeFields): string {
    if (fields.schemaname !== undefined || fields.catalogname !== undefined)
      throw this.#refuse("a table is named without a schema");
    this.#reader.only("a table", fields, ["relname", "inh", "relpersistence", "alias"]);
    const name = String(fields.relname);
    if (!this.#named.includes(name)) {
      if (!isOwnTable(name) && !projectionTable.test(name))
        throw this.#refuse(
          `table ${JSON.stringify(name.slice(0, 100))} is not there (runs, steps, events, functions, and proj_… of SQL projections)`,
        );
      this.#tables.add(name);
    }
    // Without ONLY, which the parser marks by leaving this out.
    if (fields.inh !== true) throw this.#refuse("ONLY is not allowed");
    return `${this.#quote(name)}${this.#alias(fields.alias)}`;
  }

  #alias(raw: unknown): string {
    if (raw === undefined) return "";
    const fields = raw as NodeFields;
    this.#reader.only("an alias", fields, ["aliasname", "colnames"]);
    if (this.#dialect === "libsql" && fields.colnames !== undefined)
      throw this.#refuse("an alias with columns is not allowed on this store: name them in the query");
    return ` AS ${this.#quote(String(fields.aliasname))}${this.#columns(fields.colnames)}`;
  }

  #join(fields: NodeFields, depth: number): string {
    this.#reader.only("a join", fields, ["jointype", "isNatural", "larg", "rarg", "usingClause", "quals"]);
    const word = joins[String(fields.jointype)];
    if (!word) throw this.#refuse("such a join is not allowed");
    const left = this.#source(fields.larg, depth + 1);
    const right = this.#source(fields.rarg, depth + 1);
    const side = nodeOf(fields.rarg).kind === "JoinExpr" ? `(${right})` : right;
    const natural = fields.isNatural === true ? "NATURAL " : "";
    if (fields.usingClause !== undefined)
      return `${left} ${word} ${side} USING ${this.#columns(fields.usingClause)}`;
    if (fields.quals !== undefined)
      return `${left} ${word} ${side} ON ${this.#expressions.write(fields.quals, depth)}`;
    return natural === "" ? `${left} CROSS JOIN ${side}` : `${left} ${natural}${word} ${side}`;
  }
}

let parser: typeof Library | undefined;

/**
 * PostgreSQL's own parser, compiled to WebAssembly; the same grammar stands for both stores. Loaded by the
 * first text: it takes 50 ms, of which a start would wait for 40.
 */
export async function loadParser(): Promise<void> {
  if (parser) return;
  const library = await import("libpg-query");
  await library.loadModule();
  parser = library;
}

/** The one statement of a text, as the parser's tree. */
export function parseOne(field: string, text: string): unknown {
  if (Buffer.byteLength(text) > sqlBytesMax) throw refused(field, `must be at most ${sqlBytesMax} bytes`);
  if (!text.isWellFormed() || text.includes("\0"))
    throw refused(field, "must be well-formed Unicode without zero bytes");
  if (!parser) throw new Error("a statement is read before the parser was loaded");
  const statements = treeOf(parser, field, text);
  if (statements.length !== 1) throw refused(field, `must be one statement, not ${statements.length}`);
  return statements[0]!.stmt;
}

function treeOf(
  { parseSync, hasSqlDetails }: typeof Library,
  field: string,
  text: string,
): { stmt?: unknown }[] {
  try {
    return (parseSync(text) as { stmts?: { stmt?: unknown }[] }).stmts ?? [];
  } catch (error) {
    if (error instanceof RangeError) throw refused(field, "nested too deeply");
    throw refused(
      field,
      `${String((error as Error).message).slice(0, 300)}${hasSqlDetails(error) ? placeOf(error, text) : ""}`,
    );
  }
}

/** Where the parser stopped; empty where it does not say. Its places count characters. */
function placeOf(error: Library.SqlError, text: string): string {
  const { message, cursorPosition } = error.sqlDetails!;
  // The parser says 0 for the first character, and for no place at all.
  if (cursorPosition <= 0 && !message.startsWith("syntax error")) return "";
  const lines = [...text].slice(0, cursorPosition).join("").split("\n");
  return `, line ${lines.length}, column ${[...lines.at(-1)!].length + 1}`;
}

/** Throws an `invalid_argument` that says what of the query is not allowed. */
export const admitQuery = (dialect: StoreEngine, text: string, field = "query"): AdmittedQuery =>
  new SelectWriter(dialect, field).statement(parseOne(field, text));
