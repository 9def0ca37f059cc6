import { describe, expect, test } from "bun:test";
import {
  attributesOfData,
  readDeclared,
  readFilters,
  readReported,
  readStored,
  storedValue,
} from "../../src/domain/engine/attributes/rules.ts";
import { groupOf } from "../../src/domain/engine/errors/rules.ts";

describe("attributes", () => {
  test("what is stored sorts as the numbers do, and reads back", () => {
    const numbers = [
      -Number.MAX_VALUE,
      -1e300,
      -10.5,
      -1,
      -Number.MIN_VALUE,
      0,
      Number.MIN_VALUE,
      0.1,
      1,
      2,
      10,
      2 ** 53,
      1e300,
    ];
    const stored = numbers.map((value) => storedValue({ type: "number", value }));
    expect([...stored].sort()).toEqual(stored);
    expect(stored.map((text) => readStored(text).value)).toEqual(numbers);
    expect(storedValue({ type: "number", value: -0 })).toBe(storedValue({ type: "number", value: 0 }));
    const times = [-62_135_596_800_000, -1, 0, 1_700_000_000_000, 253_402_300_799_999];
    expect(times.map((value) => storedValue({ type: "time", value })).sort()).toEqual(
      times.map((value) => storedValue({ type: "time", value })),
    );
  });

  test("a prefix is a range, also where its last character is the last there is", () => {
    const rangeOf = (text: string) => readFilters("attributes", [{ name: "a", op: "prefix", text }])[0]!;
    expect(rangeOf("ab")).toMatchObject({
      from: { stored: "sab" },
      to: { stored: "sac", isIncluded: false },
    });
    expect(rangeOf("")).toMatchObject({ from: { stored: "s" }, to: { stored: "t" } });
    expect(rangeOf("a\u{10ffff}")).toMatchObject({ to: { stored: "sb" } });
    expect(rangeOf("a\ud7ff")).toMatchObject({ to: { stored: "sa\ue000" } });
  });

  test("names of every object's own are names, those of prototypes lead nowhere", () => {
    expect(readReported({ constructor: "x", toString: 1 } as never).map(({ name }) => name)).toEqual([
      "constructor",
      "toString",
    ]);
    const declared = readDeclared([
      { name: "a", path: "constructor.name" },
      { name: "b", path: "x.__proto__" },
    ]);
    expect(attributesOfData(declared, { x: {} })).toEqual({ found: [], failed: [] });
  });
});

describe("groups of failures", () => {
  const idOf = (message: string, stack?: string) =>
    groupOf("f", { message, ...(stack !== undefined && { stack }) }).id;

  test("numbers, ids and quoted values do not tell failures apart; words do", () => {
    const alike = [
      'user "ann" has 3 of 5 at 12:30',
      "user 'b' has 12 of 5.5 at 1",
      "user `c d` has 0 of 1 at 9",
    ];
    expect(new Set(alike.map((message) => idOf(message))).size).toBe(1);
    const ids = ["run_01jabc2defgh", "3f2b8c1d-0000-4000-8000-1234567890ab", "deadbeef0123"];
    expect(new Set(ids.map((id) => idOf(`${id} is gone`))).size).toBe(1);
    expect(idOf("cannot connect")).not.toBe(idOf("cannot read"));
    expect(groupOf("f", { message: "don't stop, can't go" }).message).toBe("don't stop, can't go");
  });

  test("the first frame counts, its line and folder do not", () => {
    const stack = (line: number, folder: string) =>
      `Error: x\n    at charge (${folder}/orders.ts:${line}:9)\n    at b`;
    expect(idOf("x", stack(1, "/srv/a"))).toBe(idOf("x", stack(99, "C:\\app\\dist")));
    expect(idOf("x", stack(1, "/srv/a"))).not.toBe(idOf("x"));
    expect(groupOf("f", { message: "x", stack: stack(1, "/a") }).frame).toBe("charge (orders.ts)");
  });

  test("an error without a frame has that of its cause, and a step that failed for good always", () => {
    const cause = { message: "x", stack: "Error: x\n    at charge (/srv/orders.ts:1:9)" };
    expect(groupOf("f", { message: "y", stack: "Error: y\n    … 3 of svc", cause }).frame).toBe(
      "charge (orders.ts)",
    );
    const outer = { message: "z", stack: "Error: z\n    at handler (/srv/ship.ts:1:9)", cause };
    expect(groupOf("f", outer).frame).toBe("handler (ship.ts)");
    expect(groupOf("f", { ...outer, name: "StepFailedError" }).frame).toBe("charge (orders.ts)");
    expect(groupOf("f", { message: "z", name: "StepFailedError", cause: "a text" }).frame).toBe("");
  });

  test("messages of any size and form are read in bounded time, and cut", () => {
    for (const text of [
      '"'.repeat(100_000),
      "a_".repeat(50_000),
      "f".repeat(100_000),
      "at (".repeat(50_000),
      "\0\ud800",
    ]) {
      const group = groupOf("f", { message: text, stack: `\n at ${text}` });
      expect(group.message.length).toBeLessThanOrEqual(300);
      expect(group.frame.length).toBeLessThanOrEqual(200);
      expect(group.message + group.frame).not.toContain("\0");
      expect((group.message + group.frame).isWellFormed()).toBe(true);
    }
  });
});
