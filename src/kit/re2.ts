import type { RE2JS } from "@bufbuild/re2";
import { patternSize } from "./pattern-size.ts";

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
