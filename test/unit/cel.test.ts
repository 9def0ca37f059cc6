import { describe, expect, test } from "bun:test";
import { Environment } from "@marcbachmann/cel-js";
import fc from "fast-check";
import { celItemsMax } from "../../src/kit/cel/bounds.ts";
import { CelError, type CelOptions, compileCel } from "../../src/kit/cel/cel.ts";
import { rewrite } from "../../src/kit/cel/rewrite.ts";
import { expressionBytesMax } from "../../src/kit/limits.ts";

const any: CelOptions = { variables: ["event", "data"], result: "any" };
const bool: CelOptions = { ...any, result: "bool" };

const data = {
  total: 12,
  price: 1.5,
  name: "Ada Lovelace",
  items: [1, 2, 3],
  tags: { red: 1 },
  nothing: null,
  secret: "hunter2",
};
const context = { event: { name: "order.placed", data, timestamp: new Date(86_400_000) }, data };
const run = (text: string) => compileCel(text, any).run(context);
const refusal = (text: string, options = bool): string => {
  try {
    compileCel(text, options);
  } catch (error) {
    expect(error).toBeInstanceOf(CelError);
    return (error as CelError).message;
  }
  throw new Error(`not refused: ${text}`);
};
const failure = (text: string, given: Record<string, unknown> = context): string => {
  const program = compileCel(text, any);
  try {
    program.run(given);
  } catch (error) {
    expect(error).toBeInstanceOf(CelError);
    return (error as CelError).message;
  }
  throw new Error(`does not fail: ${text}`);
};

describe("what expressions say", () => {
  test.each([
    "event.data.total > 5",
    "data.total > 5 && event.name == 'order.placed'",
    "data.total == 12 && data.price >= 1.5",
    "data.total + 1 == 13 && 1 + data.total == 13 && data.total * 2 > 23.5 && data.total - 0.5 == 11.5",
    "data.total / 5 == 2.4 && data.total % 5 == 2 && 7 / 2 == 3",
    "1 + 1.5 == 2.5 && 3 * 0.5 == 1.5",
    "data.items.exists(item, item == 2) && data.items.all(item, item % 5 > 0)",
    "data.items.filter(item, item > 1).map(item, item + 1).exists_one(item, item == 4)",
    "data.items.exists(one, data.items.exists(other, one + other == 6))",
    "size(data.items) + 1 == 4 && data.items.size() == 3",
    "2 in data.items && 'red' in data.tags && !('blue' in data.tags)",
    "data.tags == {'red': 1} && data.items == [1, 2, 3]",
    "has(data.name) && !has(data.missing) && data.nothing == null",
    "data.name.startsWith('Ada') && data.name.contains('Love') && data.name + '!' == 'Ada Lovelace!'",
    "data.missing == 1 || data.total == 12",
    "event.timestamp + duration('1h') > timestamp('1970-01-02T00:30:00Z')",
    "cel.bind(twice, data.total + data.total, twice == 24)",
    "(data.total > 1 ? data.total - (data.price - 1) : 0.0) == 11.5",
  ])("%s", (text) => {
    expect(compileCel(text, bool).run(context)).toBe(true);
  });

  test("matches finds anywhere in the text, as a method and as a function, on RE2", () => {
    expect(run("data.name.matches('^Ada')")).toBe(true);
    expect(run("matches(data.name, '[lL]ove')")).toBe(true);
    expect(run(String.raw`data.name.matches(r'\s') && !data.name.matches('^\\d')`)).toBe(true);
  });

  test("one text is compiled once", () => {
    expect(compileCel("data.total > 7", bool)).toBe(compileCel("data.total > 7", bool));
    expect(compileCel("data.total > 7", bool)).not.toBe(compileCel("data.total > 7", any));
  });
});

describe("refused when compiled", () => {
  test.each([
    ["total > 5", "Unknown variable: total (one of event, data)"],
    ["process.exit()", "Unknown variable: process"],
    ["frob(data)", "found no matching overload for 'frob(dyn)'"],
    ["data.name.frob()", "found no matching overload for 'dyn.frob()'"],
    ["data.total >", "Unexpected token: EOF, the text ends too early"],
    ["", "Unexpected token: EOF"],
    ["1 + 1", "must be true or false, not int"],
    ["'text'", "must be true or false, not string"],
    ["1 == 'a'", "no such overload: int == string"],
    ["data.?total", "Expected IDENTIFIER"],
    ["data.name.matches(data.secret)", "matches(): the pattern must be a literal text"],
    ["data.name.matches('a' + 'b')", "matches(): the pattern must be a literal text"],
    ["data.name.matches('(?=a)')", "not a valid RE2 expression"],
    ["data.name.matches('(')", "not a valid RE2 expression"],
    ["svc_walk(data.items) == 1", "found no matching overload"],
    ["svc_matches(data.name, 'a')", "found no matching overload"],
    ["data.items.all(a, data.items.all(b, data.items.all(c, true)))", "nested 2 deep at most"],
  ])("%s", (text, why) => {
    expect(refusal(text)).toContain(why);
  });

  test("whatever is too large", () => {
    expect(refusal(`data.total == 1${" || data.total == 1".repeat(150)}`)).toContain("maxAstNodes");
    expect(refusal(`${"(".repeat(40)}true${")".repeat(40)}`)).toContain("maxDepth");
    expect(refusal(`data.total in [${"1, ".repeat(200)}1]`)).toContain("maxListElements");
    expect(refusal("x".repeat(expressionBytesMax + 1))).toBe(`at most ${expressionBytesMax} bytes`);
  });
});

describe("failed when run", () => {
  test("names the rule and the types, never the data", () => {
    const messages = [
      failure("data.tags[data.secret]"),
      failure("data.missing.deeper"),
      failure("data.items[7]"),
      failure("duration(data.secret)"),
      failure("timestamp(data.secret)"),
      failure("int(data.secret)"),
      failure("data.secret + 1"),
      failure("data.secret < 1"),
      failure("-data.secret == 1"),
      failure("data.secret || false"),
    ];
    expect(messages).toContain("no such key");
    for (const message of messages) expect(message).not.toContain("hunter2");
  });

  test("objects of the language are out of reach", () => {
    for (const name of ["constructor", "__proto__", "toString", "hasOwnProperty"])
      expect(failure(`data.${name}`)).toBe("no such key");
  });
});

describe("what one evaluation may look at", () => {
  const many = Array.from({ length: celItemsMax + 1 }, (_, at) => at);
  const some = many.slice(0, 200);
  const text = "a".repeat(1_500_000);
  const large = { event: {}, data: { many, again: [...many], some, text, key: "a" } };
  const tooMuch = `expression cost limit exceeded: more than ${celItemsMax} items`;

  test.each([
    "data.many.all(item, true)",
    "data.some.all(one, data.some.all(other, true))",
    "data.some.all(one, one in data.some)",
    "5 in data.many",
    "data.many == data.again",
    "size(data.many + data.some) > 0",
    "cel.bind(a, data.some + data.some, cel.bind(b, a + a + a + a, cel.bind(c, b + b + b + b, size(c + c) > 0)))",
    "data.some.all(item, data.text.contains('b') || true)",
    "data.text.matches('(a*)*b')",
    "data.some.all(item, data.text + 'a' != data.key)",
    "data.text.contains(data.text.substring(0, 100000) + 'b`')",
    "data.text.indexOf(data.text) > 0",
    "data.text.lastIndexOf(data.text.substring(0, 100000) + 'b`') > 0",
    "size(data.text.split('')) > 0",
    "size([data.text, data.text, data.text, data.text, data.text, data.text, data.text].join('')) > 0",
    "size('aaaaaaaaaaaaaaaaaaaa'.split('').join(data.text)) > 0",
    "size(bytes(data.text).json()) > 0",
    "cel.bind(a, bytes(data.text), a.json() == a.json())",
  ])("%s", (source) => {
    expect(failure(source, large)).toBe(tooMuch);
  });

  test("an expression that would swallow the error is refused all the same", () => {
    expect(failure("data.many.all(item, true) || true", large)).toBe(tooMuch);
    expect(failure("data.some.exists(one, data.many.all(other, true)) || true", large)).toBe(tooMuch);
  });

  test("a duration is no longer than durations are", () => {
    const digits = { event: {}, data: { digits: "1".repeat(100_000) } };
    const most = "duration(): at most 32 characters";
    expect(failure("duration(data.digits) > duration('1h')", digits)).toBe(most);
    expect(refusal(`duration('${"1".repeat(33)}s') > duration('1h')`)).toBe(most);
    const digitsAlone = "duration('11111111111111111111111111111111') > duration('1h')";
    expect(failure(`data.some.all(one, ${digitsAlone} || ${digitsAlone} || ${digitsAlone})`, large)).toBe(
      tooMuch,
    );
    const program = compileCel("duration('2562047h47m16.854775807s') > duration(data.text)", bool);
    expect(program.run({ event: {}, data: { text: "90m" } })).toBe(true);
  });

  test("data may be as deep as it likes", () => {
    const deep = (depth: number, around: (inner: unknown) => unknown) => {
      let value: unknown = 1;
      for (let at = 0; at < depth; at++) value = around(value);
      return value;
    };
    const program = compileCel("data.one == data.other && size(data.one) == 1", bool);
    const shapes = [
      (inner: unknown) => [inner],
      (inner: unknown) => ({ inner }),
      (inner: unknown) => [{ inner }],
    ];
    for (const around of shapes) {
      const given = (depth: number) => ({
        event: {},
        data: { one: deep(depth, around), other: deep(depth, around) },
      });
      expect(program.run(given(9))).toBe(true);
      expect(program.run(given(500))).toBe(true);
      const other = { event: {}, data: { ...given(20).data, other: deep(21, around) } };
      expect(program.run(other)).toBe(false);
      // 10 s where the types of all levels were told apart.
      const begun = performance.now();
      expect(() => program.run(given(10_000))).toThrow(tooMuch);
      expect(performance.now() - begun).toBeLessThan(2_000);
    }
  });

  test("names that the meters use cannot be taken", () => {
    expect(refusal("data.some.all(svc_argument_0, true)")).toBe("names that begin with svc_ are reserved");
  });

  test("each evaluation has its own", () => {
    const program = compileCel("data.some.all(item, item >= 0)", bool);
    for (let turn = 0; turn < 200; turn++) expect(program.run(large)).toBe(true);
  });
});

describe("rewriting keeps the meaning", () => {
  const leaf = fc.constantFrom(
    "data.a",
    "data.b",
    "1",
    "2.0",
    "0.1234567890123",
    "data.list",
    "'x'",
    "data.s",
    "true",
    "null",
  );
  const { expression } = fc.letrec<{ expression: string }>((tie) => ({
    expression: fc.oneof(
      { maxDepth: 5, depthSize: "small" },
      leaf,
      fc
        .tuple(
          tie("expression"),
          fc.constantFrom("+", "-", "*", "/", "%", "==", "!=", "<", ">=", "&&", "||", "in"),
          tie("expression"),
        )
        .chain(([left, op, right]) =>
          fc.constantFrom(
            `${left} ${op} ${right}`,
            `(${left}) ${op} ${right}`,
            `${left} ${op} (${right})`,
            `(${left} ${op} ${right})`,
          ),
        ),
      tie("expression").map((inner) => `!(${inner})`),
      tie("expression").map((inner) => `-(${inner})`),
      fc
        .tuple(tie("expression"), tie("expression"), tie("expression"))
        .map(([a, b, c]) => `(${a} ? ${b} : ${c})`),
      tie("expression").map((inner) => `data.list.map(i, ${inner} == i)`),
      tie("expression").map((inner) => `[1, 2].exists(i, i == ${inner})`),
      tie("expression").map((inner) => `{'k': ${inner}}['k']`),
      tie("expression").map((inner) => `string(${inner})`),
      fc
        .tuple(tie("expression"), tie("expression"), fc.constantFrom("contains", "indexOf", "lastIndexOf"))
        .map(([a, b, name]) => `string(${a}).${name}(string(${b}))`),
      fc.tuple(tie("expression"), tie("expression")).map(([a, b]) => `string(${a}).indexOf(${b}, 0)`),
      fc
        .tuple(tie("expression"), tie("expression"), tie("expression"))
        .map(([a, b, c]) => `string(${a}).split(string(${b}), 2).join(string(${c}))`),
      tie("expression").map((inner) => `string(${inner}).split('').join()`),
    ),
  }));
  const given = { event: {}, data: { a: 3, b: 0.5, list: [1, 2, 3], s: "x" } };

  test("of every expression that means anything", () => {
    // The library itself, without our limits and meters, is what they are compared with.
    const plain = new Environment({ homogeneousAggregateLiterals: false }).registerVariable("data", "dyn");
    const signs: Record<string, (left: number, right: number) => number> = {
      "+": (left, right) => Number(left) + Number(right),
      "-": (left, right) => Number(left) - Number(right),
      "*": (left, right) => Number(left) * Number(right),
      "/": (left, right) => Number(left) / Number(right),
      "%": (left, right) => Number(left) % Number(right),
    };
    for (const [sign, apply] of Object.entries(signs))
      for (const types of [`double ${sign} int`, `int ${sign} double`])
        plain.registerOperator(`${types}: double`, apply);
    plain.registerOperator("double % double: double", signs["%"]!);
    let meaningful = 0;
    fc.assert(
      fc.property(expression, (text) => {
        let expected: unknown;
        try {
          expected = plain.parse(text)(given);
        } catch {
          return;
        }
        let program: ReturnType<typeof compileCel>;
        try {
          program = compileCel(text, any);
        } catch {
          return;
        }
        meaningful++;
        expect(program.run(given)).toEqual(expected);
      }),
      { numRuns: 3_000 },
    );
    expect(meaningful).toBeGreaterThan(300);
  });

  test("with every parenthesis, and literals as they were spelt", () => {
    const plain = new Environment();
    const once = rewrite(plain.parse("a - (b - c) * -d == e ? f[g].h(i) : !(j in [k, 0.10])").ast).text;
    expect(once).toContain("(a - ((b - c) * (-d)))");
    expect(once).toContain("0.10");
  });
});

test("programs are kept while they fit, by the size of their texts", () => {
  const longOf = (mark: number) =>
    Array.from({ length: 40 }, (_, at) => `data.field${at}.contains("${mark} ${"x".repeat(60)}")`).join(
      " || ",
    );
  const first = compileCel("data.total > 4711", bool);
  for (let mark = 0; mark < 20; mark++) compileCel(longOf(mark), bool);
  expect(compileCel("data.total > 4711", bool)).toBe(first);
  for (let mark = 0; mark < 250; mark++) compileCel(longOf(mark), bool);
  expect(compileCel("data.total > 4711", bool)).not.toBe(first);
});
