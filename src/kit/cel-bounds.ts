import { RE2JS } from "@bufbuild/re2";
import type { ASTNode, Environment } from "@marcbachmann/cel-js";

/** The reason an expression was refused or failed; never holds the data it ran on. */
export class CelError extends Error {
  constructor(message: string) {
    super(message);
    this.name = "CelError";
  }
}

/** What one evaluation may look at: list items and map entries, each one as often as it is looked at. */
export const celItemsMax = 10_000;
/** So many letters count as one item; a search by pattern is slower by the second number. */
const lettersAnItem = 1_000;
const patternLettersAnItem = 50;

/** Nested macros cost the product of their lists: two deep is the most. */
const macroDepthMax = 2;
const macros = new Set(["all", "exists", "exists_one", "filter", "map"]);

const patternsMax = 500;
const patterns = new Map<string, RE2JS>();

function compilePattern(pattern: string): RE2JS {
  let compiled = patterns.get(pattern);
  if (!compiled) {
    compiled = RE2JS.compile(pattern);
    if (patterns.size >= patternsMax) patterns.delete(patterns.keys().next().value!);
    patterns.set(pattern, compiled);
  }
  return compiled;
}

// Evaluation is synchronous, so one budget at a time is enough.
let itemsLeft = 0;

function spend(items: number): void {
  itemsLeft -= items;
  if (itemsLeft < 0) throw tooMuch;
}

/** Thrown often inside a macro that goes on after errors: made once. */
const tooMuch = new CelError(`looks at more than ${celItemsMax} items`);

/** Runs a rewritten program. Macros absorb errors, so what counts is whether the budget was kept. */
export function withinBudget<T>(run: () => T): T {
  itemsLeft = celItemsMax;
  try {
    const result = run();
    if (itemsLeft < 0) throw tooMuch;
    return result;
  } catch (error) {
    throw itemsLeft < 0 ? tooMuch : error;
  }
}

const isList = (value: unknown): value is readonly unknown[] => Array.isArray(value);
const isMap = (value: unknown): value is object =>
  typeof value === "object" && value !== null && Object.getPrototypeOf(value) === Object.prototype;

const textItems = (value: unknown): number =>
  typeof value === "string" ? Math.floor(value.length / lettersAnItem) : 0;

function walkedItems(value: unknown): number {
  if (isList(value)) return value.length;
  return isMap(value) ? Object.keys(value).length : textItems(value);
}

/** Spends as it goes, so that it never walks further than the budget. */
function spendDeep(value: unknown): void {
  spend(walkedItems(value));
  if (isList(value)) for (const item of value) spendDeep(item);
  else if (isMap(value)) for (const item of Object.values(value)) spendDeep(item);
}

/** What stands around an operand in the program that runs, by what is about to happen to the operand's value. */
const meters: Record<string, (value: unknown) => void> = {
  svc_read: (value) => spend(textItems(value)),
  svc_walk: (value) => spend(walkedItems(value)),
  svc_compare: spendDeep,
  svc_search: (value) => {
    if (isList(value)) spendDeep(value);
  },
};

const operandMeters: Record<string, string> = {
  "+": "svc_walk",
  "==": "svc_compare",
  "!=": "svc_compare",
  "<": "svc_read",
  "<=": "svc_read",
  ">": "svc_read",
  ">=": "svc_read",
};

/** Teaches the environment of rewritten programs what `rewrite` writes. */
export function registerBounds(environment: Environment): void {
  for (const [name, meter] of Object.entries(meters))
    environment.registerFunction(`${name}(dyn): dyn`, (value: unknown) => {
      meter(value);
      return value;
    });
  environment.registerFunction("svc_matches(string, string): bool", (text: string, pattern: string) => {
    spend(Math.floor(text.length / patternLettersAnItem));
    return compilePattern(pattern).test(text);
  });
}

/**
 * The expression again, with every operand whose size decides over the cost inside a meter, and `matches` on RE2, which
 * runs in linear time where JavaScript's own expressions backtrack. The same text when neither is needed. Throws CelError
 * for what cannot be bounded.
 */
export function rewrite(ast: ASTNode): { text: string; changed: boolean } {
  let changed = false;

  const meter = (name: string, node: ASTNode, depth: number): string => {
    if (node.op === "value") return write(node, depth);
    changed = true;
    return `${name}(${write(node, depth)})`;
  };

  const matches = (text: ASTNode, pattern: ASTNode | undefined, depth: number): string => {
    if (pattern?.op !== "value" || typeof pattern.args !== "string")
      throw new CelError("matches() wants its pattern as a literal text");
    try {
      compilePattern(pattern.args);
    } catch {
      throw new CelError("matches(): the pattern is no RE2 expression");
    }
    changed = true;
    return `svc_matches(${write(text, depth)}, ${write(pattern, depth)})`;
  };

  const call = (name: string, receiver: ASTNode | undefined, args: readonly ASTNode[], outer: number) => {
    if (name === "matches") {
      const [text, pattern] = receiver ? [receiver, args[0]] : args;
      if (text) return matches(text, pattern, outer);
    }
    const isMacro = receiver !== undefined && macros.has(name);
    const depth = isMacro ? outer + 1 : outer;
    if (depth > macroDepthMax) throw new CelError(`macros may be nested ${macroDepthMax} deep at most`);
    // The arguments of a macro, of `has` and of `cel.bind` are names and expressions, not values.
    const plain = isMacro || name === "has" || name === "bind";
    const given = args.map((arg) => (plain ? write(arg, depth) : meter("svc_read", arg, depth))).join(", ");
    if (!receiver) return `${name}(${given})`;
    // Chained macros walk one after the other, so a receiver is as deep as the macro that it feeds.
    const on =
      name === "bind" ? write(receiver, outer) : meter(isMacro ? "svc_walk" : "svc_read", receiver, outer);
    return `${on}.${name}(${given})`;
  };

  const binary = (op: string, [left, right]: readonly [ASTNode, ASTNode], depth: number): string => {
    if (op === "in") return `(${write(left, depth)} in ${meter("svc_search", right, depth)})`;
    // Against a literal, comparing costs no more than the literal is long.
    const name = op === "+" || (left.op !== "value" && right.op !== "value") ? operandMeters[op] : undefined;
    const side = (node: ASTNode) => (name ? meter(name, node, depth) : write(node, depth));
    return `(${side(left)} ${op} ${side(right)})`;
  };

  const write = (node: ASTNode, depth: number): string => {
    const { op, args } = node;
    const list = (nodes: readonly ASTNode[]) => nodes.map((item) => write(item, depth)).join(", ");
    switch (op) {
      case "value":
        // As it was spelt: what prints numbers and texts anew may change them.
        return node.input.slice(node.start, node.end);
      case "id":
        return args;
      case ".":
        return `${write(args[0], depth)}.${args[1]}`;
      case "[]":
        return `${write(args[0], depth)}[${write(args[1], depth)}]`;
      case "call":
        return call(args[0], undefined, args[1], depth);
      case "rcall":
        return call(args[0], args[1], args[2], depth);
      case "list":
        return `[${list(args)}]`;
      case "map":
        return `{${args.map(([key, value]) => `${write(key, depth)}: ${write(value, depth)}`).join(", ")}}`;
      case "?:":
        return `(${write(args[0], depth)} ? ${write(args[1], depth)} : ${write(args[2], depth)})`;
      case "!_":
      case "-_":
        return `(${op[0]}${write(args, depth)})`;
      case ".?":
      case "[?]":
        throw new CelError("optional access is not supported");
      default:
        return binary(op, args, depth);
    }
  };

  return { text: write(ast, 0), changed };
}
