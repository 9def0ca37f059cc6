import type { Law } from "./tidy-law.ts";
import type { Rule } from "./tidy-rules.ts";
import { codeOf, type Source } from "./tidy-source.ts";

export const functionLinesMax = 120;

/** The last line of a function's head, as biome lays it out. */
const head = /^(\s*)(?:.*(?:=> |\) |\)\s*:\s*.+ )\{|.*\bfunction\b.*\{)$/;
const otherBlock =
  /^\s*(?:\} )?(?:if|for|while|switch|catch|else|do|try|class|interface|type|export (?:class|interface|type))\b/;
const nameOf = (line: string): string =>
  (/(?:function\*?\s+|const\s+)([\w$]+)/.exec(line) ?? /^\s*(?:async\s+)?#?([\w$]+)/.exec(line))?.[1] ??
  "a function";

/** Functions of too many lines, counted from the end of the head: each ends at the first brace that stands where it began. */
function longOnes({ text }: Source): { name: string; line: number; lines: number }[] {
  const lines = codeOf(text).split("\n");
  return lines.flatMap((line, at) => {
    const [, indent] = head.exec(line) ?? [];
    if (indent === undefined || otherBlock.test(line)) return [];
    const end = lines.findIndex((one, place) => place > at && one.startsWith(`${indent}}`));
    const count = end - at + 1;
    if (count <= functionLinesMax) return [];
    // A head of several lines ends in one that begins with its parenthesis.
    const first = line.startsWith(`${indent})`)
      ? lines.slice(0, at).findLast((one) => one.startsWith(indent) && /\S/.test(one[indent.length] ?? " "))
      : line;
    return [{ name: nameOf(first ?? line), line: at + 1, lines: count }];
  });
}

export const functionBreaches: Rule = (sources) =>
  sources.flatMap((source) =>
    longOnes(source).map(
      ({ name, line, lines }) =>
        `${source.path}:${line}: ${name} has ${lines} lines, at most ${functionLinesMax}`,
    ),
  );

const calls = (count: number, indent = "  ") => `${indent}one();\n`.repeat(count);

/** Made-up sources, as the law is tried with. */
export const functionExamples: Pick<Law, "bad" | "good"> = {
  bad: [
    ["src/edge/http.ts", `\nexport function long(): void {\n${calls(functionLinesMax)}}\n`, 2],
    ["src/edge/http.ts", `const long = async (\n  one: One,\n) => {\n${calls(functionLinesMax)}};\n`, 3],
    ["src/edge/http.ts", `class One {\n  #long() {\n${calls(functionLinesMax, "    ")}  }\n}\n`, 2],
  ],
  good: [
    ["src/edge/http.ts", `function short() {\n${calls(functionLinesMax - 2)}}\n`],
    ["src/edge/http.ts", `class Long {\n${"  one = 1;\n".repeat(functionLinesMax)}}\n`],
  ],
};
