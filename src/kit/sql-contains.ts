import { type Sql, sql } from "./sql.ts";

/**
 * Of the letters beyond ASCII in one search, so many are looked for in either case; of further ones the case
 * counts.
 */
const foldedLettersMax = 32;

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

/** No column that is searched holds more; libSQL refuses patterns beyond 50,000 bytes. */
const searchCharsMax = 2_048;

const isAscii = (text: string): boolean => /^[\0-\x7f]*$/.test(text);

/** ASCII as both engines' `lower` has it, letters beyond ASCII by themselves. */
const fold = (text: string): string =>
  [...text].map((letter) => (isAscii(letter) ? letter.toLowerCase() : foldLetter(letter))).join("");

/**
 * The column holds the text somewhere, in either case, on both engines alike: their `lower` knows ASCII only,
 * so that each further letter of the search is folded in the column by a `replace`.
 */
export function containsIgnoringCase(column: string, text: string): Sql {
  if (text.length > searchCharsMax) return sql.raw("1 = 0");
  const wanted = fold(text);
  const letters = [...new Set([...wanted].filter((letter) => !isAscii(letter)))];
  let folded = sql`lower(${sql.raw(column)})`;
  for (const letter of letters.slice(0, foldedLettersMax))
    for (const variant of variantsOf(letter)) folded = sql`replace(${folded}, ${variant}, ${letter})`;
  return sql`${folded} LIKE ${`%${wanted.replace(/[\\%_]/g, (sign) => `\\${sign}`)}%`} ESCAPE '\\'`;
}
