import type { RE2JS } from "@bufbuild/re2";

const anyNumber = /^\{(\d+)(,(\d*))?\}/;

/**
 * How many instructions a regular expression takes at most, roughly: one for each letter and set, and five
 * for a letter under `{2,5}`. A pattern that is no regular expression is counted letter by letter; its
 * compilation refuses it.
 */
export function patternSize(pattern: string): number {
  let at = 0;

  const setEnd = (): void => {
    at++;
    if (pattern[at] === "^") at++;
    // A bracket that comes first is a letter.
    if (pattern[at] === "]") at++;
    while (at < pattern.length && pattern[at] !== "]") {
      if (pattern[at] === "\\") at++;
      else if (pattern.startsWith("[:", at)) {
        const end = pattern.indexOf(":]", at);
        if (end > 0) at = end + 1;
      }
      at++;
    }
    at++;
  };

  const times = (size: number): number => {
    for (let total = size; ; ) {
      const repeat = anyNumber.exec(pattern.slice(at, at + 24));
      if (repeat) {
        const [whole, least, range, most] = repeat;
        at += whole.length;
        const isOpen = range !== undefined && !most;
        total *= Math.max(1, Number(isOpen || !most ? least : most) + (isOpen ? 1 : 0));
      } else if (at < pattern.length && "*+?".includes(pattern[at]!)) {
        at++;
        total += 1;
      } else return total;
    }
  };

  const group = (depth: number): number => {
    let size = 2;
    while (at < pattern.length) {
      const letter = pattern[at]!;
      if (letter === ")") {
        if (depth > 0) return size;
        at++;
        continue;
      }
      let own = 1;
      if (letter === "(") {
        at++;
        own = group(depth + 1) + 2;
        at++;
      } else if (letter === "[") setEnd();
      else if (letter === "\\") at += 2;
      else at++;
      size += times(own);
    }
    return size;
  };

  return group(0);
}

/** The reason a pattern was refused. */
export class PatternError extends Error {
  constructor(message: string) {
    super(message);
    this.name = "PatternError";
  }
}

/**
 * The parts of a pattern, and its letters: RE2 is linear in their product with the text, and that is not
 * little.
 */
const patternSizeMax = 500;
const patternCharsMax = 500;

export interface CompiledPattern {
  re2: RE2JS;
  size: number;
}

const patternsMax = 500;
const patterns = new Map<string, CompiledPattern>();

/** Throws PatternError for a pattern that takes long to build or to search with. */
export function compilePattern(pattern: string): CompiledPattern {
  let compiled = patterns.get(pattern);
  if (!compiled) {
    if (pattern.length > patternCharsMax)
      throw new PatternError(`a pattern has at most ${patternCharsMax} characters`);
    // Their tables take a tenth of a second to unfold.
    if (/\\[pP]/.test(pattern)) throw new PatternError("\\p and \\P are not supported");
    const size = patternSize(pattern);
    if (size > patternSizeMax)
      throw new PatternError(`the pattern has more than ${patternSizeMax} parts, repeated ones counted`);
    // Loaded by the first pattern, which takes 10 ms longer for it.
    const { RE2JS } = require("@bufbuild/re2") as typeof import("@bufbuild/re2");
    try {
      compiled = { re2: RE2JS.compile(pattern), size };
    } catch {
      throw new PatternError("the pattern is not a valid RE2 expression");
    }
    if (patterns.size >= patternsMax) patterns.delete(patterns.keys().next().value!);
    patterns.set(pattern, compiled);
  }
  return compiled;
}
