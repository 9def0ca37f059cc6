import { expect, test } from "bun:test";
import fc from "fast-check";
import { listLimitDefault, listLimitMax } from "../../src/kit/limits.ts";
import {
  countedPage,
  pageOf,
  pageSize,
  pageStart,
  readCursor,
  timeBound,
  writeCursor,
} from "../../src/kit/page.ts";

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

test("a page has a next one when one row more was found", async () => {
  const all = ["a", "b", "c"];
  expect(pageOf(all, 2, (last) => `after ${last}`)).toEqual({ items: ["a", "b"], nextCursor: "after b" });
  expect(pageOf(all, 3, (last) => last)).toEqual({ items: all, nextCursor: undefined });
  expect(pageOf([], 3, String)).toEqual({ items: [], nextCursor: undefined });
  const list = async (limit: number) => all.slice(0, limit);
  expect(
    await countedPage(
      1,
      list,
      async () => 3,
      (last) => last,
    ),
  ).toEqual({ items: ["a"], nextCursor: "a", totalCount: 3 });
});

test("a page begins behind a cursor or after an offset, not both", () => {
  const after = { at: 7, id: "run_1" };
  const cursor = writeCursor(after);
  expect(pageStart({})).toEqual({ offset: 0 });
  expect(pageStart({ offset: 5 })).toEqual({ offset: 5 });
  expect(pageStart({ cursor, offset: 0 })).toEqual({ after, offset: 0 });
  expect(() => pageStart({ cursor, offset: 5 })).toThrow("cannot be combined with offset");
  expect(() => pageStart({ cursor: "!" })).toThrow("is not a cursor of this list");
});

test("a bound in time is RFC 3339, or none", () => {
  expect([undefined, ""].map((text) => timeBound("since", text))).toEqual([undefined, undefined]);
  expect(timeBound("since", "1970-01-01T00:00:01Z")).toBe(1_000);
  expect(() => timeBound("since", "yesterday")).toThrow("invalid 'since' parameter: must be RFC3339");
});
