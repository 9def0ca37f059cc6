import { describe, expect, test } from "bun:test";
import { compileSchema, SchemaError, TooMuchToCheck } from "../../src/kit/json-schema/json-schema.ts";

const compiled = (schema: unknown) => compileSchema(JSON.stringify(schema));
const keeps = (schema: unknown, value: unknown) => compiled(schema).breachOf(value) === undefined;
const draft7 = { $schema: "http://json-schema.org/draft-07/schema#" };
const draft2019 = { $schema: "https://json-schema.org/draft/2019-09/schema" };

/** A schema, values that keep it, and values that do not. */
const cases: [schema: unknown, kept: unknown[], broken: unknown[]][] = [
  [true, [1, null], []],
  [false, [], [1, null]],
  [{ type: ["integer", "null"] }, [1, 1.0, null, -0], [1.5, "1", [], {}]],
  [{ type: "object" }, [{}], [[], null]],
  [{ enum: [1, "a", { a: [1], b: null }] }, [1, "a", { b: null, a: [1] }], [2, "1", { a: [1] }, null]],
  [{ const: "1" }, ["1"], [1, '"1']],
  [{ minimum: 1, exclusiveMaximum: 3 }, [1, 2.9, "x"], [0.9, 3]],
  [{ multipleOf: 0.01 }, [19.99, 4.35, 0, -7], [0.015, 1.001]],
  [{ multipleOf: 7 }, [1e308 * 0 + 14], [15]],
  [{ minLength: 2, maxLength: 3 }, ["ab", "🙂🙂🙂", 1], ["a", "🙂", "abcd"]],
  [{ pattern: "b+" }, ["abbc", 5], ["ac"]],
  [{ items: { type: "number" }, minItems: 1, maxItems: 2 }, [[1], [1, 2], "x"], [[], [1, 2, 3], ["1"]]],
  [{ prefixItems: [{ type: "string" }], items: false }, [["a"], []], [["a", 1], [1]]],
  [
    { uniqueItems: true },
    [[1, "1", [1], { a: 1 }, { a: 2 }]],
    [
      [1, 1.0],
      [
        { a: 1, b: 2 },
        { b: 2, a: 1 },
      ],
    ],
  ],
  [{ contains: { type: "number" }, minContains: 2, maxContains: 3 }, [[1, "a", 2]], [[1], [1, 2, 3, 4], []]],
  [{ contains: { type: "number" }, minContains: 0 }, [[]], []],
  [
    {
      properties: { a: { type: "number" } },
      patternProperties: { "^x": { type: "null" } },
      additionalProperties: false,
    },
    [{ a: 1, xy: null }, {}],
    [{ a: "1" }, { x: 1 }, { b: 1 }],
  ],
  [{ propertyNames: { maxLength: 2 } }, [{ ab: 1 }], [{ abc: 1 }]],
  [{ required: ["a", "__proto__"] }, [JSON.parse('{"a":1,"__proto__":2}')], [{ a: 1 }, {}]],
  [{ minProperties: 1, maxProperties: 1 }, [{ a: 1 }, []], [{}, { a: 1, b: 2 }]],
  [{ dependentRequired: { a: ["b"] } }, [{ a: 1, b: 2 }, { b: 1 }], [{ a: 1 }]],
  [{ dependentSchemas: { a: { required: ["b"] } } }, [{ a: 1, b: 2 }, {}], [{ a: 1 }]],
  [{ allOf: [{ minimum: 1 }, { maximum: 2 }] }, [1, 2], [0, 3]],
  [{ anyOf: [{ type: "string" }, { minimum: 5 }] }, ["a", 5], [4]],
  [{ oneOf: [{ multipleOf: 2 }, { multipleOf: 3 }] }, [2, 3], [6, 1]],
  [{ not: { type: "string" } }, [1], ["a"]],
  [JSON.parse('{"if":{"minimum":10},"then":{"multipleOf":10},"else":{"multipleOf":3}}'), [20, 9], [15, 8]],
  [
    {
      $ref: "#/$defs/tree",
      $defs: { tree: { properties: { next: { $ref: "#/$defs/tree" } }, required: ["v"] } },
    },
    [{ v: 1, next: { v: 2 } }],
    [{ v: 1, next: {} }],
  ],
  [{ $ref: "#named", $defs: { a: { $anchor: "named", type: "null" } } }, [null], [1]],
  [{ $id: "https://a.test/root", $ref: "part", $defs: { p: { $id: "part", type: "null" } } }, [null], [1]],
  [{ $ref: "#/$defs/a~1b%25", $defs: { "a/b%": { type: "null" } } }, [null], [1]],
  [
    {
      allOf: [{ properties: { a: true } }],
      anyOf: [{ properties: { b: { const: 1 } }, required: ["b"] }, true],
      unevaluatedProperties: false,
    },
    [{ a: 1 }, { a: 1, b: 1 }],
    [{ c: 1 }, { b: 2 }],
  ],
  [
    { prefixItems: [true], contains: { type: "null" }, unevaluatedItems: false },
    [[1, null], [null]],
    [[1, null, 2]],
  ],
  [{ format: "email", title: "note", unknown: [1] }, ["no address"], []],
  [
    { ...draft7, items: [{ type: "string" }], additionalItems: { type: "null" } },
    [["a", null]],
    [["a", 1], [1]],
  ],
  [
    {
      ...draft7,
      properties: { a: { $ref: "#/definitions/n", type: "string" } },
      definitions: { n: { type: "null" } },
    },
    [{ a: null }],
    [{ a: "x" }],
  ],
  [
    { ...draft7, dependencies: { a: ["b"], c: { required: ["d"] } } },
    [{ a: 1, b: 1 }, {}],
    [{ a: 1 }, { c: 1 }],
  ],
  [
    { ...draft2019, items: [true], additionalItems: false, dependentRequired: { a: ["b"] } },
    [[1]],
    [[1, 2], { a: 1 }],
  ],
];

describe("a value keeps a schema, or breaks it", () => {
  test.each(cases.map((one) => [JSON.stringify(one[0]).slice(0, 80), ...one] as const))(
    "%s",
    (_name, schema, kept, broken) => {
      for (const value of kept) expect(keeps(schema, value), JSON.stringify(value)).toBe(true);
      for (const value of broken) expect(keeps(schema, value), JSON.stringify(value)).toBe(false);
    },
  );
});

test("the first broken rule is told with its place in the value and in the schema", () => {
  const item = { type: "object", properties: { "a/b": { type: "number" } }, required: ["a/b"] };
  const schema = compiled({ properties: { list: { items: item } } });
  expect(schema.breachOf({ list: [{ "a/b": 1 }, { "a/b": "1" }] })).toEqual({
    ...{ at: "/list/1/a~1b", keyword: "type", text: "must be number" },
    place: "/properties/list/items/properties/a~1b/type",
  });
  expect(schema.breachOf({ list: [{}] })).toMatchObject({ at: "/list/0", keyword: "required" });
  expect(compiled({ anyOf: [{ type: "null" }, item] }).breachOf(1)).toMatchObject({
    at: "",
    keyword: "anyOf",
  });
});

test("only what can refuse something asserts", () => {
  for (const schema of [true, {}, { title: "a" }, { properties: { a: { items: {} } } }, { anyOf: [{}] }])
    expect(compiled(schema).asserts, JSON.stringify(schema)).toBe(false);
  for (const schema of [
    false,
    { not: {} },
    { properties: { a: false } },
    { contains: {} },
    { items: { type: "null" } },
  ])
    expect(compiled(schema).asserts, JSON.stringify(schema)).toBe(true);
});

test("what is never reached is compiled and bounded all the same", () => {
  expect(() => compiled({ $ref: "#/x", x: { $ref: "#/y" }, y: { $ref: "#/x" } })).toThrow(SchemaError);
  expect(() => compiled({ properties: { a: { items: { pattern: "[" } } } })).toThrow(
    "/properties/a/items/pattern",
  );
  const patterns = Object.fromEntries(Array.from({ length: 50 }, (_, at) => [`x{200}${at}`, true]));
  expect(() => compiled({ patternProperties: patterns })).toThrow("at most 5000 parts in its patterns");
});

test("a chain of references is as long as the schema has schemas", () => {
  const $defs = Object.fromEntries(
    Array.from({ length: 2_000 }, (_, at) => [`a${at}`, at === 1_999 ? {} : { $ref: `#/$defs/a${at + 1}` }]),
  );
  expect(() => compiled({ $defs, $ref: "#/$defs/a0" }).breachOf(1)).toThrow(TooMuchToCheck);
  expect(keeps({ $defs, $ref: "#/$defs/a1500" }, 1)).toBe(true);
});
