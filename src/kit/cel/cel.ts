import type { Environment } from "@marcbachmann/cel-js";
import { expressionBytesMax } from "../limits.ts";
import { sizedCache } from "../ttl-cache.ts";
import {
  type CelBudget,
  CelError,
  celItemsMax,
  itemsAtLeast,
  registerBounds,
  withinBudget,
} from "./bounds.ts";
import { rewrite } from "./rewrite.ts";

/** Of the library's evaluator, on which it calls registered functions. */
interface Evaluator {
  /** `list<dyn>` for every list. */
  debugType(value: unknown): unknown;
  /** The same down to the first value of the innermost list; calls itself. */
  debugTypeDeep(value: unknown): unknown;
}

/**
 * Types are told apart so deep. The library goes down to the end, makes a name as long as the data is deep of
 * every level, and keeps all of them: 10,000 brackets took it 11 s and half a gigabyte.
 */
const typeDepthMax = 8;

function boundTypesOf(evaluator: Evaluator): void {
  const deep = evaluator.debugTypeDeep.bind(evaluator);
  let depth = 0;
  evaluator.debugTypeDeep = (value) => {
    if (depth >= typeDepthMax) return evaluator.debugType(value);
    depth++;
    try {
      return deep(value);
    } finally {
      depth--;
    }
  };
}

/** What is deeper than that is `dyn` to all programs of the environment. */
function boundTypes(environment: Environment): void {
  let isBound = false;
  const bind = function (this: Evaluator): boolean {
    if (!isBound) boundTypesOf(this);
    isBound = true;
    return true;
  };
  environment.registerFunction("svc_bind_types(): bool", bind as () => boolean);
  environment.evaluate("svc_bind_types()");
  if (!isBound) throw new Error("the library does not call its functions on its evaluator any more");
}

export { CelBudget, CelError, itemsToRead } from "./bounds.ts";

export interface CelProgram {
  readonly text: string;
  /**
   * Throws CelError when the expression does not apply to this data (a missing key, a wrong type, too much to
   * look at). What it takes is spent from the shared budget, which is used up afterwards when that was not
   * enough.
   */
  run(context: Record<string, unknown>, shared?: CelBudget): unknown;
}

export interface CelOptions {
  /** Names the expression may use; their types are not known before it runs. */
  variables: readonly string[];
  result: "bool" | "any";
  /** What one evaluation may look at; `celItemsMax` when left out. */
  itemsMax?: number;
}

/** What an expression may be; what it may do is bounded in cel-bounds.ts. */
const limits = {
  maxAstNodes: 500,
  maxDepth: 32,
  maxListElements: 100,
  maxMapEntries: 100,
  maxCallArguments: 8,
};
/** The same expression with its meters and all its parentheses. */
const rewrittenLimits = { ...limits, maxAstNodes: 2_000, maxDepth: 1_000 };

const programsMax = 2_000;
/**
 * Of the texts of all programs that are kept, as they run: the longest expression with all its meters has
 * about 30 KB, and each letter of it costs about a hundred bytes.
 */
const programsCharsMax = 1024 * 1024;

interface CelEnvironments {
  /** What users write for. */
  outer: Environment;
  /** What runs: knows the meters. */
  inner: Environment;
}

const environments = new Map<string, CelEnvironments>();
const programs = sizedCache<CelProgram>({ entriesMax: programsMax, charsMax: programsCharsMax });

const arithmetic: Record<string, (left: number, right: number) => number> = {
  "+": (left, right) => left + right,
  "-": (left, right) => left - right,
  "*": (left, right) => left * right,
  "/": (left, right) => left / right,
  "%": (left, right) => left % right,
};

/**
 * JSON numbers are doubles; without these `data.quantity + 1` and `data.quantity % 2` would be type errors.
 */
function mixNumbers(environment: Environment): void {
  for (const [sign, apply] of Object.entries(arithmetic))
    for (const [left, right] of [
      ["double", "int"],
      ["int", "double"],
      ...(sign === "%" ? [["double", "double"]] : []),
    ])
      environment.registerOperator(`${left} ${sign} ${right}: double`, (one: number, other: number) =>
        apply(Number(one), Number(other)),
      );
}

function environmentsOf(variables: readonly string[]): CelEnvironments {
  const key = variables.join(",");
  let known = environments.get(key);
  if (!known) {
    // Loaded by the first expression, which takes 25 ms longer for it.
    const { Environment } = require("@marcbachmann/cel-js") as typeof import("@marcbachmann/cel-js");
    const outer = new Environment({ limits });
    // Meters hide the types of what they stand around, so lists of one kind look like others.
    const inner = new Environment({ limits: rewrittenLimits, homogeneousAggregateLiterals: false });
    for (const environment of [outer, inner]) {
      for (const name of variables) environment.registerVariable(name, "dyn");
      mixNumbers(environment);
    }
    outer.registerFunction("matches(string, string): bool", () => false);
    registerBounds(inner);
    boundTypes(outer);
    boundTypes(inner);
    known = { outer, inner };
    environments.set(key, known);
  }
  return known;
}

/** The library's messages end with an excerpt of the source; the first line says what is wrong. */
function refusal(error: unknown, variables: readonly string[]): CelError {
  if (error instanceof CelError) return error;
  const said = (error as Error).message.split("\n")[0] || "not a CEL expression";
  if (said.startsWith("Unknown variable")) return new CelError(`${said} (one of ${variables.join(", ")})`);
  return new CelError(said.endsWith("EOF") ? `${said}, the text ends too early` : said);
}

/** Messages that name types only; all others may quote the data. */
const namesTypes = new Set([
  "no_such_overload",
  "invalid_comparison_type",
  "invalid_condition_type",
  "invalid_logical_operand",
]);

function failure(error: unknown): CelError {
  if (error instanceof CelError) return error;
  const { code, summary } = error as { code?: unknown; summary?: unknown };
  if (typeof code !== "string") return new CelError("cannot be evaluated");
  return new CelError(
    namesTypes.has(code) ? String(summary).replaceAll("svc_", "") : code.replaceAll("_", " "),
  );
}

/** The program, and how many characters it has as it runs. */
function compile(
  text: string,
  { result, itemsMax = celItemsMax }: CelOptions,
  { outer, inner }: CelEnvironments,
): { program: CelProgram; chars: number } {
  const parsed = outer.parse(text);
  const checked = parsed.check();
  if (!checked.valid) throw checked.error;
  if (result === "bool" && checked.type !== "bool" && checked.type !== "dyn")
    throw new CelError(`must be true or false, not ${checked.type}`);
  const rewritten = rewrite(parsed.ast);
  const least = itemsAtLeast(parsed.ast);
  if (!rewritten.changed)
    return { program: { text, run: guarded(least, (context) => parsed(context)) }, chars: text.length };
  const bounded = inner.parse(rewritten.text);
  const rechecked = bounded.check();
  if (!rechecked.valid) throw rechecked.error;
  const run = metered(bounded, itemsMax);
  return { program: { text, run: guarded(least, run) }, chars: rewritten.text.length };
}

/** Made apart from what was parsed first, which would stay as long as the program. */
const metered =
  (bounded: (context: Record<string, unknown>) => unknown, itemsMax: number): CelProgram["run"] =>
  (context, shared) =>
    withinBudget(itemsMax, () => bounded(context), shared);

function guarded(least: number, run: CelProgram["run"]): CelProgram["run"] {
  return (context, shared) => {
    shared?.spend(least);
    try {
      return run(context, shared);
    } catch (error) {
      throw failure(error);
    }
  };
}

/** Throws CelError that says why the text is refused. Programs are kept by their text. */
export function compileCel(text: string, options: CelOptions): CelProgram {
  if (Buffer.byteLength(text) > expressionBytesMax) throw new CelError(`at most ${expressionBytesMax} bytes`);
  const key = `${options.result}\n${options.variables.join(",")}\n${options.itemsMax}\n${text}`;
  const known = programs.get(key);
  if (known) return known;
  const languages = environmentsOf(options.variables);
  let compiled: ReturnType<typeof compile>;
  try {
    compiled = compile(text, options, languages);
  } catch (error) {
    throw refusal(error, options.variables);
  }
  programs.set(key, compiled.program, compiled.chars);
  return compiled.program;
}
