import { type PathPart, pointerOf } from "./document.ts";

/** The most that one look at one value may take; measured, a step is 10 to 100 nanoseconds. */
export const checkStepsMax = 100_000;
/** Depth of nested schemas while one value is checked: a chain of references adds to each level of it. */
const checkDepthMax = 1_000;
/** So many letters of a text, and letters times parts of a pattern, are looked at in one step. */
export const lettersAStep = 64;
export const patternPartsAStep = 16;

/** The check needs more than it may take: what it would have said is not known. */
export class TooMuchToCheck extends Error {}

const tooManySteps = new TooMuchToCheck(`the check takes more than ${checkStepsMax} steps`);
const tooDeep = new TooMuchToCheck(`the check goes more than ${checkDepthMax} schemas deep`);

/** One rule of a schema: where it stands, and what it asks for. */
export interface Rule {
  keyword: string;
  /** JSON pointer into the schema. */
  place: string;
  text: string;
}

/** The first rule that a value breaks. */
export interface Breach extends Rule {
  /** JSON pointer into the value; empty for the whole. */
  at: string;
}

/** Members of one object or list that a schema has looked at, for the rules about those it has not. */
export class Seen {
  readonly members = new Set<string | number>();

  add(run: CheckRun, member: string | number): void {
    run.spend(1);
    this.members.add(member);
  }

  addAll(run: CheckRun, { members }: Seen): void {
    run.spend(members.size);
    for (const member of members) this.members.add(member);
  }
}

/** One look at one value: what it may still take, and where it is. */
export class CheckRun {
  breach: Breach | undefined;
  readonly path: PathPart[] = [];
  /** Above 0 while an alternative is tried, whose failure is none. */
  quiet = 0;
  #left = checkStepsMax;
  #depth = 0;

  spend(steps: number): void {
    this.#left -= steps;
    if (this.#left < 0) throw tooManySteps;
  }

  fail(rule: Rule): false {
    if (this.quiet === 0) this.breach = { ...rule, at: pointerOf(this.path) };
    return false;
  }

  enter(): void {
    this.spend(1);
    if (++this.#depth > checkDepthMax) throw tooDeep;
  }

  leave(): void {
    this.#depth--;
  }
}

/** Whether the value keeps one rule of one schema. */
export type Check = (value: unknown, run: CheckRun, seen: Seen | undefined) => boolean;

/** One schema, as a list of checks. */
export interface SchemaNode {
  checks: Check[];
  /** Schemas about the same value: a circle of them has no end. */
  same: SchemaNode[];
  /** Has a rule about members that no other rule has looked at. */
  collects: boolean;
  /** The schema `false`. */
  isNever: boolean;
}

export function keeps(node: SchemaNode, value: unknown, run: CheckRun, seen: Seen | undefined): boolean {
  run.enter();
  const mine = node.collects ? new Seen() : seen;
  for (const check of node.checks) {
    if (check(value, run, mine)) continue;
    run.leave();
    return false;
  }
  if (seen && mine && mine !== seen) seen.addAll(run, mine);
  run.leave();
  return true;
}

/** The same for one member of the value. */
export function keepsIn(node: SchemaNode, value: unknown, run: CheckRun, member: PathPart): boolean {
  run.path.push(member);
  const kept = keeps(node, value, run, undefined);
  run.path.pop();
  return kept;
}

/** The same without the reason. */
export function keepsQuietly(
  node: SchemaNode,
  value: unknown,
  run: CheckRun,
  seen: Seen | undefined,
): boolean {
  run.quiet++;
  const kept = keeps(node, value, run, seen);
  run.quiet--;
  return kept;
}

/** Writing one member of an object, and keeping one text among others, takes as long as so many steps. */
const memberSteps = 8;
const textSteps = 3;

/** A text that two values share when they are the same JSON value, whatever the order of their members. */
export function canonical(value: unknown, run: CheckRun): string {
  run.spend(1);
  if (typeof value === "string") {
    run.spend(textSteps + Math.floor(value.length / lettersAStep));
    return `"${value}`;
  }
  if (typeof value !== "object" || value === null) return String(value);
  return canonicalWithin(value, run);
}

function canonicalWithin(value: unknown, run: CheckRun): string {
  if (typeof value === "string") run.spend(Math.floor(value.length / lettersAStep));
  if (typeof value !== "object" || value === null) return JSON.stringify(value);
  if (Array.isArray(value)) {
    run.spend(memberSteps * value.length);
    return `[${value.map((item) => canonicalWithin(item, run)).join(",")}]`;
  }
  const object = value as Record<string, unknown>;
  const keys = Object.keys(object);
  run.spend(memberSteps * (1 + keys.length));
  const members = keys.sort().map((key) => `${JSON.stringify(key)}:${canonicalWithin(object[key], run)}`);
  return `{${members.join(",")}}`;
}
