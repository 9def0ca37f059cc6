import ts from "typescript-api";
import type { Law } from "./tidy-law.ts";
import type { Rule } from "./tidy-rules.ts";

type Scope = ReadonlySet<string>;

const namesIn = (name: ts.BindingName): string[] =>
  ts.isIdentifier(name)
    ? [name.text]
    : name.elements.flatMap((one) => (ts.isBindingElement(one) ? namesIn(one.name) : []));

/** A name that reads a value, and not one of a property, a parameter or a type. */
function readsValue(node: ts.Identifier): boolean {
  const { parent } = node;
  if (ts.isBindingElement(parent) || ts.isParameter(parent) || ts.isTypeNode(parent)) return false;
  if (ts.isPropertyAccessExpression(parent)) return parent.expression === node;
  return !("name" in parent && parent.name === node && !ts.isShorthandPropertyAssignment(parent));
}

/** What a block's statements make, and where. */
const madeIn = (block: ts.Block): Map<string, number> =>
  new Map(
    block.statements
      .filter(ts.isVariableStatement)
      .flatMap((one) =>
        one.declarationList.declarations.flatMap(({ name }) =>
          namesIn(name).map((text): [string, number] => [text, one.getStart()]),
        ),
      ),
  );

/** Values of a function's own that a closure in it names above the place where they are made. */
function earlyNames(body: ts.Block): ts.Identifier[] {
  const made = madeIn(body);
  const found: ts.Identifier[] = [];
  const look = (node: ts.Node, hidden: Scope): void => {
    if (ts.isIdentifier(node)) {
      const at = made.get(node.text);
      if (at !== undefined && !hidden.has(node.text) && node.getStart() < at && readsValue(node))
        found.push(node);
    }
    const own = ts.isFunctionLike(node)
      ? node.parameters.flatMap(({ name }) => namesIn(name))
      : [...(ts.isBlock(node) && node !== body ? madeIn(node).keys() : [])];
    const within = own.length === 0 ? hidden : new Set([...hidden, ...own]);
    ts.forEachChild(node, (child) => look(child, within));
  };
  look(body, new Set());
  return found;
}

/** Roles take themselves from users and keys, and these ask roles: one of them comes first. */
const exceptions: ReadonlySet<string> = new Set(["src/app/identity.ts"]);

const earlyUses: Rule = (sources) =>
  sources.flatMap(({ path, text }) => {
    if (!path.startsWith("src/app/")) return [];
    const source = ts.createSourceFile(path, text, ts.ScriptTarget.Latest, true);
    const breaches: string[] = [];
    const visit = (node: ts.Node): void => {
      if (ts.isBlock(node) && ts.isFunctionLike(node.parent))
        for (const name of earlyNames(node)) {
          const { line } = source.getLineAndCharacterOfPosition(name.getStart());
          breaches.push(`${path}:${line + 1}: ${name.text} is used before it is made`);
        }
      ts.forEachChild(node, visit);
    };
    visit(source);
    return breaches;
  });

/** Files that are excepted and break nothing. */
export const idleParts: Rule = (sources) =>
  sources.filter((one) => exceptions.has(one.path) && earlyUses([one]).length === 0).map(({ path }) => path);

export const partsLaw: Law = {
  name: "a part is opened with what is made, and nothing that comes later",
  rule: (sources) => earlyUses(sources.filter(({ path }) => !exceptions.has(path))),
  bad: [
    [
      "src/app/log.ts",
      "function open() {\n  const one = openOne(() =>\n    two.go());\n  const two = openTwo(one);\n}",
      3,
    ],
    [
      "src/app/log.ts",
      "const open = () => {\n  const one = { go() { return { two }; } };\n  const { two } = openTwo(one);\n};",
      2,
    ],
  ],
  good: [
    [
      "src/app/log.ts",
      "function open() {\n  const one = openOne((two) => two.two);\n  const two = openTwo(one);\n  return two;\n}",
    ],
  ],
};
