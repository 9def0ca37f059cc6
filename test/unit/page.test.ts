import { expect, test } from "bun:test";
import fc from "fast-check";
import { listLimitDefault, listLimitMax } from "../../src/kit/limits.ts";
import { pageSize, readCursor, writeCursor } from "../../src/kit/page.ts";

test("a cursor is read as it was written", () => {
  const place = fc.record({
    at: fc.nat({ max: Number.MAX_SAFE_INTEGER }),
    id: fc.stringMatching(/^[A-Za-z0-9_-]{1,128}$/),
  });
  fc.assert(
    fc.property(place, (cursor) => expect(readCursor("cursor", writeCursor(cursor))).toEqual(cursor)),
  );
});

test("any other text is refused by the parameter's name", () => {
  const texts = ["", "!", "abc", writeCursor({ at: -1, id: "a" }), writeCursor({ at: 1, id: "' OR 1=1" })];
  for (const text of texts)
    expect(() => readCursor("page.cursor", text)).toThrow("page.cursor: is not a cursor of this list");
});

test("a page has a size between one and the most", () => {
  expect([undefined, 0, -5].map((limit) => pageSize(limit))).toEqual([
    listLimitDefault,
    listLimitDefault,
    listLimitDefault,
  ]);
  expect([1, listLimitMax, listLimitMax + 1].map((limit) => pageSize(limit))).toEqual([
    1,
    listLimitMax,
    listLimitMax,
  ]);
  expect(pageSize(0, 7)).toBe(7);
});
