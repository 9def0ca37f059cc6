import type { ThingKind } from "../../../gate/things.ts";
import type { StoreEngine } from "../../../store/store.ts";

/** What a function is called in each dialect; left out where it has none that does the same. */
export type FunctionNames = Partial<Record<StoreEngine, string>>;

const both = (...names: string[]): Record<string, FunctionNames> =>
  Object.fromEntries(names.map((name) => [name, { postgres: name, libsql: name }]));
const onlyPostgres = (...names: string[]): Record<string, FunctionNames> =>
  Object.fromEntries(names.map((name) => [name, { postgres: name }]));

/**
 * All functions that a query may call: pure ones that read nothing but their arguments, and none that makes
 * a large value of a small one.
 */
export const functionNames: Readonly<Record<string, FunctionNames>> = {
  ...both("count", "sum", "avg", "min", "max", "string_agg"),
  ...both("lower", "upper", "length", "ltrim", "rtrim", "substr", "abs", "round", "sign", "concat"),
  ...both("ceil", "floor", "sqrt", "exp", "ln", "mod", "power"),
  ...both("row_number", "rank", "dense_rank", "percent_rank", "cume_dist", "ntile"),
  ...both("lag", "lead", "first_value", "last_value", "nth_value"),
  btrim: { postgres: "btrim", libsql: "trim" },
  ceiling: { postgres: "ceiling", libsql: "ceil" },
  char_length: { postgres: "char_length", libsql: "length" },
  octet_length: { postgres: "octet_length", libsql: "octet_length" },
  substring: { postgres: "substring", libsql: "substr" },
  ...onlyPostgres("now", "date_trunc", "date_part", "extract", "to_char", "age", "to_timestamp"),
  ...onlyPostgres("bool_and", "bool_or", "every", "stddev", "variance", "array_agg", "json_agg"),
  ...onlyPostgres("percentile_cont", "percentile_disc", "mode", "left", "right", "strpos", "starts_with"),
  ...onlyPostgres("split_part", "reverse", "md5", "trunc", "json_build_object", "jsonb_build_object"),
  ...onlyPostgres("json_typeof", "json_array_length", "width_bucket", "timezone"),
};

/** PostgreSQL's functions that gather their input in one value; libSQL bounds all that a query holds. */
export const gathering: ReadonlySet<string> = new Set(["string_agg", "array_agg", "json_agg"]);
/** So many of them in one query. */
export const gatheringMax = 4;
/** And those that make a larger value of several. */
export const growing: ReadonlySet<string> = new Set([
  ...["concat", "json_build_object", "jsonb_build_object", "to_char"],
]);

/** What folds the one text that it is given, and makes a text of a value that is none. */
export const folding: ReadonlySet<string> = new Set(["lower", "upper"]);
export const textual: ReadonlySet<string> = new Set(["to_char", "concat", "json_typeof"]);
/** What answers the same in the order of any locale. */
export const cutting: ReadonlySet<string> = new Set([
  ...["substr", "substring", "left", "right", "btrim", "ltrim", "rtrim", "split_part", "reverse", "md5"],
]);

/** Operators between two values, and of one; the rest has no place here. */
export const binaryOperators: ReadonlySet<string> = new Set([
  ...["=", "<>", "<", ">", "<=", ">=", "+", "-", "*", "/", "%", "||", "->", "->>"],
]);
export const unaryOperators: ReadonlySet<string> = new Set(["-", "+"]);

/** A type of a column or a cast, under the name that the parser gives it. */
export interface TypeName {
  postgres: string;
  libsql: string;
  /** How many numbers it takes: `numeric(10, 2)`. */
  sizes?: number;
}

const typeOf = (postgres: string, libsql: string, sizes = 0): TypeName => ({ postgres, libsql, sizes });

export const typeNames: Readonly<Record<string, TypeName>> = {
  text: typeOf("text", "TEXT"),
  varchar: typeOf("varchar", "TEXT", 1),
  bpchar: typeOf("bpchar", "TEXT", 1),
  int2: typeOf("smallint", "INTEGER"),
  int4: typeOf("integer", "INTEGER"),
  int8: typeOf("bigint", "INTEGER"),
  numeric: typeOf("numeric", "NUMERIC", 2),
  float4: typeOf("real", "REAL"),
  float8: typeOf("double precision", "REAL"),
  bool: typeOf("boolean", "BOOLEAN"),
  timestamptz: typeOf("timestamptz", "TEXT"),
  timestamp: typeOf("timestamp", "TEXT"),
  date: typeOf("date", "TEXT"),
  time: typeOf("time", "TEXT"),
  json: typeOf("json", "TEXT"),
  jsonb: typeOf("jsonb", "TEXT"),
  uuid: typeOf("uuid", "TEXT"),
};

/** Tables of every environment besides those of its SQL projections, and which things their rows are. */
export const ownTables = {
  runs: ["run"],
  steps: ["run"],
  events: ["event", "stream"],
  functions: ["function"],
} as const satisfies Record<string, readonly ThingKind[]>;

export const isOwnTable = (name: string): name is keyof typeof ownTables => Object.hasOwn(ownTables, name);

/** Tables of SQL projections. */
export const projectionTable = /^proj_[a-z0-9_]{1,45}$/;

/** Texts of any locale are equal where their bytes are. */
export const equalities: ReadonlySet<string> = new Set(["=", "<>"]);

/** What the parser says of a window without a frame clause. */
export const defaultFrame = 1058;
