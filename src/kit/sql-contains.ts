import { type Sql, sql } from "./sql.ts";

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
