export interface Source {
  /** From the root of the repository: `src/kit/clock.ts`. */
  path: string;
  text: string;
}

export interface Import {
  /** Of a file of ours, from the root; of a package or a built-in module, as written. */
  target: string;
  ours: boolean;
  typeOnly: boolean;
  line: number;
}

/** A `/` here begins a regular expression; after a value it divides. */
const beforeExpression = /(^|[=(,:[!&|?{};+*%<>~^-]|\b(return|typeof|case|of|in|await|throw|else))\s*$/;

/**
 * The text with comments, string contents and regular expressions blanked, every other character at its place. What
 * stands inside `${}` of a template is code and stays.
 */
export function codeOf(text: string): string {
  const out = text.split("");
  const blank = (from: number, to: number) => {
    for (let at = from; at < to; at++) if (out[at] !== "\n") out[at] = " ";
  };
  const endOf = (quote: string, from: number) => {
    let at = from;
    while (at < text.length && text[at] !== quote && text[at] !== "\n") at += text[at] === "\\" ? 2 : 1;
    return at;
  };
  const endOfRegExp = (from: number) => {
    let inClass = false;
    let at = from;
    while (at < text.length && text[at] !== "\n" && (inClass || text[at] !== "/")) {
      if (text[at] === "\\") at++;
      else if (text[at] === "[") inClass = true;
      else if (text[at] === "]") inClass = false;
      at++;
    }
    return at;
  };
  // Depth of braces at which each open `${` ends.
  const templates: number[] = [];
  let depth = 0;
  const skipTemplate = (from: number) => {
    let at = from;
    while (at < text.length && text[at] !== "`" && !(text[at] === "$" && text[at + 1] === "{")) {
      at += text[at] === "\\" ? 2 : 1;
    }
    blank(from, Math.min(at, text.length));
    if (text[at] === "$") {
      templates.push(depth);
      return at + 2;
    }
    return at + 1;
  };
  let at = 0;
  while (at < text.length) {
    const character = text[at] ?? "";
    if (character === "/" && text[at + 1] === "/") {
      const end = text.indexOf("\n", at);
      const stop = end === -1 ? text.length : end;
      blank(at, stop);
      at = stop;
    } else if (character === "/" && text[at + 1] === "*") {
      const end = text.indexOf("*/", at + 2);
      const stop = end === -1 ? text.length : end + 2;
      blank(at, stop);
      at = stop;
    } else if (character === '"' || character === "'") {
      const end = endOf(character, at + 1);
      blank(at + 1, end);
      at = end + 1;
    } else if (character === "`") {
      at = skipTemplate(at + 1);
    } else if (character === "/" && beforeExpression.test(out.slice(Math.max(0, at - 80), at).join(""))) {
      const end = endOfRegExp(at + 1);
      blank(at + 1, end);
      at = end + 1;
    } else {
      if (character === "{") depth++;
      if (character === "}") {
        if (templates.at(-1) === depth) {
          templates.pop();
          at = skipTemplate(at + 1);
          continue;
        }
        depth--;
      }
      at++;
    }
  }
  return out.join("");
}

export function lineAt(text: string, index: number): number {
  return text.slice(0, index).split("\n").length;
}

const statements =
  /^[ \t]*(?:import|export)\b([^"'`;]*?)\bfrom\s*(["'])( *)\2|^[ \t]*import\s*(["'])( *)\4/gm;
const calls = /\bimport\s*\(\s*(["'])( *)\1/g;

/** Every import and re-export of a file, static or by call. */
export function importsOf({ path, text }: Source): Import[] {
  const code = codeOf(text);
  const found: Import[] = [];
  const add = (match: RegExpMatchArray, clause: string, blanks: string) => {
    const end = (match.index ?? 0) + match[0].length - 1;
    const written = text.slice(end - blanks.length, end);
    const target = written.startsWith(".") ? join(path, written) : written;
    found.push({
      target,
      ours: written.startsWith("."),
      typeOnly: isTypeOnly(clause),
      line: lineAt(text, end),
    });
  };
  for (const match of code.matchAll(statements)) add(match, match[1] ?? "", match[3] ?? match[5] ?? "");
  for (const match of code.matchAll(calls)) add(match, "", match[2] ?? "");
  return found;
}

function isTypeOnly(clause: string): boolean {
  if (/^\s*type\b(?!\s*,)/.test(clause)) return true;
  const names = clause
    .match(/^\s*\{([^}]*)\}\s*$/)?.[1]
    ?.split(",")
    .filter((name) => name.trim() !== "");
  return names !== undefined && names.length > 0 && names.every((name) => /^\s*type\s/.test(name));
}

function join(from: string, relative: string): string {
  const parts = from.split("/").slice(0, -1);
  for (const part of relative.split("/")) {
    if (part === "..") parts.pop();
    else if (part !== ".") parts.push(part);
  }
  return parts.join("/");
}
