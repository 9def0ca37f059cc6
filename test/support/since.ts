import { spawnSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { dirname, join, relative, resolve } from "node:path";

// `test:all --since REV`: the files that a change can reach. Nothing here imports a package.

/** The revision of `--since REV`, and the arguments beside it. */
export function sinceOf(argv: readonly string[]): { since: string | undefined; rest: string[] } {
  const at = argv.indexOf("--since");
  if (at === -1) return { since: undefined, rest: [...argv] };
  const since = argv[at + 1];
  if (since === undefined) throw new Error("--since takes a revision");
  return { since, rest: argv.toSpliced(at, 2) };
}

function linesOf(root: string, command: readonly string[]): string[] {
  const { status, stdout, stderr } = spawnSync("git", command, { cwd: root, encoding: "utf8" });
  if (status !== 0) throw new Error(`git ${command.join(" ")}: ${stderr.trim()}`);
  return stdout.split("\n").filter((line) => line !== "");
}

const isCode = (path: string) => /\.tsx?$/.test(path);
/** Read by many tests as texts, whatever they import. */
const readsTexts = /^test\/(tidy|contract\/.*|unit\/(wire|gen|catalogue.*))\.test\.ts$/;

/** What differs from a revision in the working tree, files that git does not know yet as well. */
export const changedSince = (root: string, since: string): string[] => [
  ...linesOf(root, ["diff", "--name-only", since, "--"]),
  ...linesOf(root, ["ls-files", "--others", "--exclude-standard"]),
];

/** Of these test files, those that reach a changed file by their imports. All of them, if other files than code changed. */
export function touchedSince(root: string, since: string, tests: readonly string[]): Set<string> {
  const changed = changedSince(root, since);
  const other = changed.filter((path) => !isCode(path) && !path.endsWith(".md"));
  return other.length > 0 ? new Set(tests) : reachingTests(root, new Set(changed), tests);
}

/** Tests whose imports, or those of what they import, name a file of `changed`; a test that starts a process reaches main.ts. */
export function reachingTests(
  root: string,
  changed: ReadonlySet<string>,
  tests: readonly string[],
): Set<string> {
  const scanners = { ts: new Bun.Transpiler({ loader: "ts" }), tsx: new Bun.Transpiler({ loader: "tsx" }) };
  const importsOf = (path: string): string[] => {
    // The scanner takes no first line of a script.
    const text = readFileSync(join(root, path), "utf8").replace(/^#!.*/, "");
    const named = scanners[path.endsWith("x") ? "tsx" : "ts"]
      .scanImports(text)
      .map(({ path: target }) => target);
    // Programs that a test starts are named by their path from it.
    const started = [...text.matchAll(/["'`]((?:\.\.?\/)+[\w./-]+\.tsx?)["'`]/g)].map(
      ([, target]) => target!,
    );
    return [...named, ...started]
      .filter((target) => target.startsWith("."))
      .map((target) => relative(root, resolve(root, dirname(path), target)))
      .filter((target) => isCode(target) && existsSync(join(root, target)));
  };
  const importers = new Map<string, string[]>();
  const known = new Set(tests);
  for (const path of known)
    for (const target of importsOf(path)) {
      importers.set(target, [...(importers.get(target) ?? []), path]);
      known.add(target);
    }
  const reached = new Set(changed);
  for (const path of reached) for (const importer of importers.get(path) ?? []) reached.add(importer);
  return new Set(tests.filter((test) => readsTexts.test(test) || reached.has(test)));
}
