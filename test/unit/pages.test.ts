import { describe, expect, test } from "bun:test";
import { existsSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";

const root = join(import.meta.dir, "../..");
const pages = ["*.md", "src/**/*.md", "proto/**/*.md", "test/**/*.md", "cluster/**/*.md"]
  .flatMap((pattern) => [...new Bun.Glob(pattern).scanSync({ cwd: root })])
  .sort();
const read = (path: string) => readFileSync(join(root, path), "utf8");
const decisions = pages.filter((path) => path.endsWith("/DECISIONS.md"));

interface Decision {
  at: string;
  number: string;
  text: string;
}

const records: Decision[] = decisions.flatMap((path) =>
  read(path)
    .split(/^## /m)
    .slice(1)
    .map((text) => ({ at: `${path} ${text.split("\n")[0]}`, number: text.split(".")[0]!, text })),
);

describe("records of decisions", () => {
  test("are kept: one that no longer holds is rewritten, not dropped", () => {
    expect(records.length).toBeGreaterThanOrEqual(152);
  });

  test("are numbered in order, each number once in the tree", () => {
    for (const path of decisions) {
      const numbers = [...read(path).matchAll(/^## (\S+)\. /gm)].map((match) => match[1]!);
      const letter = numbers[0]!.replace(/\d+/, "");
      expect([path, ...numbers]).toEqual([path, ...numbers.map((_, index) => `${letter}${index + 1}`)]);
    }
    expect(new Set(records.map(({ number }) => number)).size).toBe(records.length);
  });

  test.each(["Context", "Decision", "Consequence", "Held by"])("say their %s", (part) => {
    expect(records.filter(({ text }) => !text.includes(`- **${part}:** `)).map(({ at }) => at)).toEqual([]);
  });

  test("name tests that are there", () => {
    const missing = records.flatMap(({ at, text }) => {
      const line = /^- \*\*Held by:\*\* (.*)$/m.exec(text)?.[1] ?? "";
      const named = [...line.matchAll(/`([^`]+)`/g)].map((match) => match[1]!);
      if (named.length === 0) return [`${at}: names no test`];
      return named.filter((path) => !existsSync(join(root, path))).map((path) => `${at}: ${path}`);
    });
    expect(missing).toEqual([]);
  });
});

test("links between pages lead somewhere", () => {
  const broken = pages.flatMap((path) =>
    [...read(path).matchAll(/\]\((?!https?:|mailto:|#)([^)#\s]+)(?:#[^)]*)?\)/g)]
      .map((match) => match[1]!)
      .filter((target) => !existsSync(join(root, dirname(path), target)))
      .map((target) => `${path}: ${target}`),
  );
  expect(broken).toEqual([]);
});

test("every command of package.json stands on the page of commands", () => {
  const page = read("src/HACKING.md");
  const { scripts } = JSON.parse(read("package.json")) as { scripts: Record<string, string> };
  const named = (name: string) => page.includes(`\`${name}\``) || page.includes(`\`bun run ${name}`);
  expect(Object.keys(scripts).filter((name) => !named(name))).toEqual([]);
});

test("the house stands on one page", () => {
  expect(read("src/README.md").split("\n").length).toBeLessThanOrEqual(180);
});
