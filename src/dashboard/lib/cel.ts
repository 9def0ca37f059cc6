/** What a filter of subscriptions may name, as far as it is the same for all. */
const always = [
  ...["data", "metadata", "topic", "event.name", "event.id", "event.data", "event.metadata"],
  ...["size(", "has(", "string(", "int(", "double(", "true", "false", "null", "in"],
];
/** Methods of texts and lists. */
const methods = ["startsWith(", "endsWith(", "contains(", "matches(", "size()", "exists(", "all("];

const name = /^[A-Za-z_]\w*$/;
const levelsMax = 3;
const namesMax = 500;

/** Adds the paths of a payload, `data.customer.id`, to those that are known. */
export function notePaths(known: Set<string>, value: unknown, path: string, level = 0): void {
  if (typeof value !== "object" || value === null || Array.isArray(value) || level >= levelsMax) return;
  for (const [key, inner] of Object.entries(value)) {
    if (known.size >= namesMax) return;
    if (!name.test(key)) continue;
    known.add(`${path}.${key}`);
    notePaths(known, inner, `${path}.${key}`, level + 1);
  }
}

/** What the word before the caret may become: names that are known, and methods behind a dot. */
export function suggestCel(word: string, known: ReadonlySet<string>): string[] {
  const lower = word.toLowerCase();
  const names = [...always, ...known].filter((one) => one.toLowerCase().startsWith(lower)).sort();
  const dot = word.lastIndexOf(".");
  if (dot < 0) return names;
  const begun = word.slice(dot + 1).toLowerCase();
  const called = methods.filter((one) => one.toLowerCase().startsWith(begun));
  return [...names, ...called.map((one) => word.slice(0, dot + 1) + one)];
}
