import type { ASTNode, Environment } from "@marcbachmann/cel-js";
import { type CompiledPattern, compilePattern, PatternError } from "../re2.ts";

/** The reason an expression was refused or failed; never holds the data it ran on. */
export class CelError extends Error {
  constructor(message: string) {
    super(message);
    this.name = "CelError";
  }
}

/**
 * What several evaluations may look at together: those of one event, of one replay, of one connection.
 * Counted in the items that an evaluation is bounded by, so that it means the same on any machine.
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

  /** The last evaluation exceeded the budget: its result must not be used. */
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
/**
 * So many letters count as one item. A search by pattern takes every letter through every part of the pattern
 * at worst.
 */
const lettersAnItem = 1_000;
const patternPartsAnItem = 40;
/** Telling the time in another zone, as items. */
const zoneItems = 200;
/**
 * In the worst case a search compares the sought text at every letter: this many compared letters count as
 * one item.
 */
const lettersComparedAnItem = 32_000;
/** Searching backwards has no faster algorithm in the runtime. */
const lettersComparedBackAnItem = 4_000;
/** `size` goes from character to character. */
const charactersAnItem = 100;
/** Splitting off a piece of text, or writing a letter of JSON, costs more than reading a letter. */
const piecesAnItem = 20;
const jsonLettersAnItem = 100;
/** The library's duration parser tries every way to split a row of digits. */
export const durationCharsMax = 32;
const durationTriesAnItem = 300;

/** This many nodes of a macro's body, evaluated for one list item, count as one item. */
export const nodesAnItem = 20;
/** Data is read before it is looked at: so many letters of JSON count as one item. */
const lettersReadAnItem = 500;

/** What it takes to read a text of JSON. */
export const itemsToRead = (json: string): number => Math.floor(json.length / lettersReadAnItem);

/** Nested macros cost the product of their lists: two deep is the most. */
export const macroDepthMax = 2;
export const macros = new Set(["all", "exists", "exists_one", "filter", "map"]);

/** Throws CelError for a pattern that takes long to build or to search with. */
export function patternOf(pattern: string): CompiledPattern {
  try {
    return compilePattern(pattern);
  } catch (error) {
    throw error instanceof PatternError ? new CelError(`matches(): ${error.message}`) : error;
  }
}

// Evaluation is synchronous, so one budget at a time is enough.
let itemsLeft = 0;

function spend(items: number): void {
  itemsLeft -= items;
  if (itemsLeft < 0) throw tooMuch;
}

/** Thrown often inside a macro that goes on after errors: made once. */
const tooMuch = new CelError("expression cost limit exceeded");
export const tooLong = new CelError(`duration(): at most ${durationCharsMax} characters`);

/**
 * Runs a rewritten program. Macros absorb errors, so what counts is whether the budget was kept. A shared
 * budget is used up when it is what the evaluation had too little of.
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
  throw new CelError(`expression cost limit exceeded: more than ${itemsMax} items`);
}

const isList = (value: unknown): value is readonly unknown[] => Array.isArray(value);
const isMap = (value: unknown): value is object =>
  typeof value === "object" && value !== null && Object.getPrototypeOf(value) === Object.prototype;

export const lengthOf = (value: unknown): number =>
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

/**
 * What stands around an operand in the program that runs, by what is about to happen to the operand's value.
 */
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
export const receiverMeters: Record<string, string> = { size: "svc_size", json: "svc_json" };

export const methodMeters: Record<string, string> = {
  contains: "svc_sought",
  indexOf: "svc_sought",
  lastIndexOf: "svc_sought_back",
  split: "svc_parted",
  join: "svc_joined",
};

export const operandMeters: Record<string, string> = {
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
    const { re2, size } = patternOf(pattern);
    spend(Math.floor((text.length * size) / patternPartsAnItem));
    return re2.test(text);
  });
}

const isNode = (value: unknown): value is ASTNode =>
  typeof value === "object" && value !== null && "op" in value && "args" in value;

/** The number of nodes of an expression. */
export function nodesOf(value: unknown): number {
  if (Array.isArray(value)) return value.reduce((sum: number, one) => sum + nodesOf(one), 0);
  return isNode(value) ? 1 + nodesOf(value.args) : 0;
}

/** The least cost of an evaluation, in items. */
export const itemsAtLeast = (ast: ASTNode): number => Math.ceil(nodesOf(ast) / nodesAnItem);
