import { boundedName, gatheredName } from "../../../store/environment-databases.ts";
import type { StoreEngine } from "../../../store/store.ts";
import { sqlDepthMax } from "./limits.ts";
import {
  binaryOperators,
  cutting,
  defaultFrame,
  equalities,
  folding,
  functionNames,
  gathering,
  gatheringMax,
  growing,
  textual,
  typeNames,
  unaryOperators,
} from "./names.ts";
import { listOf, type NodeFields, type NodeReader, nodeOf, refused, type SqlNode, wordsOf } from "./nodes.ts";

export interface ExpressionContext {
  dialect: StoreEngine;
  reader: NodeReader;
  /** Writes a query inside an expression; undefined where none may stand. */
  subquery: ((node: unknown, depth: number) => string) | undefined;
  /** What stands for the parameter of this number; undefined where none may stand. */
  parameter: ((number: number) => string) | undefined;
  /** No function may be called: a table's expressions run with the rights of the role that writes to it. */
  isPlain?: boolean;
}

/** Marks of tables and parameters are made of this character; escapes of the dialect could write it. */
function requireUnmarked(text: string): void {
  if (text.includes("\u0001")) throw refused("query", "must have no control characters");
}

/** SQLite takes an unknown name in double quotes for a text. */
export function quotedName(dialect: StoreEngine, name: string): string {
  requireUnmarked(name);
  return dialect === "postgres" ? `"${name.replaceAll('"', '""')}"` : `\`${name.replaceAll("`", "``")}\``;
}

/** An escape that both engines read the same, whatever their settings. */
export function quotedText(dialect: StoreEngine, text: string): string {
  requireUnmarked(text);
  const quoted = text.replaceAll("'", "''");
  return dialect === "postgres" && text.includes("\\")
    ? `E'${quoted.replaceAll("\\", "\\\\")}'`
    : `'${quoted}'`;
}

/** The parser takes a sign into the number. */
const sizedNumber = /^-?\d{1,40}(\.\d{0,40})?([eE][+-]?\d{1,3})?$|^-?\.\d{1,40}([eE][+-]?\d{1,3})?$/;

/** Beside another minus it would begin a comment. */
const signed = (number: string): string => (number.startsWith("-") ? `(${number})` : number);

/**
 * Rewrites expressions from the parser's tree. What it does not know cannot be written, so that nothing
 * reaches an engine that was not admitted, and no two parsers may read one text in two ways.
 */
export class ExpressionWriter {
  readonly #context: ExpressionContext;
  #gathered = 0;

  constructor(context: ExpressionContext) {
    this.#context = context;
  }

  /** `isEqual`: of one side of an equality, which no order may keep from the index of its column. */
  write(raw: unknown, depth: number, isEqual = false): string {
    if (depth > sqlDepthMax) throw this.#refuse(`nested more than ${sqlDepthMax} deep`);
    const node = nodeOf(raw);
    const write = this.#writers[node.kind];
    if (!write) throw this.#refuse(`${wordsOf(node.kind)} is not allowed`);
    return write(node.fields, depth + 1, isEqual);
  }

  /** A text sorts, compares and folds by its bytes, whatever locale the database of a company has. */
  byBytes(text: string, isEqual = false): string {
    return this.#isPostgres && !isEqual ? `(${text} COLLATE "C")` : text;
  }

  list(raw: unknown, depth: number, isEqual = false): string {
    return listOf(raw)
      .map((one) => this.write(one, depth, isEqual))
      .join(", ");
  }

  quote(name: string): string {
    return quotedName(this.#context.dialect, name);
  }

  type(raw: unknown): string {
    const { dialect, reader } = this.#context;
    const fields = raw as NodeFields;
    reader.only("a type", fields, ["names", "typmods", "typemod"]);
    const name = reader.ownName(fields.names);
    const type = Object.hasOwn(typeNames, name) ? typeNames[name] : undefined;
    if (!type) throw this.#refuse(`type ${JSON.stringify(name.slice(0, 60))} is not allowed`);
    const sizes = listOf(fields.typmods).map((one) => this.#size(nodeOf(one)));
    if (sizes.length > (type.sizes ?? 0)) throw this.#refuse(`type ${type.postgres} takes no such size`);
    return dialect === "postgres" && sizes.length > 0
      ? `${type.postgres}(${sizes.join(", ")})`
      : type[dialect];
  }

  /** `ORDER BY` of a query, an aggregate or a window. */
  order(raw: unknown, depth: number): string {
    return listOf(raw)
      .map((one) => {
        const { kind, fields } = nodeOf(one);
        if (kind !== "SortBy") throw this.#refuse("an order is expected");
        this.#only("an order", fields, ["node", "sortby_dir", "sortby_nulls"]);
        const directions: Record<string, string> = {
          SORTBY_DEFAULT: "",
          SORTBY_ASC: " ASC",
          SORTBY_DESC: " DESC",
        };
        const nulls: Record<string, string> = {
          SORTBY_NULLS_DEFAULT: "",
          SORTBY_NULLS_FIRST: " NULLS FIRST",
          SORTBY_NULLS_LAST: " NULLS LAST",
        };
        const direction = directions[String(fields.sortby_dir)];
        const place = nulls[String(fields.sortby_nulls)];
        if (direction === undefined || place === undefined)
          throw this.#refuse("such an order is not allowed");
        return `${this.write(fields.node, depth)}${direction}${place}`;
      })
      .join(", ");
  }

  readonly #writers: Record<string, (fields: NodeFields, depth: number, isEqual: boolean) => string> = {
    A_Const: (fields) => this.#constant(fields),
    ColumnRef: (fields) => this.#column(fields),
    ParamRef: (fields) => this.#parameter(fields),
    A_Expr: (fields, depth, isEqual) => this.#operation(fields, depth, isEqual),
    BoolExpr: (fields, depth) => this.#logic(fields, depth),
    NullTest: (fields, depth) => {
      this.#only("a test", fields, ["arg", "nulltesttype"]);
      const word = fields.nulltesttype === "IS_NOT_NULL" ? "IS NOT NULL" : "IS NULL";
      return `(${this.write(fields.arg, depth)} ${word})`;
    },
    BooleanTest: (fields, depth) => this.#truth(fields, depth),
    CaseExpr: (fields, depth, isEqual) => this.#choice(fields, depth, isEqual),
    CoalesceExpr: (fields, depth, isEqual) => {
      this.#only("coalesce", fields, ["args"]);
      return `coalesce(${this.list(fields.args, depth, isEqual)})`;
    },
    MinMaxExpr: (fields, depth) => {
      this.#only("greatest", fields, ["args", "op"]);
      const isGreatest = fields.op === "IS_GREATEST";
      const names = this.#isPostgres ? ["greatest", "least"] : ["max", "min"];
      return `${isGreatest ? names[0] : names[1]}(${this.list(fields.args, depth)})`;
    },
    TypeCast: (fields, depth, isEqual) => {
      this.#only("a cast", fields, ["arg", "typeName"]);
      const type = this.type(fields.typeName);
      const cast = `CAST(${this.write(fields.arg, depth, isEqual)} AS ${type})`;
      return isText(type) ? this.byBytes(cast, isEqual) : cast;
    },
    SQLValueFunction: (fields) => this.#time(fields),
    FuncCall: (fields, depth, isEqual) => this.#call(fields, depth, isEqual),
    SubLink: (fields, depth) => this.#sublink(fields, depth),
  };

  get #isPostgres(): boolean {
    return this.#context.dialect === "postgres";
  }

  /** A query of SQLite, whose LIKE reads as that of PostgreSQL. Tables and handlers keep what they have. */
  get #isRead(): boolean {
    return !this.#isPostgres && this.#context.subquery !== undefined;
  }

  #refuse(about: string) {
    return this.#context.reader.refuse(about);
  }

  #only(what: string, fields: NodeFields, known: readonly string[]): void {
    this.#context.reader.only(what, fields, known);
  }

  #size({ kind, fields }: SqlNode): number {
    const size = kind === "A_Const" ? ((fields.ival as NodeFields | undefined)?.ival ?? 0) : undefined;
    if (typeof size !== "number" || size < 0 || size > 10_000) throw this.#refuse("a size is up to 10000");
    return size;
  }

  #constant(fields: NodeFields): string {
    this.#only("a constant", fields, ["ival", "fval", "boolval", "sval", "isnull"]);
    const of = (name: string) => fields[name] as NodeFields | undefined;
    if (fields.isnull === true) return "NULL";
    if (of("boolval")) return of("boolval")!.boolval === true ? "TRUE" : "FALSE";
    if (of("ival")) return signed(`${Number(of("ival")!.ival ?? 0)}`);
    if (of("sval")) return quotedText(this.#context.dialect, String(of("sval")!.sval ?? ""));
    const number = String(of("fval")?.fval ?? "");
    if (!sizedNumber.test(number)) throw this.#refuse("a number is at most 40 digits long");
    return signed(number);
  }

  #column(fields: NodeFields): string {
    this.#only("a column", fields, ["fields"]);
    const parts = listOf(fields.fields).map((part) =>
      nodeOf(part).kind === "A_Star" ? "*" : this.quote(this.#context.reader.name(part)),
    );
    if (parts.length > 2) throw this.#refuse("a column is named by itself or by its table");
    return parts.join(".");
  }

  #parameter(fields: NodeFields): string {
    this.#only("a parameter", fields, ["number"]);
    const { parameter } = this.#context;
    if (!parameter) throw this.#refuse("parameters such as $1 are not allowed: write the value");
    return parameter(Number(fields.number ?? 0));
  }

  #operation(fields: NodeFields, depth: number, isSide: boolean): string {
    this.#only("an operator", fields, ["kind", "name", "lexpr", "rexpr"]);
    const operator = this.#context.reader.ownName(fields.name);
    const isEqual = operator === "||" || fields.kind === "AEXPR_NULLIF" ? isSide : equalities.has(operator);
    const before = () => this.write(fields.lexpr, depth, isEqual);
    // PostgreSQL gives a parameter no type before an arrow, where nothing but JSON can stand.
    const isBare = this.#isPostgres && operator.startsWith("->") && "ParamRef" in Object(fields.lexpr);
    const left = () => (isBare ? `CAST(${before()} AS jsonb)` : before());
    const right = () => this.write(fields.rexpr, depth, isEqual);
    const range = () => {
      const [from, to] = listOf(nodeOf(fields.rexpr).fields.items);
      return `${this.write(from, depth)} AND ${this.write(to, depth)}`;
    };
    switch (fields.kind) {
      case "AEXPR_OP":
        if (fields.lexpr === undefined && unaryOperators.has(operator)) return `(${operator} ${right()})`;
        if (fields.lexpr === undefined || !binaryOperators.has(operator))
          throw this.#refuse(`operator ${operator.slice(0, 20)} is not allowed`);
        if (operator === "||") return this.#bounded(`${left()} || ${right()}`);
        if (operator === "->>") return this.byBytes(`(${left()} ->> ${right()})`, isSide);
        return `(${left()} ${operator} ${right()})`;
      case "AEXPR_IN": {
        const items = nodeOf(fields.rexpr).fields.items;
        return `(${left()} ${operator === "<>" ? "NOT IN" : "IN"} (${this.list(items, depth, true)}))`;
      }
      case "AEXPR_LIKE":
        return `(${left()} ${operator === "!~~" ? "NOT LIKE" : "LIKE"} ${this.#pattern(fields.rexpr, depth)})`;
      case "AEXPR_ILIKE": {
        const not = operator === "!~~*" ? "NOT " : "";
        const word = this.#isPostgres ? "ILIKE" : "LIKE";
        const fold = (text: string) => (this.#isRead ? `lower(${text})` : text);
        return `(${this.byBytes(fold(left()))} ${not}${word} ${this.#pattern(fields.rexpr, depth, fold)})`;
      }
      case "AEXPR_BETWEEN":
        return `(${left()} BETWEEN ${range()})`;
      case "AEXPR_NOT_BETWEEN":
        return `(${left()} NOT BETWEEN ${range()})`;
      case "AEXPR_DISTINCT":
        return `(${left()} IS DISTINCT FROM ${right()})`;
      case "AEXPR_NOT_DISTINCT":
        return `(${left()} IS NOT DISTINCT FROM ${right()})`;
      case "AEXPR_NULLIF":
        return `nullif(${left()}, ${right()})`;
      default:
        throw this.#refuse(`${wordsOf(String(fields.kind))} is not allowed`);
    }
  }

  /** The right side of LIKE; the parser writes ESCAPE as a call. */
  #pattern(raw: unknown, depth: number, fold = (text: string) => text): string {
    const { kind, fields } = nodeOf(raw);
    const isEscaped =
      kind === "FuncCall" && this.#context.reader.name(listOf(fields.funcname).at(-1)) === "like_escape";
    const written = (one: unknown) => fold(this.write(one, depth));
    if (!isEscaped) return `${written(raw)}${this.#isRead ? " ESCAPE '\\'" : ""}`;
    const [pattern, escaped] = listOf(fields.args);
    return `${written(pattern)} ESCAPE ${written(escaped)}`;
  }

  #logic(fields: NodeFields, depth: number): string {
    this.#only("logic", fields, ["boolop", "args"]);
    const args = listOf(fields.args).map((one) => this.write(one, depth));
    if (fields.boolop === "NOT_EXPR") return `(NOT ${args[0]})`;
    return `(${args.join(fields.boolop === "OR_EXPR" ? " OR " : " AND ")})`;
  }

  #truth(fields: NodeFields, depth: number): string {
    this.#only("a test", fields, ["arg", "booltesttype"]);
    const words: Record<string, string> = {
      IS_TRUE: "IS TRUE",
      IS_NOT_TRUE: "IS NOT TRUE",
      IS_FALSE: "IS FALSE",
      IS_NOT_FALSE: "IS NOT FALSE",
    };
    const word = words[String(fields.booltesttype)];
    if (!word) throw this.#refuse("IS UNKNOWN is not allowed: write IS NULL");
    return `(${this.write(fields.arg, depth)} ${word})`;
  }

  #choice(fields: NodeFields, depth: number, isEqual: boolean): string {
    this.#only("CASE", fields, ["arg", "args", "defresult"]);
    const whens = listOf(fields.args).map((one) => {
      const { fields: when } = nodeOf(one);
      this.#only("WHEN", when, ["expr", "result"]);
      return ` WHEN ${this.write(when.expr, depth)} THEN ${this.write(when.result, depth, isEqual)}`;
    });
    const subject = fields.arg === undefined ? "" : ` ${this.write(fields.arg, depth)}`;
    const otherwise =
      fields.defresult === undefined ? "" : ` ELSE ${this.write(fields.defresult, depth, isEqual)}`;
    const choice = `CASE${subject}${whens.join("")}${otherwise} END`;
    const results = [...listOf(fields.args).map((one) => nodeOf(one).fields.result), fields.defresult];
    return results.every((one) => one === undefined || isLiteral(one))
      ? this.byBytes(choice, isEqual)
      : choice;
  }

  #time(fields: NodeFields): string {
    this.#only("a time", fields, ["op", "typmod"]);
    if (fields.op === "SVFOP_CURRENT_TIMESTAMP") return "CURRENT_TIMESTAMP";
    if (fields.op === "SVFOP_CURRENT_DATE") return "CURRENT_DATE";
    throw this.#refuse("only CURRENT_TIMESTAMP and CURRENT_DATE are allowed of such words");
  }

  #call(fields: NodeFields, depth: number, isSide: boolean): string {
    const known = ["funcname", "args", "agg_star", "agg_distinct", "agg_filter", "agg_order", "over"];
    this.#only("a call", fields, [...known, "funcformat", "agg_within_group"]);
    const { reader, dialect, isPlain } = this.#context;
    const name = reader.ownName(fields.funcname);
    if (isPlain) throw this.#refuse("functions are not allowed in a table");
    const printed = Object.hasOwn(functionNames, name) ? functionNames[name]![dialect] : undefined;
    if (!printed) throw this.#refuse(`function ${JSON.stringify(name.slice(0, 60))} is not allowed`);
    const order = fields.agg_order === undefined ? "" : `ORDER BY ${this.order(fields.agg_order, depth)}`;
    const within = fields.agg_within_group === true;
    const distinct = fields.agg_distinct === true ? "DISTINCT " : "";
    const isEqual = isSide && (textual.has(name) || cutting.has(name));
    const list = this.list(fields.args, depth, isEqual);
    const args =
      fields.agg_star === true ? "*" : `${distinct}${folding.has(name) ? this.byBytes(list) : list}`;
    const inside = order === "" || within ? args : `${args} ${order}`;
    const filter =
      fields.agg_filter === undefined ? "" : ` FILTER (WHERE ${this.write(fields.agg_filter, depth)})`;
    const over = fields.over === undefined ? "" : ` OVER (${this.#window(fields.over as NodeFields, depth)})`;
    const own = dialect === "postgres" ? `pg_catalog.${printed}` : printed;
    const call = `${own}(${inside})${within ? ` WITHIN GROUP (${order})` : ""}${filter}${over}`;
    if (textual.has(name) && !isEqual) return this.byBytes(growing.has(name) ? this.#bounded(call) : call);
    // On its way through JSON the folded text loses the order that it was folded by.
    if (isSide && this.#isPostgres && folding.has(name)) return `(pg_catalog.to_jsonb(${call}) #>> '{}')`;
    if (growing.has(name)) return this.#bounded(call);
    if (!this.#hasWalls || !gathering.has(name)) return call;
    if (++this.#gathered > gatheringMax)
      throw this.#refuse(`string_agg, array_agg and json_agg are allowed ${gatheringMax} times`);
    const texts = listOf(fields.args).map((one) => `CAST(${this.write(one, depth)} AS text)`);
    const watched = name === "string_agg" ? `${distinct}${texts.join(", ")}` : `${args}, NULL`;
    return `CASE WHEN ${gatheredName}(${watched})${filter}${over} IS NOT NULL THEN ${call} END`;
  }

  /** Queries of PostgreSQL, which bounds no value below a gigabyte. */
  get #hasWalls(): boolean {
    return this.#isPostgres && this.#context.subquery !== undefined;
  }

  #bounded(value: string): string {
    return this.#hasWalls ? `${boundedName}(${value})` : `(${value})`;
  }

  #window(fields: NodeFields, depth: number): string {
    this.#only("a window", fields, ["partitionClause", "orderClause", "frameOptions"]);
    const partition =
      fields.partitionClause === undefined ? "" : `PARTITION BY ${this.list(fields.partitionClause, depth)}`;
    const order = fields.orderClause === undefined ? "" : `ORDER BY ${this.order(fields.orderClause, depth)}`;
    if (Number(fields.frameOptions ?? 0) !== defaultFrame)
      throw this.#refuse("a window with a frame is not allowed");
    return [partition, order].filter((part) => part !== "").join(" ");
  }

  #sublink(fields: NodeFields, depth: number): string {
    this.#only("a query inside", fields, ["subLinkType", "subselect", "testexpr", "operName"]);
    const { subquery } = this.#context;
    if (!subquery) throw this.#refuse("a query may not stand here");
    const inner = subquery(fields.subselect, depth);
    switch (fields.subLinkType) {
      case "EXISTS_SUBLINK":
        return `EXISTS (${inner})`;
      case "EXPR_SUBLINK":
        return `(${inner})`;
      case "ANY_SUBLINK":
        if (fields.operName === undefined)
          return `(${this.write(fields.testexpr, depth, true)} IN (${inner}))`;
        throw this.#refuse("ANY is not allowed: write IN or EXISTS");
      default:
        throw this.#refuse("such a query inside an expression is not allowed");
    }
  }
}

/** Types that sort by a locale where no other order is said. */
export const isText = (type: string): boolean => /^(text|varchar|bpchar)\b/.test(type);

/** A text as it was typed: it has no type yet, so that what stands beside it gives it one. */
export const isLiteral = (raw: unknown): boolean =>
  nodeOf(raw).kind === "A_Const" && nodeOf(raw).fields.sval !== undefined;
