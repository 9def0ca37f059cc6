import { RE2JS } from "@bufbuild/re2";
import type { ASTNode, Environment } from "@marcbachmann/cel-js";
import { patternSize } from "./pattern-size.ts";

/** The reason an expression was refused or failed; never holds the data it ran on. */
export class CelError extends Error {
  constructor(message: string) {
    super(message);
    this.name = "CelError";
  }
}

/**
 * What several evaluations may look at together: those of one event, of one replay, of one connection. Counted in the items that
 * an evaluation is bounded by, so that it means the same on any machine.
 */
export class CelBudget {
  readonly itemsMax: number;
  #left: number;

  constructor(itemsMax: number) {
    this.itemsMax = itemsMax;
    this.#left = itemsMax;
  }

  get left(): number {
    return this.#left;
  }

  /** Whoever meant to look at more did not: what came of the last evaluation is not to be believed. */
  get isUsedUp(): boolean {
    return this.#left < 0;
  }

  spend(items: number): void {
    this.#left -= items;
  }

  grant(items: number): void {
    this.#left = Math.min(this.itemsMax, this.#left + items);
  }
}

/** What one evaluation may look at: list items and map entries, each one as often as it is looked at. */
export const celItemsMax = 10_000;
/** So many letters count as one item. A search by pattern takes every letter through every part of the pattern at worst. */
const lettersAnItem = 1_000;
const patternPartsAnItem = 40;
/** The parts of a pattern, and its letters: RE2 is linear in their product with the text, and that is not little. */
const patternSizeMax = 500;
const patternCharsMax = 500;
/** Telling the time in another zone, as items. */
const zoneItems = 200;
/** A search compares what is sought at every letter of the text at worst: so many letters compared count as one item. */
const lettersComparedAnItem = 32_000;
/** The runtime knows no better way backwards. */
const lettersComparedBackAnItem = 4_000;
/** `size` goes from character to character. */
const charactersAnItem = 100;
/** Making a piece of a text, or reading a letter of JSON, is dearer than reading a letter. */
const piecesAnItem = 20;
const jsonLettersAnItem = 100;
/** The library tries every way to part a row of digits. */
const durationCharsMax = 32;
const durationTriesAnItem = 300;

/** Of a macro's body: what stands in it is done for every item. */
const nodesAnItem = 20;
/** Data is read before it is looked at: so many letters of JSON count as one item. */
const lettersReadAnItem = 500;

/** What it takes to read a text of JSON. */
export const itemsToRead = (json: string): number => Math.floor(json.length / lettersReadAnItem);

/** Nested macros cost the product of their lists: two deep is the most. */
const macroDepthMax = 2;
const macros = new Set(["all", "exists", "exists_one", "filter", "map"]);

interface CompiledPattern {
  re2: RE2JS;
  size: number;
}

const patternsMax = 500;
// The first one builds the library's tables: at the start, and not in somebody's call.
const patterns = new Map<string, CompiledPattern>([["", { re2: RE2JS.compile("a"), size: 1 }]]);

/** Throws CelError for a pattern that takes long to build or to search with. */
function compilePattern(pattern: string): CompiledPattern {
  let compiled = patterns.get(pattern);
  if (!compiled) {
    if (pattern.length > patternCharsMax)
      throw new CelError(`matches(): a pattern has at most ${patternCharsMax} characters`);
    // Their tables take a tenth of a second to unfold.
    if (/\\[pP]/.test(pattern)) throw new CelError("matches(): \\p and \\P are not offered");
    const size = patternSize(pattern);
    if (size > patternSizeMax)
      throw new CelError(
        `matches(): the pattern has more than ${patternSizeMax} parts, repeated ones counted`,
      );
    try {
      compiled = { re2: RE2JS.compile(pattern), size };
    } catch {
      throw new CelError("matches(): the pattern is no RE2 expression");
    }
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
const tooMuch = new CelError("looks at too much");
const tooLong = new CelError(`duration(): at most ${durationCharsMax} characters`);

/**
 * Runs a rewritten program. Macros absorb errors, so what counts is whether the budget was kept. A shared budget is used up when
 * it is what the evaluation had too little of.
 */
export function withinBudget<T>(itemsMax: number, run: () => T, shared?: CelBudget): T {
  const most = shared ? Math.min(itemsMax, Math.max(0, shared.left)) : itemsMax;
  itemsLeft = most;
  try {
    const result = run();
    if (itemsLeft >= 0) return result;
  } catch (error) {
    if (itemsLeft >= 0) throw error;
  } finally {
    // What was too dear was not done: it cost as much as there was.
    if (shared) shared.spend(itemsLeft >= 0 ? most - itemsLeft : most + (most < itemsMax ? 1 : 0));
  }
  throw new CelError(`looks at more than ${itemsMax} items`);
}

const isList = (value: unknown): value is readonly unknown[] => Array.isArray(value);
const isMap = (value: unknown): value is object =>
  typeof value === "object" && value !== null && Object.getPrototypeOf(value) === Object.prototype;

const lengthOf = (value: unknown): number =>
  typeof value === "string" || value instanceof Uint8Array ? value.length : 0;

const textItems = (value: unknown): number => Math.floor(lengthOf(value) / lettersAnItem);

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
  svc_zone: () => spend(zoneItems),
  svc_size: (value) => spend(Math.floor(lengthOf(value) / charactersAnItem)),
  svc_json: (value) => spend(Math.floor(lengthOf(value) / jsonLettersAnItem)),
  svc_duration: (value) => {
    const length = lengthOf(value);
    if (length > durationCharsMax) throw tooLong;
    spend(Math.ceil(length ** 3 / 6 / durationTriesAnItem));
  },
};

/** The same around the receiver of a method whose cost hangs on its first argument too. */
const pairMeters: Record<string, (receiver: unknown, argument: unknown) => void> = {
  svc_sought: (text, sought) => {
    spend(textItems(text) + textItems(sought));
    spend(Math.floor((lengthOf(text) * lengthOf(sought)) / lettersComparedAnItem));
  },
  svc_sought_back: (text, sought) => {
    pairMeters.svc_sought!(text, sought);
    spend(Math.floor((lengthOf(text) * lengthOf(sought)) / lettersComparedBackAnItem));
  },
  svc_parted: (text, separator) => {
    pairMeters.svc_sought!(text, separator);
    spend(Math.floor(lengthOf(text) / Math.max(1, lengthOf(separator)) / piecesAnItem));
  },
  svc_walk_times: (value, times) => spend(walkedItems(value) * Number(times)),
  svc_joined: (list, separator) => {
    spendDeep(list);
    if (isList(list)) spend(Math.floor((list.length * lengthOf(separator)) / lettersAnItem));
  },
};

/** Of methods whose cost their receiver alone decides over, in another way than by being read. */
const receiverMeters: Record<string, string> = { size: "svc_size", json: "svc_json" };

const methodMeters: Record<string, string> = {
  contains: "svc_sought",
  indexOf: "svc_sought",
  lastIndexOf: "svc_sought_back",
  split: "svc_parted",
  join: "svc_joined",
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
  for (const [name, meter] of Object.entries(pairMeters))
    environment.registerFunction(`${name}(dyn, dyn): dyn`, (receiver: unknown, argument: unknown) => {
      meter(receiver, argument);
      return receiver;
    });
  environment.registerFunction("svc_matches(string, string): bool", (text: string, pattern: string) => {
    const { re2, size } = compilePattern(pattern);
    spend(Math.floor((text.length * size) / patternPartsAnItem));
    return re2.test(text);
  });
}

const isNode = (value: unknown): value is ASTNode =>
  typeof value === "object" && value !== null && "op" in value && "args" in value;

/** How much an expression does, once. */
export function nodesOf(value: unknown): number {
  if (Array.isArray(value)) return value.reduce((sum: number, one) => sum + nodesOf(one), 0);
  return isNode(value) ? 1 + nodesOf(value.args) : 0;
}

/** What an evaluation costs at least. */
export const itemsAtLeast = (ast: ASTNode): number => Math.ceil(nodesOf(ast) / nodesAnItem);

/**
 * The expression again, with every operand whose size decides over the cost inside a meter, and `matches` on RE2, which
 * runs in linear time where JavaScript's own expressions backtrack. The same text when neither is needed. Throws CelError
 * for what cannot be bounded.
 */
export function rewrite(ast: ASTNode): { text: string; changed: boolean } {
  let changed = false;
  let bindings = 0;

  const meter = (name: string, node: ASTNode, depth: number): string => {
    if (node.op === "value") return write(node, depth);
    changed = true;
    return `${name}(${write(node, depth)})`;
  };

  const matches = (text: ASTNode, pattern: ASTNode | undefined, depth: number): string => {
    if (pattern?.op !== "value" || typeof pattern.args !== "string")
      throw new CelError("matches() wants its pattern as a literal text");
    compilePattern(pattern.args);
    changed = true;
    return `svc_matches(${write(text, depth)}, ${write(pattern, depth)})`;
  };

  /** An argument that decides over the cost is evaluated once, and then asked about. */
  const measured = (
    name: string,
    receiver: ASTNode,
    [first, ...others]: readonly [ASTNode, ...ASTNode[]],
    depth: number,
  ): string => {
    changed = true;
    const plain = first.op === "value";
    const argument = plain ? write(first, depth) : `svc_argument_${bindings++}`;
    const rest = others.map((other) => `, ${write(other, depth)}`).join("");
    const on = `${methodMeters[name]}(${write(receiver, depth)}, ${argument})`;
    const asked = `${on}.${name}(${argument}${rest})`;
    return plain ? asked : `cel.bind(${argument}, ${write(first, depth)}, ${asked})`;
  };

  const call = (name: string, receiver: ASTNode | undefined, args: readonly ASTNode[], outer: number) => {
    if (name === "matches") {
      const [text, pattern] = receiver ? [receiver, args[0]] : args;
      if (text) return matches(text, pattern, outer);
    }
    if (receiver && Object.hasOwn(methodMeters, name)) {
      const [first, ...others] = args;
      if (first) return measured(name, receiver, [first, ...others], outer);
      changed = true;
      return `svc_compare(${write(receiver, outer)}).${name}()`;
    }
    const isMacro = receiver !== undefined && macros.has(name);
    const depth = isMacro ? outer + 1 : outer;
    if (depth > macroDepthMax) throw new CelError(`macros may be nested ${macroDepthMax} deep at most`);
    // The arguments of a macro, of `has` and of `cel.bind` are names and expressions, not values.
    const plain = isMacro || name === "has" || name === "bind";
    // Of the functions that begin so, those with an argument tell the time in a zone.
    const isZoned = receiver !== undefined && name.startsWith("get") && args.length === 1;
    const isDuration = receiver === undefined && name === "duration";
    const given = args
      .map((arg) => {
        if (plain) return write(arg, depth);
        if (!isZoned && !isDuration)
          return meter(!receiver && name === "size" ? "svc_size" : "svc_read", arg, depth);
        changed = true;
        if (isDuration && arg.op === "value" && lengthOf(arg.args) > durationCharsMax) throw tooLong;
        return `${isZoned ? "svc_zone" : "svc_duration"}(${write(arg, depth)})`;
      })
      .join(", ");
    if (!receiver) return `${name}(${given})`;
    // Chained macros walk one after the other, so a receiver is as deep as the macro that it feeds.
    const times = isMacro ? Math.ceil(nodesOf(args) / nodesAnItem) : 1;
    if (times > 1) {
      changed = true;
      return `svc_walk_times(${write(receiver, outer)}, ${times}).${name}(${given})`;
    }
    const on =
      name === "bind"
        ? write(receiver, outer)
        : meter(isMacro ? "svc_walk" : (receiverMeters[name] ?? "svc_read"), receiver, outer);
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
        if (args.startsWith("svc_")) throw new CelError("names that begin with svc_ are taken");
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
