import type { StoreEngine } from "../../../store/store.ts";
import { quotedName } from "./expressions.ts";
import { filterBytesMax, filterValuesMax, sqlDepthMax } from "./limits.ts";
import { refused } from "./nodes.ts";

/** A condition or an order in the dialect of the store, with values apart from the text. */
export interface Filter {
  text: string;
  values: string[];
}

interface Token {
  kind: "name" | "word" | "text" | "number" | "sign" | "end";
  text: string;
}

const words = new Set("AND OR NOT IN BETWEEN LIKE IS NULL TRUE FALSE ASC DESC NULLS FIRST LAST".split(" "));
const comparisons = new Set(["=", "<>", "!=", "<", ">", "<=", ">="]);
const pattern =
  /\s*(?:([A-Za-z_][A-Za-z0-9_]*)|"((?:[^"]|"")+)"|'((?:[^']|'')*)'|([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)|(<>|!=|<=|>=|[=<>(),]))/y;

function tokensOf(field: string, text: string): Token[] {
  if (Buffer.byteLength(text) > filterBytesMax)
    throw refused(field, `must be at most ${filterBytesMax} bytes`);
  if (!text.isWellFormed() || text.includes("\0"))
    throw refused(field, "must be well-formed Unicode without zero bytes");
  const tokens: Token[] = [];
  const reader = new RegExp(pattern);
  const end = text.trimEnd().length;
  while (reader.lastIndex < end) {
    const at = reader.lastIndex;
    const found = reader.exec(text);
    if (!found)
      throw refused(field, `cannot be read at ${JSON.stringify(text.slice(at).trim().slice(0, 40))}`);
    const [, bare, name, literal, number, sign] = found;
    if (bare !== undefined && words.has(bare.toUpperCase()))
      tokens.push({ kind: "word", text: bare.toUpperCase() });
    else if (bare !== undefined) tokens.push({ kind: "name", text: bare.toLowerCase() });
    else if (name !== undefined) tokens.push({ kind: "name", text: name.replaceAll('""', '"') });
    else if (literal !== undefined) tokens.push({ kind: "text", text: literal.replaceAll("''", "'") });
    else if (number !== undefined) tokens.push({ kind: "number", text: number });
    else tokens.push({ kind: "sign", text: sign! });
  }
  return [...tokens, { kind: "end", text: "the end" }];
}

class FilterReader {
  readonly #dialect: StoreEngine;
  readonly #field: string;
  readonly #tokens: Token[];
  readonly values: string[] = [];
  #at = 0;

  constructor(dialect: StoreEngine, field: string, text: string) {
    this.#dialect = dialect;
    this.#field = field;
    this.#tokens = tokensOf(field, text);
  }

  condition(): string {
    const text = this.#either(0);
    this.#end();
    return text;
  }

  order(): string {
    const parts: string[] = [];
    do parts.push(this.#direction());
    while (this.#takes("sign", ","));
    this.#end();
    return parts.join(", ");
  }

  get #next(): Token {
    return this.#tokens[this.#at]!;
  }

  #takes(kind: Token["kind"], text: string): boolean {
    const isNext = this.#next.kind === kind && this.#next.text === text;
    if (isNext) this.#at++;
    return isNext;
  }

  #expect(kind: Token["kind"], text: string): void {
    if (!this.#takes(kind, text)) throw this.#unexpected(text);
  }

  #unexpected(wanted: string) {
    return refused(
      this.#field,
      `${wanted} is expected before ${JSON.stringify(this.#next.text.slice(0, 40))}`,
    );
  }

  #end(): void {
    if (this.#next.kind !== "end") throw this.#unexpected("the end");
  }

  #direction(): string {
    const column = this.#column();
    const way = this.#takes("word", "DESC") ? " DESC" : this.#takes("word", "ASC") ? " ASC" : "";
    if (!this.#takes("word", "NULLS")) return column + way;
    if (this.#takes("word", "FIRST")) return `${column}${way} NULLS FIRST`;
    this.#expect("word", "LAST");
    return `${column}${way} NULLS LAST`;
  }

  #either(depth: number): string {
    const parts = [this.#all(depth)];
    while (this.#takes("word", "OR")) parts.push(this.#all(depth));
    return parts.length === 1 ? parts[0]! : `(${parts.join(" OR ")})`;
  }

  #all(depth: number): string {
    const parts = [this.#one(depth)];
    while (this.#takes("word", "AND")) parts.push(this.#one(depth));
    return parts.length === 1 ? parts[0]! : `(${parts.join(" AND ")})`;
  }

  #one(depth: number): string {
    if (depth > sqlDepthMax) throw refused(this.#field, `nested more than ${sqlDepthMax} deep`);
    if (this.#takes("word", "NOT")) return `(NOT ${this.#one(depth + 1)})`;
    if (!this.#takes("sign", "(")) return this.#predicate();
    const inner = this.#either(depth + 1);
    this.#expect("sign", ")");
    return inner;
  }

  #predicate(): string {
    const column = this.#column();
    const { kind, text } = this.#next;
    if (kind === "sign" && comparisons.has(text)) {
      this.#at++;
      const other = this.#next.kind === "name" ? this.#column() : this.#literal();
      return `(${column} ${text === "!=" ? "<>" : text} ${other})`;
    }
    if (this.#takes("word", "IS")) {
      const not = this.#takes("word", "NOT") ? "NOT " : "";
      this.#expect("word", "NULL");
      return `(${column} IS ${not}NULL)`;
    }
    const not = this.#takes("word", "NOT") ? "NOT " : "";
    if (this.#takes("word", "LIKE"))
      return `(${column} ${not}LIKE ${this.#literal()}${this.#dialect === "libsql" ? " ESCAPE '\\'" : ""})`;
    if (this.#takes("word", "BETWEEN")) {
      const from = this.#literal();
      this.#expect("word", "AND");
      return `(${column} ${not}BETWEEN ${from} AND ${this.#literal()})`;
    }
    if (!this.#takes("word", "IN")) throw this.#unexpected("a comparison, IN, BETWEEN, LIKE or IS NULL");
    this.#expect("sign", "(");
    const list = [this.#literal()];
    while (this.#takes("sign", ",")) list.push(this.#literal());
    this.#expect("sign", ")");
    return `(${column} ${not}IN (${list.join(", ")}))`;
  }

  #column(): string {
    const { kind, text } = this.#next;
    if (kind !== "name") throw this.#unexpected("a column");
    this.#at++;
    return quotedName(this.#dialect, text);
  }

  /** Values never stand in the text. */
  #literal(): string {
    const { kind, text } = this.#next;
    this.#at++;
    if (kind === "word" && (text === "TRUE" || text === "FALSE")) return text;
    if (kind !== "text" && kind !== "number") {
      this.#at--;
      throw this.#unexpected("a value");
    }
    if (this.values.push(text) > filterValuesMax)
      throw refused(this.#field, `must have at most ${filterValuesMax} values`);
    return this.#dialect === "postgres" ? `$${this.values.length}` : `?${this.values.length}`;
  }
}

/** `WHERE …`, or nothing. Throws an `invalid_argument` that says what cannot be read. */
export function conditionOf(dialect: StoreEngine, where: string): Filter {
  if (where.trim() === "") return { text: "", values: [] };
  const reader = new FilterReader(dialect, "where", where);
  return { text: ` WHERE ${reader.condition()}`, values: reader.values };
}

export function orderOf(dialect: StoreEngine, orderBy: string): string {
  if (orderBy.trim() === "") return "";
  return ` ORDER BY ${new FilterReader(dialect, "order_by", orderBy).order()}`;
}
