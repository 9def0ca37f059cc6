import { join } from "node:path";
import { matrixPath, routesIn } from "./auth-matrix.ts";
import { cataloguePath } from "./catalogue.ts";
import { codeOf, lineAt, type Source } from "./tidy-source.ts";

export interface Way {
  /** The operation: `runs.cancel`. */
  name: string;
  /** It changes nothing. */
  reads: boolean;
  method: string;
  /** As in the registry: `/api/v1/users/{id}`. */
  path: string;
}

/** Every way of HTTP into an operation. Of two that fit a path, the one with fewer parameters is first. */
export async function everyWay(): Promise<Way[]> {
  const catalogue: { name: string; reads: boolean }[] = await Bun.file(cataloguePath).json();
  const reads = new Set(catalogue.filter((one) => one.reads).map(({ name }) => name));
  return routesIn(await Bun.file(matrixPath).text())
    .map((line) => line.split("  ") as [string, string, string, string])
    .filter(([, , protocol]) => protocol !== "websocket")
    .map(([name, , , way]) => {
      const [method = "", path = ""] = way.split(" ");
      return { name, reads: reads.has(name), method, path };
    })
    .sort((one, other) => one.path.split("{").length - other.path.split("{").length);
}

const escaped = (text: string): string => text.replaceAll(/[.*+?^${}()|[\]\\]/g, "\\$&");

/** A path that was asked for, against one of the registry. */
export function fits(path: string, { path: known }: Way): boolean {
  const pattern = known
    .split(/(\{\w+(?:\.\.\.)?\})/)
    .map((part) => (part.startsWith("{") ? (part.endsWith("...}") ? ".+" : "[^/]+") : escaped(part)))
    .join("");
  return new RegExp(`^${pattern}$`).test(path);
}

/** The arguments of a call whose bracket opens at `from`. */
function argumentsAt(text: string, code: string, from: number): string {
  let depth = 0;
  for (let at = from; at < code.length; at++) {
    if ("([{".includes(code[at]!)) depth++;
    if (")]}".includes(code[at]!) && --depth === 0) return text.slice(from + 1, at);
  }
  return "";
}

/** What a constant of the file may be, or what the function of that name gives: the texts that stand for paths. */
function textsOf(name: string, text: string): string[] {
  const found = new RegExp(`const ${name} =([^;]*);`).exec(text)?.[1] ?? "";
  return [...found.matchAll(/"(\/[^"]*)"|`([/$][^`]*)`/g)].map(([, plain, template]) => plain ?? template!);
}

/** A path with a `*` for each part of it that is data; none for what is no path. */
function pathsOf(written: string, text: string): string[] {
  const [, plain, template] = /^\s*(?:"([^"]*)"|`([^`]*)`)/.exec(written) ?? [];
  if (plain !== undefined) return [plain];
  if (template === undefined) {
    const [, name = ""] = /^\s*(\w+)/.exec(written) ?? [];
    return textsOf(name, text).flatMap((one) => pathsOf(`\`${one}\``, text));
  }
  const [, before = "", name, after = ""] =
    /^([^$]*)\$\{(\w+)(?:[^{}]|\{[^{}]*\})*\}(.*)$/s.exec(template) ?? [];
  if (name === undefined) return [template.replace(/\?.*$/, "")];
  const known = textsOf(name, text).filter((one) => one !== template);
  const insides =
    known.length === 0 || before !== "" ? ["*"] : known.flatMap((one) => pathsOf(`\`${one}\``, text));
  return insides.flatMap((inside) => pathsOf(`\`${before}${inside}${after}\``, text));
}

/** Carries what others ask for. */
const carrier = "src/dashboard/lib/api.ts";

/**
 * What the pages may ask for that writes: operations, and files with a call that writes by a path that no operation fits.
 * The paths of preview and dry-run calls fit operations that read.
 */
export function writesOf(
  sources: readonly Source[],
  ways: readonly Way[],
): { names: Set<string>; strays: string[] } {
  const names = new Set<string>();
  const strays: string[] = [];
  for (const { path: file, text } of sources) {
    if (file === carrier) continue;
    const code = codeOf(text);
    // A method of RPC is named by its own text, be it handed on from somewhere else.
    for (const { name, path, reads } of ways) {
      if (reads || !path.startsWith("/svc.")) continue;
      const [service = "", method = ""] = path.split(/[./]/).slice(-2);
      const isAlone = ways.filter((way) => way.path.endsWith(`/${method}`)).length === 1;
      // Of two services with one method the page names which.
      if (text.includes(isAlone ? `"${method}"` : `"${service}", "${method}"`)) names.add(name);
    }
    for (const { index, 0: call } of code.matchAll(/\brest(?:<[^()]*>)?\(/g)) {
      const asked = argumentsAt(text, code, index + call.length - 1);
      const method =
        /\bmethod: "(\w+)"/.exec(asked)?.[1] ?? (/\b(body|bytes)\b/.test(asked) ? "POST" : "GET");
      if (method === "GET") continue;
      const patterns = pathsOf(asked, text).map(
        (path) => new RegExp(`^${escaped(path).replace(/^\\\*/, ".*").replaceAll("\\*", "[^/]*")}$`),
      );
      const found = ways.filter(
        (way) =>
          way.method === method && patterns.some((one) => one.test(way.path.replaceAll(/\{[^}]*\}/g, "x"))),
      );
      if (found.length === 0) strays.push(`${file}:${lineAt(text, index)}`);
      for (const { name, reads } of found) if (!reads) names.add(name);
    }
  }
  return { names, strays };
}

export async function dashboardSources(): Promise<Source[]> {
  const root = join(import.meta.dir, "../..");
  const paths = [...new Bun.Glob("src/dashboard/**/*.{ts,tsx}").scanSync(root)].sort();
  return Promise.all(paths.map(async (path) => ({ path, text: await Bun.file(join(root, path)).text() })));
}
