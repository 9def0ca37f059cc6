import { RE2JS } from "@bufbuild/re2";
import { type ASTNode, Environment, serialize } from "@marcbachmann/cel-js";
import { expressionBytesMax } from "./limits.ts";

/** The reason an expression was refused or failed; never holds the data it ran on. */
export class CelError extends Error {
  constructor(message: string) {
    super(message);
    this.name = "CelError";
  }
}

export interface CelProgram {
  readonly text: string;
  /** Throws CelError when the expression does not apply to this data (a missing key, a wrong type). */
  run(context: Record<string, unknown>): unknown;
}

export interface CelOptions {
  /** Names the expression may use; their types are not known before it runs. */
  variables: readonly string[];
  result: "bool" | "any";
}

/** A bound on parsing; evaluation is bounded by these, by `macroDepthMax` and by the size of what it runs on. */
const limits = {
  maxAstNodes: 500,
  maxDepth: 32,
  maxListElements: 100,
  maxMapEntries: 100,
  maxCallArguments: 8,
};

/** Nested macros cost the product of their lists: two deep is the most. */
const macroDepthMax = 2;
const macros = new Set(["all", "exists", "exists_one", "filter", "map"]);

const programsMax = 2_000;
const patternsMax = 500;

const environments = new Map<string, Environment>();
const programs = new Map<string, CelProgram>();
const patterns = new Map<string, RE2JS>();

function remember<V>(cache: Map<string, V>, max: number, key: string, value: V): V {
  if (cache.size >= max) cache.delete(cache.keys().next().value as string);
  cache.set(key, value);
  return value;
}

const arithmetic: Record<string, (left: number, right: number) => number> = {
  "+": (left, right) => left + right,
  "-": (left, right) => left - right,
  "*": (left, right) => left * right,
  "/": (left, right) => left / right,
};

/** JSON numbers are doubles; without these `data.quantity + 1` would be a type error. */
function mixNumbers(environment: Environment): void {
  for (const [sign, apply] of Object.entries(arithmetic))
    for (const types of [
      ["double", "int"],
      ["int", "double"],
    ])
      environment.registerOperator(`${types[0]} ${sign} ${types[1]}: double`, (left: number, right: number) =>
        apply(Number(left), Number(right)),
      );
}

function environmentOf(variables: readonly string[]): Environment {
  const key = variables.join(",");
  const known = environments.get(key);
  if (known) return known;
  const environment = new Environment({ limits });
  for (const name of variables) environment.registerVariable(name, "dyn");
  mixNumbers(environment);
  environment.registerFunction(`${safeMatch}(string, string): bool`, (text: string, pattern: string) =>
    compilePattern(pattern).test(text),
  );
  environments.set(key, environment);
  return environment;
}

/** `text.matches(pattern)` becomes a call of this: RE2 runs in linear time, JavaScript's own expressions backtrack. */
const safeMatch = "svc_matches";

function compilePattern(pattern: string): RE2JS {
  return patterns.get(pattern) ?? remember(patterns, patternsMax, pattern, RE2JS.compile(pattern));
}

/** Checks what the parser does not bound, and rewrites `matches`; answers whether anything was rewritten. */
function guard(node: ASTNode, macroDepth: number): boolean {
  const { op, args } = node as { op: string; args: unknown };
  let depth = macroDepth;
  let rewritten = false;
  if (op === "call" && (args as [string])[0] === safeMatch)
    throw new CelError(`unknown function ${safeMatch}`);
  if (op === "rcall") {
    const [name, receiver, given] = args as [string, ASTNode, ASTNode[]];
    if (macros.has(name)) depth++;
    if (depth > macroDepthMax) throw new CelError(`macros may be nested ${macroDepthMax} deep at most`);
    if (name === "matches") {
      const [pattern] = given;
      if (given.length !== 1 || pattern?.op !== "value" || typeof pattern.args !== "string")
        throw new CelError("matches() wants its pattern as a literal text");
      try {
        compilePattern(pattern.args);
      } catch {
        throw new CelError("matches(): the pattern is no RE2 expression");
      }
      Object.assign(node, { op: "call", args: [safeMatch, [receiver, pattern]] });
      guard(receiver, depth);
      return true;
    }
  }
  for (const child of childrenOf(args)) rewritten = guard(child, depth) || rewritten;
  return rewritten;
}

const isNode = (value: unknown): value is ASTNode =>
  typeof value === "object" && value !== null && "op" in value;

function childrenOf(args: unknown): ASTNode[] {
  if (isNode(args)) return [args];
  return Array.isArray(args) ? args.flatMap(childrenOf) : [];
}

/** The library's messages end with an excerpt of the source; the first line says what is wrong. */
const reasonOf = (error: unknown): string =>
  (error as Error).message.split("\n")[0] ?? "not a CEL expression";

/** Throws CelError that says why the text is refused. */
export function compileCel(text: string, { variables, result }: CelOptions): CelProgram {
  if (Buffer.byteLength(text) > expressionBytesMax) throw new CelError(`at most ${expressionBytesMax} bytes`);
  const key = `${result}\n${variables.join(",")}\n${text}`;
  const known = programs.get(key);
  if (known) return known;
  const environment = environmentOf(variables);
  const parse = (source: string) => {
    try {
      return environment.parse(source);
    } catch (error) {
      throw new CelError(reasonOf(error));
    }
  };
  let parsed = parse(text);
  const checked = parsed.check();
  if (!checked.valid) throw new CelError(reasonOf(checked.error));
  if (result === "bool" && checked.type !== "bool" && checked.type !== "dyn")
    throw new CelError(`must be true or false, not ${checked.type}`);
  if (guard(parsed.ast, 0)) parsed = parse(serialize(parsed.ast));
  const program: CelProgram = {
    text,
    run(context) {
      try {
        return parsed(context) as unknown;
      } catch (error) {
        throw new CelError(reasonOf(error));
      }
    },
  };
  return remember(programs, programsMax, key, program);
}
