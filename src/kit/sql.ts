/**
 * One SQL text for both engines. A value becomes a parameter, a nested `Sql` is spliced in, anything else is
 * refused by the types. Engines number parameters in their own way when they render.
 */
export type SqlValue = Bound | SqlArray | ByEngine | undefined;

/** A value as a driver takes it. */
export type Bound = string | number | bigint | null | Uint8Array;

/**
 * A column of values for one array parameter: `unnest` on Postgres, `json_each` on libSQL (see the seam
 * `rowsFrom`).
 */
export interface SqlArray {
  readonly array: readonly (string | number | null)[];
  readonly type: "text" | "bigint" | "int" | "float";
}

/** What the engines have by different names, where no seam of a session is at hand. */
export interface ByEngine {
  readonly libsql: Sql;
  readonly postgres: Sql;
}

export interface Sql {
  readonly strings: readonly string[];
  readonly values: readonly (SqlValue | Sql)[];
}

const isByEngine = (value: unknown): value is ByEngine =>
  typeof value === "object" && value !== null && "postgres" in value;

const isSql = (value: unknown): value is Sql =>
  typeof value === "object" && value !== null && "strings" in value && "values" in value;

export function sql(strings: TemplateStringsArray, ...values: (SqlValue | Sql)[]): Sql {
  return { strings, values };
}

/** Text that is code, never input. */
sql.raw = (text: string): Sql => ({ strings: [text], values: [] });

sql.empty = { strings: [""], values: [] } as Sql;

/** `IN ${sql.list([...])}`; an empty list matches nothing. */
sql.list = (values: readonly (string | number)[]): Sql =>
  values.length === 0
    ? sql.raw("(NULL)")
    : { strings: ["(", ...values.slice(1).map(() => ", "), ")"], values: [...values] };

/** Joins fragments; `sql.join([], " AND ")` is empty. */
sql.join = (parts: readonly Sql[], separator: string): Sql =>
  parts.length === 0
    ? sql.empty
    : { strings: ["", ...parts.slice(1).map(() => separator), ""], values: [...parts] };

/** Expressions of a `WITH`, by what stands before each parenthesis: `known AS MATERIALIZED`. */
export type Ctes = Readonly<Record<string, Sql>>;

/** `a AS (…), b AS (…)`: all of the groups that are there. */
sql.ctes = (...groups: readonly (Ctes | false | undefined)[]): Sql => {
  const parts = groups.flatMap((group) => Object.entries(group || {}));
  const strings = parts.map(([name], place) => `${place === 0 ? "" : "),\n    "}${name} (`);
  return { strings: [...strings, ")"], values: parts.map(([, query]) => query) };
};

/** `WHERE a AND b`, or nothing when there is no condition. */
sql.where = (conditions: readonly Sql[]): Sql =>
  conditions.length === 0 ? sql.empty : sql`WHERE ${sql.join(conditions, " AND ")}`;

/** A parameter that both engines read as a 64-bit number, also where nothing around it tells its type. */
sql.bigint = (value: number): Sql => sql`CAST(${value} AS BIGINT)`;

export const column = {
  text: (values: readonly (string | null)[]): SqlArray => ({ array: values, type: "text" }),
  bigint: (values: readonly (number | null)[]): SqlArray => ({ array: values, type: "bigint" }),
  int: (values: readonly (number | null)[]): SqlArray => ({ array: values, type: "int" }),
  float: (values: readonly (number | null)[]): SqlArray => ({ array: values, type: "float" }),
};

export interface Rendered {
  readonly text: string;
  readonly values: readonly Exclude<SqlValue, ByEngine | undefined>[];
}

const plain = new WeakMap<readonly string[], Map<string, string>>();
const longPartMin = 16;

function plainText(strings: readonly string[], mark: (place: number) => string, engine: string): string {
  const known = plain.get(strings)?.get(engine);
  if (known !== undefined) return known;
  const text = strings.reduce((all, part, place) => all + mark(place) + part);
  const byEngine = plain.get(strings) ?? new Map<string, string>();
  plain.set(strings, byEngine.set(engine, text));
  return text;
}

/**
 * The text with `mark(1)`, `mark(2)`, … in place of values. Texts without nested fragments are rendered once.
 */
export function render(query: Sql, mark: (place: number) => string, engine: string): Rendered {
  const nested = query.values.some((value) => isSql(value) || isByEngine(value));
  if (!nested) {
    const values = query.values.map((v) => (v === undefined ? null : v)) as Rendered["values"];
    return { text: plainText(query.strings, mark, engine), values };
  }
  const values: Exclude<SqlValue, ByEngine | undefined>[] = [];
  const write = (part: Sql): string => {
    // Marks without numbers read the same wherever the part stands, so a long one is written once.
    const isWhole = !part.values.some((value) => isSql(value) || isByEngine(value));
    if (mark.length === 0 && part.values.length >= longPartMin && isWhole) {
      for (const value of part.values) values.push(value === undefined ? null : (value as never));
      return plainText(part.strings, mark, engine);
    }
    return part.strings.reduce((all, string, place) => {
      const value = part.values[place - 1];
      if (isSql(value)) return all + write(value) + string;
      if (isByEngine(value))
        return all + write(engine === "postgres" ? value.postgres : value.libsql) + string;
      values.push(value === undefined ? null : (value as Exclude<SqlValue, ByEngine | undefined>));
      return all + mark(values.length) + string;
    });
  };
  return { text: write(query), values };
}

interface CountReader {
  one<Row extends object>(query: Sql): Promise<Row | undefined>;
}

/** How many rows there are; `rows` is `FROM` with what follows. No more than `most` are counted. */
export async function countOf(reader: CountReader, rows: Sql, most?: number): Promise<number> {
  const counted = most === undefined ? rows : sql`FROM (SELECT 1 ${rows} LIMIT ${most}) counted`;
  const row = await reader.one<{ count: number }>(sql`SELECT count(*) AS count ${counted}`);
  return Number(row?.count ?? 0);
}

/**
 * So many other letters beyond ASCII are taken for those of one search, by a pass over the text each; of
 * further ones the case counts. libSQL's parser nests no more than about forty.
 */
const foldsMax = 16;

/**
 * One letter as it is compared: the simple folding of Unicode, which never changes how many letters there
 * are.
 */
const foldLetter = (letter: string): string => {
  const upper = letter.toUpperCase();
  const folded = [...upper].length === 1 ? upper.toLowerCase() : letter.toLowerCase();
  return [...folded].length === 1 ? folded : letter;
};

let variants: Map<string, string[]> | undefined;

/**
 * The other letters that fold to this one. Made once, when somebody first looks for a letter beyond ASCII.
 */
function variantsOf(folded: string): readonly string[] {
  if (!variants) {
    variants = new Map();
    for (let point = 0x80; point <= 0x1_ffff; point++) {
      if (point >= 0xd800 && point <= 0xdfff) continue;
      const letter = String.fromCodePoint(point);
      const to = foldLetter(letter);
      if (to === letter || to < "\u0080") continue;
      const known = variants.get(to);
      if (known) known.push(letter);
      else variants.set(to, [letter]);
    }
  }
  return variants.get(folded) ?? [];
}

/** No column that is searched holds more. */
export const searchCharsMax = 2_048;

/** LIKE would compare the whole text at each place of it that begins alike. */
const places = { libsql: sql.raw("instr"), postgres: sql.raw("strpos") };

const isAscii = (text: string): boolean => /^[\0-\x7f]*$/.test(text);

/** ASCII as both engines' `lower` has it, letters beyond ASCII by themselves. */
const fold = (text: string): string =>
  [...text].map((letter) => (isAscii(letter) ? letter.toLowerCase() : foldLetter(letter))).join("");

/** Letters of a folded search, each with one that stands for it. */
function foldsOf(wanted: string): (readonly [letter: string, variant: string])[] {
  const letters = [...new Set([...wanted].filter((letter) => !isAscii(letter)))];
  const folds = letters.flatMap((letter) => variantsOf(letter).map((variant) => [letter, variant] as const));
  return folds.slice(0, foldsMax);
}

/**
 * Rows that are looked through for a text, where `most` are for a plain one: each fold is a pass more over
 * what they hold, and the bytes of a look stay the same.
 */
export const looksWithin = (most: number, ...texts: (string | undefined)[]): number =>
  Math.ceil(most / (1 + Math.max(0, ...texts.map((text) => (text ? foldsOf(fold(text)).length : 0)))));

/**
 * The column holds the text somewhere, in either case, on both engines alike: their `lower` knows ASCII only,
 * so that each further letter of the search is folded in the column by a `replace`.
 */
export function containsIgnoringCase(column: string, text: string): Sql {
  if (text.length > searchCharsMax) return sql.raw("1 = 0");
  const wanted = fold(text);
  let folded = sql`lower(${sql.raw(column)})`;
  for (const [letter, variant] of foldsOf(wanted)) folded = sql`replace(${folded}, ${variant}, ${letter})`;
  return sql`${places}(${folded}, ${wanted}) > 0`;
}
