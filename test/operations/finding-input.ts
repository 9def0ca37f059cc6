/** Requests of `ListRuns` that are refused, and what they are told. */
export const badLists: [object, string][] = [
  [{ attributes: [{ name: "total", text: "10" }] }, "is a number in this environment, not a text"],
  [{ attributes: [{ name: "total" }] }, "must have one of"],
  [{ attributes: [{ name: "total", number: 1, text: "1" }] }, "must have one of"],
  [{ attributes: [{ name: "total", number: "NaN" }] }, "number"],
  [{ attributes: [{ name: "1st", number: 1 }] }, "must be a letter"],
  [{ attributes: [{ name: "total", op: "like", number: 1 }] }, "must be eq"],
  [{ attributes: [{ name: "total", op: "prefix", number: 1 }] }, "prefix is for texts"],
  [{ attributes: [{ name: "isGift", op: "gt", flag: true }] }, "a bool takes"],
  [{ attributes: [{ name: "orderId", text: "a\0" }] }, "NUL"],
  [{ attributes: [{ name: "paidAt", time: "2026-13-01T00:00:00Z" }] }, "RFC 3339"],
  [{ attributes: [{ name: "paidAt", op: "exists", time: "2026-01-01T00:00:00Z" }] }, "takes no value"],
  [{ attributes: Array(9).fill({ name: "total", number: 1 }) }, "at most 8"],
  [{ orderBy: { name: "nobody" } }, "no run has had an attribute nobody"],
  [{ orderBy: { name: "__proto__" } }, "must be a letter"],
  [{ orderBy: { name: "total" }, offset: 5 }, "offset"],
  [{ orderBy: { name: "total" }, cursor: "bm90aGluZw" }, "cursor"],
];

/** Attributes that no function may declare. */
export const badDeclarations = [
  [{ name: "no name" }],
  [{ name: "a", type: "json" }],
  [{ name: "a", path: "a..b" }],
  [{ name: "a" }, { name: "a", path: "b" }],
  Array.from({ length: 33 }, (_, place) => ({ name: `a${place}` })),
];

/** Attributes that no report may set. */
export const badReports: unknown[] = [
  Object.fromEntries(Array.from({ length: 1_000 }, (_, place) => [`a${place}`, 1])),
  { "": 1 },
  JSON.parse('{"__proto__": 1}'),
  { a: [1] },
  { a: { time: "yesterday" } },
  { a: { time: "12026-01-01T00:00:00Z" } },
  { a: "\ud800" },
  { a: "x".repeat(300) },
  [],
  "a",
];
