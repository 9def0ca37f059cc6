/**
 * The options that an object may have; those of an option that is an object itself, or a list of such, in its
 * place. An old name has the new one, see `withUnits`.
 */
export type KnownOptions<Options> = {
  readonly [Name in keyof Required<Options>]: true | (keyof Options & string) | Nested;
};
type Nested = { readonly [name: string]: true | string };
export type Known = { readonly [name: string]: true | string | Nested };

/** Letters that two names may differ in for one to be what the other was meant to be. */
const typosMax = 3;

/** Throws TypeError that names the first option which does not exist, and the one that was probably meant. */
export function requireKnown(what: string, options: object, known: Known): void {
  if (typeof options !== "object" || options === null)
    throw new TypeError(`${what} takes an object of options`);
  requireNames(what, "", options, known);
}

const isEmpty = (value: unknown): boolean =>
  typeof value === "object" && value !== null && Object.keys(value).length === 0 && !(value instanceof Date);

/** Throws TypeError that names the first of these bounds that has no value: it would bound nothing. */
export function requireBounds(what: string, options: object, names: readonly string[]): void {
  for (const name of names) {
    const value = (options as Record<string, unknown>)[name];
    if (name in options && ((value ?? "") === "" || Number.isNaN(value) || isEmpty(value)))
      throw new TypeError(`${what}: ${name} has no value: leave it out to set no such bound`);
  }
}

function requireNames(what: string, path: string, given: object, known: Known): void {
  for (const [name, value] of Object.entries(given)) {
    const of = Object.hasOwn(known, name) ? known[name] : undefined;
    if (of === undefined) throw new TypeError(unknownText(what, path + name, known, name));
    if (typeof of !== "object" || typeof value !== "object" || value === null) continue;
    if (!Array.isArray(value)) requireNames(what, `${path}${name}.`, value, of);
    else
      for (const [at, item] of value.entries())
        if (typeof item === "object" && item !== null) requireNames(what, `${path}${name}[${at}].`, item, of);
  }
}

function unknownText(what: string, path: string, known: Known, name: string): string {
  const [nearest] = Object.entries(known)
    .map(([one, of]) => ({
      meant: typeof of === "string" ? of : one,
      typos: typosBetween(one.toLowerCase(), name.toLowerCase()),
    }))
    .sort((a, b) => a.typos - b.typos);
  const isNear = nearest && nearest.typos <= Math.min(typosMax, Math.floor(name.length / 2));
  return `${what} has no option ${path}${isNear ? `: did you mean ${nearest.meant}?` : ""}`;
}

/** How many letters are to be put in, left out or replaced to make one word of the other. */
function typosBetween(one: string, other: string): number {
  let before = Array.from({ length: other.length + 1 }, (_, at) => at);
  for (let i = 1; i <= one.length; i++) {
    const row = [i];
    for (let j = 1; j <= other.length; j++) {
      const replaced = before[j - 1]! + (one[i - 1] === other[j - 1] ? 0 : 1);
      row.push(Math.min(replaced, before[j]! + 1, row[j - 1]! + 1));
    }
    before = row;
  }
  return before[other.length]!;
}
