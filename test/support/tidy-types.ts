import type { Law } from "./tidy-law.ts";
import type { Rule } from "./tidy-rules.ts";
import { codeOf, lineAt, type Source } from "./tidy-source.ts";

/**
 * Types that the SDK declares too: what stands on the server, as it stands on the other side of the wire. The SDK imports
 * nothing of the server. The list only shrinks: a name that is no longer declared on both sides leaves it, else a test fails.
 */
export const bothSides: ReadonlySet<string> = new Set([
  "CompletedStep",
  "Delivery",
  "Emitted",
  "ExchangeAnswer",
  "FunctionDefinition",
  "FunctionStatus",
  "GroupSettings",
  "JobMessage",
  "PausedState",
  "Published",
  "ReportedStep",
  "Run",
  "RunResult",
  "RunStatus",
  "Step",
  "Subscription",
  "TriggerDefinition",
  "Yield",
]);

const declarations =
  /^[ \t]*(?:export +)?(?:declare +)?(?:abstract +)?(?:(?:interface|class) +(\w+)|type +(\w+)(?=\s*(?:=|<)))/gm;

const sideOf = (path: string): "sdk" | "server" => (path.startsWith("src/sdk/") ? "sdk" : "server");

interface Declared {
  name: string;
  path: string;
  line: number;
}

const declaredIn = ({ path, text }: Source): Declared[] =>
  [...codeOf(text).matchAll(declarations)].map((match) => ({
    name: (match[1] ?? match[2])!,
    path,
    line: lineAt(text, match.index + match[0].search(/\S/)),
  }));

/** A name with two meanings is read as the wrong one, and two declarations of one meaning drift apart. */
const typeBreaches: Rule = (sources) => {
  const firstOf = new Map<string, Declared>();
  return sources.flatMap(declaredIn).flatMap((declared) => {
    const { name, path, line } = declared;
    const key = bothSides.has(name) ? `${sideOf(path)} ${name}` : name;
    const first = firstOf.get(key);
    if (!first) firstOf.set(key, declared);
    return first ? [`${path}:${line}: type ${name} is declared at ${first.path}:${first.line} already`] : [];
  });
};

/** Those of the list that are not declared on both sides. */
export function oneSided(sources: Source[]): string[] {
  const sides = new Set(sources.flatMap(declaredIn).map(({ name, path }) => `${sideOf(path)} ${name}`));
  return [...bothSides].filter((name) => !sides.has(`sdk ${name}`) || !sides.has(`server ${name}`));
}

/** The law with made-up sources: those that break it do so together, after the first. */
export const typeNames: Law = {
  name: "a type name is declared once",
  rule: typeBreaches,
  together: true,
  bad: [
    ["src/kit/one.ts", "type Reader = string;\n\ninterface Reader {}\n", 3],
    ["src/store/store.ts", "\nexport type Reader = Pick<Store, 'one'>;\n", 2],
    ["src/sdk/wire/types.ts", "// ...\nexport interface Reader {\n}\n", 2],
    ["src/edge/http.ts", "\n\nexport abstract class Reader<One> {}\n", 3],
    ["src/sdk/wire/wire.ts", "export interface Run {}\ntype Run = 1;\n", 2],
  ],
  good: [
    ["src/sdk/wire/types.ts", "export interface Run {\n  type: string;\n}\nconst type = 1;\n"],
    ["src/domain/engine/runs/run.ts", "export interface Run {}\n/** type Run = 1; */\n"],
    [
      "src/edge/http.ts",
      `import {\n  type Run,\n  type Step as Run2,\n} from "../sdk/types.ts";\nexport type { Run };\n`,
    ],
  ],
};
